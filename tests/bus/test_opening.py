"""Addresses of a bus that cannot be opened are told in one line, without their secrets."""

from __future__ import annotations

import socket

import pytest

from mlless_nb.bus import open_bus
from mlless_nb.errors import JobError, ServiceError


@pytest.mark.parametrize("scheme", ["redis", "amqp"])
def test_an_unreachable_server_is_told_without_the_password(scheme: str) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        with pytest.raises(ServiceError, match="does not answer") as caught:
            open_bus(f"{scheme}://user:planted-secret@127.0.0.1:{port}", "job")
    assert "planted-secret" not in str(caught.value)
    assert f"127.0.0.1:{port}" in str(caught.value)


@pytest.mark.parametrize("scheme", ["redis", "amqp"])
def test_a_server_that_accepts_and_keeps_silent_is_told(scheme: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(ServiceError, match="does not answer"):
        open_bus(f"{scheme}://user:secret@127.0.0.1:{silent.getsockname()[1]}", "job")


def test_a_wrong_password_is_told(rabbitmq_url: str, redis_url: str) -> None:
    for url in (
        rabbitmq_url.replace("guest:guest", "guest:planted-secret"),
        redis_url.replace("//", "//:planted-secret@"),
    ):
        with pytest.raises(ServiceError) as caught:
            open_bus(url, "job")
        assert "planted-secret" not in str(caught.value)


def test_a_missing_virtual_host_is_told(rabbitmq_url: str) -> None:
    with pytest.raises(ServiceError, match=r"virtual host|vhost"):
        open_bus(rabbitmq_url.replace("%2F", "nowhere"), "job")


def test_an_unknown_scheme_is_named_with_the_valid_ones() -> None:
    with pytest.raises(JobError, match=r"bus='kafka://x': must be .* memory://, redis://.* amqps://"):
        open_bus("kafka://x", "job")


@pytest.mark.parametrize(
    "url", ["redis://:secret@10.9.8.7:6379", "amqp://a:secret@broker.example", "amqps://broker.example"]
)
def test_a_server_elsewhere_needs_tls_and_a_password(url: str) -> None:
    with pytest.raises(JobError, match="insecure=True") as caught:
        open_bus(url, "job")
    assert "secret@" not in str(caught.value)


def test_a_job_id_must_be_fit_for_a_key() -> None:
    with pytest.raises(ValueError, match="job_id='a b'"):
        open_bus("memory://", "a b")
