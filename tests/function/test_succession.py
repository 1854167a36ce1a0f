"""Functions that wait to take over a slot."""

from __future__ import annotations

import dataclasses
import threading
import uuid

from engine.threads import Job

from mlless_nb import BSP, PMF, SGD
from mlless_nb.bus import open_bus
from mlless_nb.exchange import FROM_THE_START, MemoryCoordinator, MemoryHub
from mlless_nb.exchange.plan import NO_PLAN
from mlless_nb.function.succession import await_slot, unused_by


def test_of_two_that_wait_for_a_slot_one_takes_over_and_the_other_leaves() -> None:
    """It waited for two minutes, billed and not told of, and took over at the next hand-over, old by then."""
    hub = MemoryHub()
    assert MemoryCoordinator(hub, "10-a").claim(0)
    invocation = Job(PMF(rank=2), SGD(0.2), BSP(), 2, 12, "mean", {}).invocation(0)
    invocation = dataclasses.replace(invocation, is_successor=True, lease_s=0.05)
    bus, outcomes = open_bus("memory://", uuid.uuid4().hex), dict[str, bool]()

    def wait(nonce: str) -> None:
        outcomes[nonce] = await_slot(invocation, MemoryCoordinator(hub, nonce), bus, 0.0)

    waiting = [threading.Thread(target=wait, args=(nonce,), daemon=True) for nonce in ("11-b", "12-c")]
    for thread in waiting:
        thread.start()
    n_ready = 0
    while n_ready < len(waiting):
        n_ready += len(heard := bus.receive("supervisor", 30.0))
        assert heard
    with hub.changed:
        hub.hand_over(0, 5)
    for thread in waiting:
        thread.join(30.0)
    assert sorted(outcomes.values()) == [False, True]
    assert outcomes[hub.claims[0]]


def test_each_invocation_for_a_slot_returns_the_money_that_it_does_not_need() -> None:
    """The second return of a slot counted as a repetition of the first, but on Redis."""
    hub = MemoryHub()
    hub.create(1000, 100, FROM_THE_START, NO_PLAN)
    first = Job(PMF(rank=2), SGD(0.2), BSP(), 2, 12, "mean", {}).invocation(0)
    for invocation in (dataclasses.replace(first, invoked_s=invoked_s) for invoked_s in (0.0, 40.5, 80.25)):
        for _ in range(2):
            MemoryCoordinator(hub).refund(10, 0, unused_by(invocation))
    assert hub.reserved == 70
    assert MemoryCoordinator(hub).settled([0]) == set()
