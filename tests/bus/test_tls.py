"""TLS with real servers: their certificate and host name are verified, and nothing goes to another server."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine.jobs import digest, finish, job
from servers import PrivateRedisProcess, certificate_of

from mlless_nb import JobError, ServiceError
from mlless_nb.bus import open_bus
from mlless_nb.bus.urls import check_redis, require_private

PASSWORD = "planted-password"


@pytest.fixture(scope="module")
def tls_redis(redis_program: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateRedisProcess]:
    """A Redis behind TLS and a password."""
    folder = tmp_path_factory.mktemp("tls-redis")
    server = PrivateRedisProcess(redis_program, folder, PASSWORD, certificate_of(folder))
    server.start()
    yield server
    server.kill()


def test_redis_is_reached_by_who_trusts_its_authority(
    tls_redis: PrivateRedisProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ServiceError, match=r"(?i)does not answer: .*certificate verify failed") as caught:
        check_redis(tls_redis.url)
    assert PASSWORD not in str(caught.value)
    assert tls_redis.certificate is not None
    monkeypatch.setenv("SSL_CERT_FILE", str(tls_redis.certificate.authority))
    assert check_redis(tls_redis.url).used_bytes > 0
    bus = open_bus(tls_redis.url, uuid.uuid4().hex)
    bus.send("driver", b"hello")
    assert bus.receive("driver", 5.0) == [b"hello"]
    bus.close(delete=True)


def test_a_certificate_of_another_host_is_refused(
    redis_program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = certificate_of(tmp_path, "elsewhere.example")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.authority))
    server = PrivateRedisProcess(redis_program, tmp_path, PASSWORD, certificate)
    server.start()
    try:
        with pytest.raises(ServiceError, match=r"(?i)(hostname mismatch|ip address mismatch)"):
            check_redis(server.url)
    finally:
        server.kill()


def test_rabbitmq_is_reached_by_who_trusts_its_authority(
    tls_rabbitmq: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, authority = tls_rabbitmq
    with pytest.raises(ServiceError, match=r"(?i)certificate verify failed"):
        open_bus(url, uuid.uuid4().hex)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    with pytest.raises(ServiceError, match=r"(?i)(hostname mismatch|not valid for)"):
        open_bus(url.replace("127.0.0.1", "localhost"), uuid.uuid4().hex)
    bus = open_bus(url, uuid.uuid4().hex)
    bus.send("driver", b"hello")
    assert bus.receive("driver", 10.0) == [b"hello"]
    bus.close(delete=True)


def test_a_run_over_tls_has_the_bits_of_one_on_the_private_server(
    tls_redis: PrivateRedisProcess, tls_rabbitmq: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus, authority = tls_rabbitmq
    assert tls_redis.certificate is not None
    trusted = tmp_path / "trusted.pem"
    trusted.write_text(authority.read_text() + tls_redis.certificate.authority.read_text())
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    fields = {"pattern": "broadcast"}
    private = finish(job(**fields))
    run = finish(job(**fields, redis=tls_redis.url, bus=bus))
    assert run.status == "finished", run.reason
    assert digest(run) == digest(private)


@pytest.mark.parametrize(
    "url",
    [
        "rediss://me:pw@10.9.8.7?ssl_cert_reqs=none",
        "rediss://me:pw@10.9.8.7?ssl_cert_reqs=optional",
        "rediss://me:pw@10.9.8.7?ssl_check_hostname=false",
        "amqps://me:pw@10.9.8.7?ssl_options={'protocol':2}",
        "amqps://me:pw@10.9.8.7?ssl_options=nonsense(",
    ],
)
def test_options_that_turn_verification_off_are_refused(url: str) -> None:
    field = "redis" if url.startswith("redis") else "bus"
    with pytest.raises(JobError, match=r"certificate and host name are verified.*insecure=True"):
        require_private(field, url, insecure=False)
    require_private(field, url, insecure=True)
    require_private(field, url.replace("10.9.8.7", "127.0.0.1"), insecure=False)


@pytest.mark.parametrize(
    "url",
    [
        "rediss://me:pw@10.9.8.7",
        "rediss://me:pw@10.9.8.7?ssl_ca_certs=/etc/ca.pem&ssl_cert_reqs=required&ssl_check_hostname=true",
        "amqps://me:pw@10.9.8.7?ssl_options={'ca_certs':'/etc/ca.pem'}",
    ],
)
def test_verified_servers_elsewhere_are_accepted(url: str) -> None:
    require_private("redis", url, insecure=False)
