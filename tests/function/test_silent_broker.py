"""Functions that nothing pays for any more do not wait for a broker that confirms nothing."""

from __future__ import annotations

import dataclasses
import threading
import uuid
from typing import Any

import pytest
from engine.threads import Job

from mlless_nb import BSP, PMF, SGD
from mlless_nb.bus import open_bus
from mlless_nb.exchange import NO_PAST, MemoryCoordinator, MemoryHub
from mlless_nb.exchange.slots import nonce_of
from mlless_nb.function import second_start
from mlless_nb.money import Rates, price_profile
from mlless_nb.money.budget import Prepaid
from mlless_nb.storage.objects import MemoryObjects

#: Far more than such a function waits for, and far less than the five minutes of one that is paid.
ENOUGH_S = 60.0


@pytest.mark.long
def test_one_that_is_started_twice_ends_though_the_broker_confirms_nothing(
    relay: Any, rabbitmq_url: str, rabbitmq_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = relay(rabbitmq_server.port)
    url = rabbitmq_url.replace(str(rabbitmq_server.port), str(network.port))
    hub, rates = MemoryHub(), Rates(price_profile("aws-lambda-x86"), 1769)
    hub.create(None, 0, NO_PAST)
    assert MemoryCoordinator(hub, nonce_of(10, 4.0)).claim(0)
    first = Job(PMF(rank=2), SGD(0.2), BSP(), 2, 12, "mean", {}).invocation(0)
    invocation = dataclasses.replace(first, invoked_s=4.0, job_id=uuid.uuid4().hex, bus_url=url)

    opened = threading.Event()

    def falls_silent(*where: Any, **options: Any) -> Any:
        bus = open_bus(*where, **options)
        network.go_silent()
        opened.set()
        return bus

    monkeypatch.setattr(second_start, "open_bus", falls_silent)
    nonce = nonce_of(11, 4.0)
    log: Any = MemoryCoordinator(hub, nonce)
    prepaid = Prepaid(rates, 10**9, lambda: 2.0, lambda: 0)
    booking = threading.Thread(
        target=second_start.book, args=(invocation, log, prepaid, MemoryObjects(), nonce), daemon=True
    )
    booking.start()
    booking.join(ENOUGH_S)
    assert opened.is_set()
    assert not booking.is_alive()
    network.come_back()
    assert hub.reserved == rates.function_nusd(2.0)
