"""What a driver without a Redis asks of the storage: no more than was reserved, however long its functions take."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mlless_nb.bus.storage import StorageBus
from mlless_nb.driver.running import attending
from mlless_nb.driver.running.attending import Attending
from mlless_nb.driver.servers.request_dues import GETS, PUTS, RequestDues
from mlless_nb.exchange.factory import open_coordinator
from mlless_nb.money import Rates, price_profile
from mlless_nb.storage.conditional import MemoryConditional
from mlless_nb.storage.objects import MemoryObjects

RATES = Rates(price_profile("aws-lambda-x86"), 1769, n_redis=0)
LAST = 10, 5
#: Looks of a driver whose functions take long to end on a busy machine.
LOOKS = 50


@pytest.mark.parametrize("more", [0, 3])
def test_a_driver_makes_no_more_requests_than_were_reserved(monkeypatch: pytest.MonkeyPatch, more: int) -> None:
    """Once its budget refused more, it looked at the storage as often as before, and asked for money each time."""
    now_s, objects = [1000.0], MemoryObjects()

    def sleep(seconds: float) -> None:
        now_s[0] += seconds

    monkeypatch.setattr(attending, "time", SimpleNamespace(monotonic=lambda: now_s[0], sleep=sleep))
    bus, log = StorageBus(MemoryConditional(objects), "runs/a/"), open_coordinator([], "a", "g", objects=objects)
    first = RATES.requests_nusd(LAST[0] + GETS, LAST[1] + PUTS)
    cap = first + more * RATES.requests_nusd(GETS, PUTS)
    log.create(cap_nusd=cap, reserved_nusd=first)
    objects.gets = objects.puts = 0
    services: Any = SimpleNamespace(log=log, bus=bus, keep_user=lambda: None)
    services.dues = dues = RequestDues(objects, log, RATES, first, LAST)

    def receive(timeout_s: float) -> None:
        for _ in range(10 if timeout_s else 1):
            assert not bus.receive("driver", 0.0)
        now_s[0] += timeout_s

    commands: Any = SimpleNamespace(resend=lambda now: None)
    one = Attending(services, commands, receive, lambda: False)
    for _ in range(LOOKS):
        one.attend()
    assert dues.are_refused
    assert log.read_plan().stop_status == "capped"
    assert dues.made_nusd + RATES.requests_nusd(*LAST) <= log.money()[1] <= cap
