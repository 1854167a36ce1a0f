"""A function waits for a control bus that is away when it starts."""

from __future__ import annotations

import dataclasses
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from engine.threads import OBJECTS, Job
from servers import RedisProcess

from mlless_nb import BSP, PMF, SGD, ServiceError
from mlless_nb.bus.messages import Invocation
from mlless_nb.function import patience
from mlless_nb.function.patience import open_patiently


def invocation_of(server: RedisProcess) -> Invocation:
    """That of a worker whose control bus is on ``server``."""
    plain = Job(PMF(rank=2), SGD(0.2), BSP(), 2, 5, "mean", {}).invocation(0)
    return dataclasses.replace(plain, bus_url=server.url)


def test_a_bus_that_comes_back_is_waited_for(own_redis: RedisProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    own_redis.kill()
    failed = threading.Event()
    lost = patience.Patience.lost

    def note(self: patience.Patience, shown_url: str, error: BaseException) -> float:
        failed.set()
        return lost(self, shown_url, error)

    monkeypatch.setattr(patience.Patience, "lost", note)
    with ThreadPoolExecutor(1) as beside:
        opening = beside.submit(open_patiently, invocation_of(own_redis), OBJECTS)
        assert failed.wait(60.0)
        own_redis.start()  # in this thread: it dies with the one that started it
        bus = opening.result(60.0)
    bus.send("driver", b"here")
    assert bus.receive("driver", 10.0) == [b"here"]
    bus.close(delete=True)


def test_a_bus_that_stays_away_is_told(own_redis: RedisProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    own_redis.kill()
    monkeypatch.setattr(patience, "FUNCTION_PATIENCE_S", 0.3)
    with pytest.raises(ServiceError, match="has been away"):
        open_patiently(invocation_of(own_redis), OBJECTS)
