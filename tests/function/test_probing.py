"""A function measures its link to Redis, or says in one line why it cannot."""

from __future__ import annotations

import pytest
import redis
from servers import free_port

from mlless_nb.function import lambda_handler as module
from mlless_nb.function.age import is_cold
from mlless_nb.function.lambda_handler import INVOKED, PROBE, lambda_handler
from mlless_nb.function.package_digest import digest_here


@pytest.fixture(autouse=True)
def process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The handler notes its invocations in the process and in its environment: other tests see nothing of that."""
    monkeypatch.setenv(INVOKED, "")
    monkeypatch.setattr(module, "_began", [])


def test_an_event_of_aws_lambda_asks_for_the_link(redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        before = client.dbsize()
        said = lambda_handler({PROBE: {"redis": redis_url, "insecure": False}}, None)
        assert client.dbsize() == before
    assert said.pop("sources") == digest_here()
    assert sorted(said) == ["bytes_per_s", "latency_s"]
    assert 0 < said["latency_s"] < 1 < said["bytes_per_s"]


def test_the_first_invocation_of_a_runtime_is_a_cold_start(monkeypatch: pytest.MonkeyPatch) -> None:
    for is_first in (True, False):
        lambda_handler({PROBE: {"redis": "redis://[::1", "insecure": True}}, None)
        assert is_cold() is is_first
    monkeypatch.delenv(INVOKED)  # as elsewhere than on AWS Lambda
    assert is_cold() is None


def test_a_server_that_cannot_be_reached_is_one_line_without_its_password() -> None:
    url = f"redis://:planted-secret@127.0.0.1:{free_port()}"
    said = lambda_handler({PROBE: {"redis": url, "insecure": True}}, None)["error"]
    assert "does not answer" in said
    assert "planted-secret" not in said
    assert "\n" not in said
