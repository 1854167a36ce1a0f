"""What Lithops ships to functions: the part of its configuration that they need, and no other secret."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mlless_nb.driver.backends import lithops_config
from mlless_nb.driver.backends.launcher import LithopsLauncher

SECRETS = {
    "ibm": {"iam_api_key": "planted-ibm"},
    "gcp": {"credentials_path": "planted-gcp"},
    "rabbitmq": {"amqp_url": "amqp://me:planted-rabbit@host"},
    "redis": {"host": "host", "password": "planted-redis"},
    "azure_storage": {"storage_account_key": "planted-azure"},
}


def test_functions_get_their_storage_and_no_other_secret() -> None:
    storage = {"storage_bucket": "b", "access_key_id": "planted-id", "secret_access_key": "needed"}
    backend = {"runtime": "image", "runtime_memory": 512, "secret_access_key": "planted-aws", "execution_role": "arn"}
    general = {"backend": "aws_lambda", "storage": "aws_s3", "mode": "serverless"}
    config: dict[str, Any] = {"lithops": general, "aws_lambda": backend, "aws_s3": storage, **SECRETS}
    found = lithops_config.for_functions(config)
    assert found["lithops"].items() >= general.items()
    assert found["aws_lambda"] == {"runtime": "image", "runtime_memory": 512, "execution_role": "arn"}
    assert found["aws_s3"] == storage
    assert set(found) == {"lithops", "aws_lambda", "aws_s3"}
    # A function that invokes others needs the backend's keys.
    config["aws_lambda"] = backend | {"remote_invoker": True}
    assert lithops_config.for_functions(config)["aws_lambda"] == config["aws_lambda"]
    # All of it is hidden from texts.
    assert {"planted-ibm", "planted-rabbit", "planted-redis", "planted-azure", "needed", "planted-aws"} <= {
        *lithops_config.secrets_of(config)
    }


@pytest.mark.parametrize(
    ("backend", "lifetimes"),
    [
        ("aws_lambda", {"runtime_timeout": 900}),
        ("k8s", {"runtime_timeout": 86_400, "master_timeout": 86_400}),
    ],
)
def test_functions_live_as_long_as_the_cloud_lets_them_unless_the_user_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str, lifetimes: dict[str, int]
) -> None:
    """Lithops' own defaults are three minutes and ten."""
    general = {"backend": backend, "storage": "aws_s3"}
    given: dict[str, Any] = {"lithops": general, backend: {"runtime": "image"}}
    found = lithops_config.for_cloud(lithops_config.copied(given), None)
    assert found == {"lithops": general, backend: {"runtime": "image", **lifetimes}}
    own = dict.fromkeys(lifetimes, 60)
    assert lithops_config.for_cloud({"lithops": general, backend: own.copy()}, None) == {
        "lithops": general,
        backend: own,
    }
    # The same for a name, whose configuration is Lithops' file.
    path = tmp_path / "lithops.json"
    path.write_text(json.dumps(given))
    monkeypatch.setenv("LITHOPS_CONFIG_FILE", str(path))
    named = lithops_config.for_cloud(None, backend)
    assert named is not None
    assert named[backend] == {"runtime": "image", **lifetimes}
    assert lithops_config.for_cloud(None, "another") is None


def test_other_backends_keep_lithops_defaults() -> None:
    given = {"lithops": {"backend": "code_engine"}, "code_engine": {"runtime": "image"}}
    assert lithops_config.for_cloud(lithops_config.copied(given), None) == given


def test_the_payload_of_local_functions_has_no_other_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Lithops writes it for its runner."""
    monkeypatch.setenv("HOME", str(tmp_path))
    launcher = LithopsLauncher({"lithops": {"backend": "localhost", "storage": "localhost"}, **SECRETS}, 1, 256)
    try:
        assert "planted" in json.dumps(launcher._executor.config)
        payload = json.dumps(launcher._executor.invoker.config)
        assert "planted" not in payload
        assert "localhost" in payload
    finally:
        launcher.close()
