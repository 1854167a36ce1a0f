"""Rounds over TLS, with a password, and over RESP 3."""

from __future__ import annotations

import shutil
import subprocess
import threading
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis
from exchange.test_coordinator import ALL, copied, part
from servers import PrivateRedisProcess, certificate_of, missing

from mlless_nb.exchange import RedisCoordinator
from mlless_nb.money.request import BudgetRequest

PASSWORD = "a password"


@pytest.fixture
def tls_url(tmp_path: Path) -> Iterator[str]:
    """URL of a Redis of the test's own, over TLS."""
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    if program is None or shutil.which("openssl") is None:
        missing("redis-server or openssl", "apt-get install redis-server openssl")
    assert program is not None
    # One that knows the setting complains of its value.
    said = subprocess.run([program, "--tls-port", "none"], capture_output=True, text=True, check=False)
    if "Bad directive" in said.stdout + said.stderr:
        missing("a redis-server with TLS", "apt-get install redis-server")
    certificate = certificate_of(tmp_path)
    server = PrivateRedisProcess(program, tmp_path, PASSWORD, certificate)
    server.start()
    yield f"{server.url.removesuffix('0')}1?ssl_ca_certs={certificate.authority}"
    server.kill()


def exchange_some(url: str) -> None:
    """Three workers, three addressed rounds with large and small frames, and one that ends in a plain one."""
    job_id = uuid.uuid4().hex
    driver = RedisCoordinator([url], job_id, "generation")
    driver.create(cap_nusd=10_000, reserved_nusd=0)  # so much that nobody is given less than it wants
    logs = [RedisCoordinator([url], job_id, "generation", f"nonce {slot}") for slot in ALL]
    read: dict[int, list[list[bytes]]] = {slot: [] for slot in ALL}
    granted: list[int] = []

    def work(slot: int) -> None:
        assert logs[slot].claim(slot)
        for step, n_bytes in enumerate((600_000, 10, 40_000), 1):
            parts = dict.fromkeys(ALL, b"%d" % slot * n_bytes)
            asking = BudgetRequest(100, 1) if step == 2 else BudgetRequest()
            done = logs[slot].exchange(replace(part(step, slot), parts=parts, wanted=asking), lambda: None)
            read[slot].append(copied(done.frames))
            granted.append(done.arrival.granted_nusd)
        read[slot].append(copied(logs[slot].exchange(part(4, slot), lambda: None).frames))

    threads = [threading.Thread(target=work, args=(slot,)) for slot in ALL]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert driver.money() == (10_000, 300)
    assert sorted(granted) == [0] * 6 + [100] * 3
    for slot in ALL:
        peers = [peer for peer in ALL if peer != slot]
        expected = [[b"%d" % peer * n_bytes for peer in peers] for n_bytes in (600_000, 10, 40_000)]
        assert read[slot] == [*expected, [b"4 of %d" % peer for peer in peers]]
    assert [entry.step for entry in driver.read_steps(1.0)] == [1, 2, 3, 4]
    assert driver.delete() > 0
    for log in [driver, *logs]:
        log.close()


@pytest.mark.redis
def test_rounds_over_tls(tls_url: str) -> None:
    exchange_some(tls_url)


@pytest.mark.parametrize("protocol", [2, 3])
def test_rounds_in_both_versions_of_the_protocol(redis_url: str, protocol: int) -> None:
    exchange_some(f"{redis_url}?protocol={protocol}")


def test_a_job_whose_driver_is_killed_as_it_creates_it_expires(redis_url: str) -> None:
    """The expiry was a command of its own: a driver killed before it left a key for ever."""
    job_id = uuid.uuid4().hex
    log = RedisCoordinator([redis_url], job_id, "1", "driver")
    sends, n_sent = redis.connection.Connection.send_packed_command, 0

    def dies(self: Any, command: Any, **options: Any) -> None:
        nonlocal n_sent
        n_sent += 1
        if n_sent > 1:
            raise KeyboardInterrupt
        sends(self, command, **options)

    assert log.now_s()  # it is connected
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(redis.connection.Connection, "send_packed_command", dies)
        with pytest.raises(KeyboardInterrupt):
            log.create(cap_nusd=None, reserved_nusd=0)
    with redis.Redis.from_url(redis_url) as client:
        (key,) = client.keys(f"mlless:{{{job_id}}}:*")
        assert client.ttl(key) > 0
    log.close()
    other = RedisCoordinator([redis_url], job_id, "1", "driver")
    other.delete()
    other.close()
