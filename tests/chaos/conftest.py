"""Servers of the chaos runs, which they break; their functions are forked from one interpreter."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from chaos.scene import Servers
from servers import S3_BUCKET, RabbitProcess, RedisProcess, Relay, free_port


@pytest.fixture(autouse=True, scope="module")
def runtime(shared_runtime: None) -> None:
    """Fork the functions of these runs from an interpreter that is loaded already."""


@pytest.fixture
def durable_redis(redis_program: str, tmp_path: Path) -> Iterator[RedisProcess]:
    """A Redis with an append-only file, which a test may break."""
    server = RedisProcess(redis_program, tmp_path, "--appendonly", "yes", "--appendfsync", "everysec")
    server.start()
    yield server
    server.kill()


class ThrottledStorage:
    """An emulator of S3 that answers 503 for a while when it is told to, but for one request in four."""

    def __init__(self) -> None:
        from moto.server import DomainDispatcherApplication, create_backend_app
        from werkzeug.serving import make_server

        self._app, self._until, self._n = DomainDispatcherApplication(create_backend_app), 0.0, 0
        port = free_port()
        self._server: Any = make_server("127.0.0.1", port, self._answer, threaded=True)
        self.url = f"http://127.0.0.1:{port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def throttle(self, for_s: float) -> None:
        """Answer 503 for ``for_s`` seconds."""
        self._until = time.monotonic() + for_s

    def _answer(self, environ: Any, start_response: Callable[..., Any]) -> Any:
        self._n += 1
        if time.monotonic() < self._until and self._n % 4:
            start_response("503 Slow Down", [("Content-Type", "application/xml")])
            return [b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"]
        return self._app(environ, start_response)

    def close(self) -> None:
        """End it."""
        self._server.shutdown()


@pytest.fixture(scope="session")
def throttled_storage() -> Iterator[ThrottledStorage]:
    """An S3 of the whole test run."""
    server = ThrottledStorage()
    yield server
    server.close()


@pytest.fixture
def servers(request: pytest.FixtureRequest) -> Callable[[str], Servers]:
    """Makes the servers of a place."""

    def make(place: str) -> Servers:
        made = Servers()
        if place in ("redis", "redis+rabbitmq"):
            made.redis = request.getfixturevalue("durable_redis")
        if place == "redis+rabbitmq":
            made.rabbit = request.getfixturevalue("rabbitmq_server")
            assert isinstance(made.rabbit, RabbitProcess)
            if made.rabbit.process is None or made.rabbit.process.poll() is not None:
                made.rabbit.start()
            made.relay = request.getfixturevalue("relay")(made.rabbit.port)
            assert isinstance(made.relay, Relay)
        if place == "s3":
            made.throttle = _s3(request)
        return made

    return make


def _s3(request: pytest.FixtureRequest) -> Callable[[float], None]:
    import boto3

    storage = request.getfixturevalue("throttled_storage")
    patch = request.getfixturevalue("monkeypatch")
    for name, value in {
        "AWS_ENDPOINT_URL": storage.url,
        "AWS_ACCESS_KEY_ID": "user",
        "AWS_SECRET_ACCESS_KEY": "planted-secret",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        patch.setenv(name, value)
    boto3.client("s3").create_bucket(Bucket=S3_BUCKET)
    return storage.throttle  # type: ignore[no-any-return]
