"""The entry point of functions that other functions invoke."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mlless_nb.stateless import functions
from mlless_nb.stateless.messages import Call


def test_it_opens_connections_of_its_own_and_its_errors_show_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lithops forks it in a warm runtime, whose connections it would share."""
    seen: list[str] = []

    def fail(call: Call, objects: Any) -> None:
        seen.append("run")
        raise ConnectionError(f"no answer from {call.job['redis_urls'][0]}")

    monkeypatch.setattr(functions, "run_call", fail)
    client = SimpleNamespace(meta=None, close=lambda: seen.append("closed"))
    storage = SimpleNamespace(backend="aws_s3", bucket="bucket", config={}, get_client=lambda: client)
    job = {"redis_urls": ["rediss://:planted-stateless@redis.example:6379"]}
    call = Call(job, "update", 1, 0, 0, 1, 0.0, "model")
    with pytest.raises(ConnectionError) as caught:
        functions.run_payload(call.encode().decode(), storage)
    assert seen == ["closed", "run"]
    assert "planted-stateless" not in str(caught.value)
