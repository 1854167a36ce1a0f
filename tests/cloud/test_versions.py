"""What is deployed: after an upgrade the new code runs and never the old, and one command leaves nothing of it."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from cloud.conftest import COMMAND, MEMORY_MB, PROFILE, SIZES, deploy, settled, trained

pytestmark = pytest.mark.long

#: The namespace of the deployment that the user's profile names.
NAMESPACE = """
import json
from mlless_nb.driver.backends import deployed
print(json.dumps(deployed.find("aws_lambda").namespace))
"""
#: What lies in the account that has our names.
ACCOUNT = """
import boto3, json
clients = {name: boto3.client(name) for name in ("lambda", "iam", "s3", "logs")}
found = {
    "functions": [each["FunctionName"] for each in clients["lambda"].list_functions()["Functions"]],
    "layers": [each["LayerName"] for each in clients["lambda"].list_layers()["Layers"]],
    "roles": [each["RoleName"] for each in clients["iam"].list_roles()["Roles"]],
    "buckets": [each["Name"] for each in clients["s3"].list_buckets()["Buckets"]],
    "log groups": [each["logGroupName"] for each in clients["logs"].describe_log_groups()["logGroups"]],
}
print(json.dumps({kind: [name for name in names if "mlless-" in name] for kind, names in found.items()}))
"""
#: Deletes the layer, and the function of so much memory.
DELETE = """
import boto3, sys
client = boto3.client("lambda")
for layer in client.list_layers()["Layers"]:
    number = layer["LatestMatchingVersion"]["Version"]
    client.delete_layer_version(LayerName=layer["LayerName"], VersionNumber=number)
for each in client.list_functions()["Functions"]:
    if each["FunctionName"].startswith("mlless-") and each["MemorySize"] == int(sys.argv[1]):
        client.delete_function(FunctionName=each["FunctionName"])
"""
#: Part of the sources that decides which model comes out.
OLD, NEW = "default_rng([seed, 1])", "default_rng([seed, 2])"


def upgraded(folder: Path) -> Path:
    """mlless_nb as pip installs it, in another version: its models start elsewhere."""
    import mlless_nb
    from mlless_nb import kernels, magics, widgets

    core = Path(mlless_nb.__file__).parent
    left_out = shutil.ignore_patterns("__pycache__", "*.pyx", "*.h")
    shutil.copytree(core, folder / "mlless_nb", ignore=left_out, dirs_exist_ok=True)
    for room in (kernels, magics, widgets):
        source = Path(str(room.__file__)).parent
        shutil.copytree(source, folder / "mlless_nb" / source.name, ignore=left_out, dirs_exist_ok=True)
    path = folder / "mlless_nb" / "models" / "factors.py"
    text = path.read_text()
    assert OLD in text
    path.write_text(text.replace(OLD, NEW))
    return folder


def account(box: Any) -> dict[str, list[str]]:
    return dict(json.loads(box.python("-c", ACCOUNT)))


def removed(box: Any) -> None:
    """`mlless-nb remove aws` leaves nothing."""
    box.python("-c", COMMAND, "remove", "aws", "--yes")
    assert set(map(tuple, account(box).values())) == {()}
    assert not (box.home / PROFILE).exists()


def test_an_upgrade_runs_once_it_is_deployed_and_not_before(box: Any) -> None:
    from cloud.box import REDIS

    old, before = json.loads(box.python("-c", NAMESPACE)), account(box)
    path = upgraded(box.home / "upgraded")
    with ThreadPoolExecutor(2) as pool:
        alone = pool.submit(trained, box, backend="embedded", steps=30, path=path)
        try:
            run = trained(box, steps=30, path=path)
            assert run["refused"].endswith("its functions have another version of mlless_nb")
            assert settled(box) == []
            deploy(box, "--redis", REDIS, "--memory", str(max(MEMORY_MB)), path=path)
            box.n_before = len(box.invocations())
            # A configuration of the user's own still names the functions of the old version.
            behind = pool.submit(trained, box, steps=30, config={"namespace": old}, path=path)
            run, new = trained(box, steps=30, path=path), alone.result()
            assert (run.get("status"), run.get("digest")) == ("finished", new["digest"]), run
            run = behind.result()
            assert run["status"] == "failed", run
            assert "could not start: OtherVersionError: its runtime has another mlless_nb" in run["reason"]
            assert len(settled(box)) == 4 + 4
            assert new["status"] == "finished"
            assert {kind: len(names) - len(before[kind]) for kind, names in account(box).items()} == {
                "functions": 1,
                "layers": 1,
                "roles": 0,
                "buckets": 0,
                "log groups": 1,
            }
        finally:
            removed(box)


def test_a_function_that_is_gone_is_told_and_one_whose_layer_is_gone_runs(box: Any) -> None:
    """AWS keeps a layer that is deleted for the functions that have it."""
    from cloud.box import REDIS

    least_mb, most_mb = MEMORY_MB
    before = {kind: set(names) for kind, names in account(box).items()}
    box.python("-c", DELETE, str(least_mb))
    run = trained(box, memory_mb=least_mb)
    assert run["status"] == "failed", run
    assert "AWS Lambda accepted 0 of 4: 404: Function not found: " in run["reason"]
    assert run["reason"].endswith(": `mlless-nb deploy aws` deploys it again")
    assert "\n" not in run["reason"]
    assert (settled(box), run["functions_usd"]) == ([], 0)
    assert trained(box, memory_mb=most_mb, steps=10)["status"] == "finished"
    deploy(box, "--redis", REDIS, *SIZES)
    assert {kind: set(names) for kind, names in account(box).items()} == before


def test_one_command_deploys_without_a_server_and_one_removes_all_of_it(empty_box: Any) -> None:
    """Updates go through the bucket then."""
    if (empty_box.home / PROFILE).exists():
        removed(empty_box)
    deploy(empty_box, "--memory", str(max(MEMORY_MB)))
    empty_box.n_before = len(empty_box.invocations())
    with ThreadPoolExecutor(2) as pool:
        places: tuple[dict[str, Any], ...] = ({}, {"backend": "embedded"})
        run, alone = pool.map(lambda on: trained(empty_box, steps=10, store="storage", **on), places)
    assert (run.get("status"), run.get("digest")) == ("finished", alone["digest"]), run
    assert [each["error"] for each in settled(empty_box)] == [None] * 4
    removed(empty_box)
    assert empty_box.ask(broken=True) == []
