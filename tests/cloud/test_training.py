"""Runs on the emulated AWS Lambda: the same model as on this machine, the bill, and what is refused or told."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cloud.conftest import billed_usd, busy, settled, trained

pytestmark = pytest.mark.long

#: What is left on the user's Redis and in the bucket, apart from packed data, which later runs use again.
LEFT = """
import boto3, json, redis, sys
bucket = "mlless-nb-123456789012-us-east-1"
keys = [each["Key"] for each in boto3.client("s3").list_objects_v2(Bucket=bucket).get("Contents", [])]
print(json.dumps([sorted(key for key in keys if "/datasets/" not in key and not key.startswith("lithops.runtimes/")),
                  [key.decode() for key in redis.Redis.from_url(sys.argv[1]).keys("*")]]))
"""
#: A function that did not start is told within so many seconds.
TOLD_S = 20.0


@contextlib.contextmanager
def patched(box: Any, old: str, new: str) -> Iterator[None]:
    """The functions' entry with ``new`` in the place of ``old``."""
    (layers,) = {each["layers"] for name, each in box.ask(functions=True).items() if name.startswith("mlless-")}
    path = Path(layers) / "python/mlless_nb/function/entry.py"
    whole = path.read_text()
    assert old in whole
    path.write_text(whole.replace(old, new))
    try:
        yield
    finally:
        path.write_text(whole)
        box.ask(forget=True)


@pytest.fixture(scope="module")
def here(empty_box: Any) -> dict[str, Any]:
    """The same run on the user's machine."""
    return trained(empty_box, backend="embedded", steps=200)


def test_three_workers_train_cold_and_warm(box: Any, here: dict[str, Any]) -> None:
    from cloud.box import REDIS

    for is_cold in (True, False):
        box.n_before = len(box.invocations())
        run = trained(box, steps=200)
        assert (run.get("status"), run.get("steps")) == ("finished", 200), run
        assert run["digest"] == here["digest"]
        ended = settled(box)
        assert [each["is_cold"] for each in ended] == [is_cold] * 4
        assert [each["error"] for each in ended] == [None] * 4
        billed = billed_usd(box)
        print("cold" if is_cold else "warm", run["functions_usd"] / billed, run["time_s"], run["whole_s"], ended)
        assert billed <= run["functions_usd"] <= 1.05 * billed
    assert box.ask(broken=True) == []
    assert json.loads(box.python("-c", LEFT, REDIS)) == [[], []]


def test_a_quota_that_is_too_small_is_refused_before_anything_is_invoked(box: Any) -> None:
    box.ask(set="quota", value=3)
    run = trained(box)
    assert run["refused"] == "workers=3: must be at most 2: aws_lambda runs 3 functions at once"
    assert not [each for each in box.ask(requests=True) if each.endswith("/invocations")]


def test_a_package_that_cannot_be_imported_is_named(box: Any) -> None:
    with patched(box, "from __future__ import annotations\n", "import a_package_that_is_not_there\n"):
        run = trained(box, workers=2)
    assert run.get("status") == "failed", run
    assert "could not start: ModuleNotFoundError: No module named 'a_package_that_is_not_there'" in run["reason"]
    ended = settled(box)
    assert run["ended_at_s"] - min(each["at_s"] for each in ended) < TOLD_S
    assert run["functions_usd"] >= billed_usd(box) > 0


def test_too_little_memory_is_named(box: Any) -> None:
    with patched(
        box,
        "    invocation = Message.decode(checked(payload))\n",
        "    invocation = [Message.decode(checked(payload)), b'x' * (600 << 20)][0]\n",
    ):
        run = trained(box, workers=2, memory_mb=512)
    assert run.get("status") == "failed", run
    assert "ran out of memory: memory_mb=512 is too small for this job" in run["reason"]
    ended = settled(box)
    assert run["ended_at_s"] - min(each["at_s"] for each in ended) < TOLD_S
    assert run["functions_usd"] >= billed_usd(box) > 0


def test_functions_with_a_third_of_a_core_are_not_ended_by_their_budget(box: Any, here: dict[str, Any]) -> None:
    with busy(box):
        run = trained(box, steps=200, memory_mb=512)
    assert (run.get("status"), run.get("digest")) == ("finished", here["digest"]), run
    ended = settled(box)
    print("512 MB", run["time_s"], run["functions_usd"] / billed_usd(box), ended)
    assert [(each["error"], each["attempt"]) for each in ended] == [(None, 0)] * 4  # nobody was replaced
    assert run["functions_usd"] >= billed_usd(box)


def test_deploying_is_not_billed_as_training(box: Any, here: dict[str, Any]) -> None:
    """With a configuration of the user's own Lithops deploys the function, which takes a while."""
    remove = (
        "import boto3, os, shutil\nshutil.rmtree(os.path.expanduser('~/.lithops'))\n"
        "client, s3 = boto3.client('lambda'), boto3.client('s3')\n"
        "bucket = 'mlless-nb-123456789012-us-east-1'\n"
        "listed = client.list_functions()['Functions']\n"
        "names = [each['FunctionName'] for each in listed if each['MemorySize'] == 1769]\n"
        "for name in names:\n    client.delete_function(FunctionName=name)\n"
        "for each in s3.list_objects_v2(Bucket=bucket, Prefix='lithops.runtimes/')['Contents']:\n"
        "    if names[0] in each['Key']:\n        s3.delete_object(Bucket=bucket, Key=each['Key'])\n"
    )
    box.python("-c", remove)
    run = trained(box, config={"runtime": "default"}, steps=200)
    assert (run.get("status"), run.get("digest")) == ("finished", here["digest"]), run
    deployed, *workers = settled(box)
    assert deployed["calls"] is None
    assert run["time_s"] < run["whole_s"] - deployed["billed_ms"] / 1000
    made = [each for each in box.ask(requests=True) if each.startswith("PUT") and each.endswith("event-invoke-config")]
    assert made
    assert run["functions_usd"] >= sum(each["usd"] for each in workers)
