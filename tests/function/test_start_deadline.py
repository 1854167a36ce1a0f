"""A function whose servers are silent while it starts ends before it has spent more than its grant."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import threading

import pytest
import redis
from engine.threads import Job
from servers import RedisProcess

from mlless_nb import BSP, PMF, SGD
from mlless_nb.bus.messages import Invocation
from mlless_nb.exchange.redis.client import is_silent
from mlless_nb.function import start_deadline
from mlless_nb.function.start_deadline import USED_UP, StartDeadline
from mlless_nb.money import Rates, price_profile
from mlless_nb.money.meter import NUSD

RATES = Rates(price_profile("aws-lambda-x86"), 1024, 1, False)
#: Runs the function of a payload, as a cloud's runtime does.
FUNCTION = """
import sys
from lithops import Storage
from mlless_nb.function.entry import run_function
run_function(sys.stdin.read(), Storage(config={"lithops": {"backend": "localhost", "storage": "localhost"}}))
"""


def invocation_of(server: RedisProcess, seconds: float, **changes: object) -> Invocation:
    """That of a worker on a cloud, with a budget, whose grant pays for so many seconds."""
    plain = Job(PMF(rank=2), SGD(0.2), BSP(), 2, 5, "mean", {}).invocation(0)
    granted_nusd = round(seconds * RATES.function_usd_s * NUSD) + 1000
    cloud = {
        "redis_urls": [server.url],
        "bus_url": server.url,
        "has_cap": True,
        "n_cores": 0,
        "prices": "aws-lambda-x86",
    }
    return dataclasses.replace(plain, granted_nusd=granted_nusd, **{**cloud, **changes})  # type: ignore[arg-type]


def paused(server: RedisProcess) -> RedisProcess:
    assert server.process is not None
    os.kill(server.process.pid, signal.SIGSTOP)
    return server


def test_a_silent_server_is_not_waited_for_beyond_the_grant(own_redis: RedisProcess) -> None:
    ended, statuses = threading.Event(), list[int]()

    def end(status: int) -> None:
        statuses.append(status)
        ended.set()

    StartDeadline(invocation_of(paused(own_redis), 1.0), RATES, 0.0, end=end)
    assert ended.wait(60.0)
    assert statuses == [USED_UP]


def test_a_server_that_answers_is_left_to_the_function(
    own_redis: RedisProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = threading.Semaphore(0)

    def note(redis_url: str, key: str, within_s: float) -> bool:
        del within_s
        answer = is_silent(redis_url, key, 60.0)
        asked.release()
        return answer

    monkeypatch.setattr(start_deadline, "is_silent", note)
    statuses = list[int]()
    deadline = StartDeadline(invocation_of(own_redis, 0.6), RATES, 0.0, end=statuses.append)
    for _ in range(3):
        assert asked.acquire(timeout=60.0)
    deadline.lift()
    assert statuses == []


@pytest.mark.parametrize("changes", [{"has_cap": False}, {"n_cores": 2}, {"redis_urls": []}])
def test_only_a_budget_on_a_cloud_needs_it(own_redis: RedisProcess, changes: dict[str, object]) -> None:
    StartDeadline(invocation_of(own_redis, 0.1, **changes), RATES, 0.0, end=lambda status: None)
    assert "mlless-start" not in [thread.name for thread in threading.enumerate()]


@pytest.mark.parametrize("password", ["", "wrong:word@"])
def test_a_server_that_refuses_is_not_silent(own_redis: RedisProcess, password: str) -> None:
    assert not is_silent(own_redis.url.replace("redis://", f"redis://{password}"), "none", 60.0)


def test_a_server_that_is_gone_is_silent(own_redis: RedisProcess) -> None:
    own_redis.kill()
    assert is_silent(own_redis.url, "none", 1.0)


def test_a_server_that_holds_back_what_changes_its_data_is_silent(own_redis: RedisProcess) -> None:
    with contextlib.closing(redis.Redis.from_url(own_redis.url)) as client:
        client.execute_command("CLIENT", "PAUSE", 600_000, "WRITE")
        assert client.ping()
        assert is_silent(own_redis.url, "none", 1.0)


def test_a_connection_that_hangs_is_not_waited_for_either(
    own_redis: RedisProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_deadline, "MOST_S", 0.5)
    ended = threading.Event()
    StartDeadline(invocation_of(own_redis, 0.6), RATES, 0.0, end=lambda status: ended.set())
    assert ended.wait(60.0)


@pytest.mark.parametrize(("billed_s", "is_exact", "is_asked"), [(90.0, True, True), (90.0, False, False)])
def test_a_start_that_took_longer_than_its_grant_gets_no_other_one(
    own_redis: RedisProcess, monkeypatch: pytest.MonkeyPatch, billed_s: float, is_exact: bool, is_asked: bool
) -> None:
    """Where no handler has noted the call, it is the runtime's age, which says nothing."""
    asked = threading.Event()
    monkeypatch.setattr(start_deadline, "is_silent", lambda *_: asked.set())
    deadline = StartDeadline(
        invocation_of(own_redis, 60.0), RATES, billed_s, is_exact=is_exact, end=lambda status: None
    )
    assert asked.wait(60.0 if is_asked else 1.0) == is_asked
    deadline.lift()


def test_what_workers_keep_for_the_store_is_not_taken_off_a_supervisor(
    own_redis: RedisProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its deadline had passed before it began."""
    asked = threading.Event()
    monkeypatch.setattr(start_deadline, "is_silent", lambda *_: asked.set())
    own = invocation_of(own_redis, 600.0, role="supervisor", slot=-1)
    deadline = StartDeadline(dataclasses.replace(own, store_end_nusd=own.granted_nusd), RATES, 0.0)
    assert not asked.wait(1.0)
    deadline.lift()


def test_the_function_itself_ends(own_redis: RedisProcess) -> None:
    payload = invocation_of(paused(own_redis), 3.0).encode().decode()
    done = subprocess.run(
        [sys.executable, "-c", FUNCTION], input=payload, text=True, capture_output=True, timeout=120, check=False
    )
    assert done.returncode == USED_UP, done.stderr[-2000:]
