"""`mlless-nb runtime check` where a configuration is all that is needed; `cloud.test_kubernetes` has a cluster, too."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from servers import S3_BACKEND

from mlless_nb.clouds import container_check
from mlless_nb.clouds.command import main


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("lithops: [", "Lithops says: while parsing a flow"),
        ("{}", "backend localhost: this is for k8s, code_engine, gcp_cloudrun, knative"),
        (
            '{"lithops": {"backend": "knative", "storage": "localhost"}}',
            "Lithops says: Localhost storage backend cannot",
        ),
    ],
)
def test_a_configuration_that_is_none_for_containers_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, line: str
) -> None:
    path = tmp_path / "lithops.yaml"
    path.write_text(text)
    assert main(["runtime", "check", "--config", str(path)]) == 1
    said = capsys.readouterr()
    assert said.err == ""
    (told,) = said.out.splitlines()
    assert told.startswith(f"FAIL configuration: {line}")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    (found,) = container_check.examine(tmp_path / "missing.yaml")
    assert (found.name, found.is_good) == ("configuration", False)
    assert "missing.yaml" in found.text


def test_what_nobody_has_run_is_said_to_be(tmp_path: Path, s3: Any) -> None:
    """The image and the storage are looked at all the same."""
    config = json.loads(json.dumps(S3_BACKEND))
    config["lithops"]["backend"], config["knative"] = "knative", {"runtime": "registry.example/mlless:1"}
    path = tmp_path / "lithops.json"
    path.write_text(json.dumps(config))
    configuration, image, storage = container_check.examine(path)
    assert configuration.is_good
    assert configuration.text.endswith("nobody has run functions of mlless_nb there yet")
    assert str(image).endswith("registry.example/mlless:1, whose mlless_nb is compared when functions start")
    assert str(storage).startswith("ok   storage: ")
    config["knative"] = {}
    path.write_text(json.dumps(config))
    assert str(container_check.examine(path)[1]).startswith("FAIL image: runtime is not set")


def test_a_package_that_is_missing_says_what_installs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ibm_cloud_sdk_core", None)
    for name in [name for name in sys.modules if name.startswith("lithops.serverless.backends.code_engine")]:
        monkeypatch.delitem(sys.modules, name)
    path = tmp_path / "lithops.json"
    path.write_text(json.dumps(S3_BACKEND | {"lithops": {"backend": "code_engine", "storage": "aws_s3"}}))
    (found,) = container_check.examine(path)
    remedy = "packages of code_engine are to be installed; ibm_cloud_sdk_core is not: pip install 'lithops[ibm]'"
    assert str(found) == f"FAIL configuration: {remedy}"
