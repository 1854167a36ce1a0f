"""Functions that wait to take over a slot."""

from __future__ import annotations

import dataclasses
import math
import threading
import uuid
from types import SimpleNamespace
from typing import Any, cast

import pytest
from engine.threads import Job

from mlless_nb import BSP, PMF, SGD
from mlless_nb.bus import open_bus
from mlless_nb.bus.messages import Invocation, Message, StartedTwice
from mlless_nb.exchange import NO_PAST, MemoryCoordinator, MemoryHub, Past, Restart
from mlless_nb.exchange.factory import JobCoordinator, open_coordinator
from mlless_nb.exchange.slots import SUPERVISOR, nonce_of
from mlless_nb.exchange.storage import leases, state
from mlless_nb.function import entry, second_start, succession
from mlless_nb.function.succession import await_slot, unused_by
from mlless_nb.money import Rates, price_profile
from mlless_nb.money.budget import Prepaid
from mlless_nb.storage.conditional import MemoryConditional
from mlless_nb.storage.objects import MemoryObjects


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


def test_one_that_comes_after_one_that_was_invoked_later_leaves() -> None:
    """It waited beside that one for most of a lifetime, billed, took over after it, and was too old by then."""
    hub = MemoryHub()
    assert MemoryCoordinator(hub, nonce_of(10, 9.0)).claim(0)
    invocation = Job(PMF(rank=2), SGD(0.2), BSP(), 2, 12, "mean", {}).invocation(0)
    invocation = dataclasses.replace(invocation, is_successor=True, invoked_s=7.0)
    log, bus = MemoryCoordinator(hub, nonce_of(11, 7.0)), open_bus("memory://", uuid.uuid4().hex)
    assert not await_slot(invocation, log, bus, 0.0)
    assert log.alive(["0-successor"]) == [False]
    assert bus.receive("supervisor", 0.0) == []


@pytest.mark.parametrize("store", ["memory", "storage"])
def test_one_that_waits_as_the_run_ends_leaves_and_leaves_nothing(store: str) -> None:
    """It took the slot of a run that was cleaned up, waited for a minute for its data, and left what it had claimed."""
    hub, objects = MemoryHub(), MemoryObjects()

    def opened(nonce: str) -> Any:
        if store == "memory":
            return MemoryCoordinator(hub, nonce)
        return open_coordinator([], "run", "generation", nonce, objects=objects)

    first = opened("10-a")
    first.create(cap_nusd=None, reserved_nusd=0)
    assert first.claim(0)
    invocation = Job(PMF(rank=2), SGD(0.2), BSP(), 2, 12, "mean", {}).invocation(0)
    invocation = dataclasses.replace(invocation, is_successor=True, lease_s=15.0)
    bus, outcome = open_bus("memory://", uuid.uuid4().hex), list[bool]()
    waiting = threading.Thread(
        target=lambda: outcome.append(await_slot(invocation, opened("11-b"), bus, 0.0)), daemon=True
    )
    waiting.start()
    assert bus.receive("supervisor", 30.0)
    first.delete()
    waiting.join(30.0)
    assert outcome == [False]
    assert not hub.claims
    assert [key for key in objects.blobs if "claims" in key] == []


class _Losing(MemoryCoordinator):
    """Servers that lose the run's data, and get it again, before the first claim of who waits."""

    def claim(self, slot: int) -> bool:
        if not self._hub.identity.endswith("again"):
            self._hub.lose()
            self._hub.create(None, 0, Past(Restart(1, 5)))
            self._hub.identity = "again"
        return super().claim(slot)


def test_one_that_waits_as_the_data_is_lost_and_restored_does_not_take_the_slot() -> None:
    """It won the slot from the function that had it, whose whole life nobody billed then."""
    hub = MemoryHub()
    assert MemoryCoordinator(hub, "10-a").claim(0)
    invocation = Job(PMF(rank=2), SGD(0.2), BSP(), 2, 12, "mean", {}).invocation(0)
    invocation = dataclasses.replace(invocation, is_successor=True, lease_s=15.0)
    assert not await_slot(invocation, _Losing(hub, "11-b"), open_bus("memory://", uuid.uuid4().hex), 0.0)
    assert not hub.claims


def test_each_invocation_for_a_slot_returns_the_money_that_it_does_not_need() -> None:
    """The second return of a slot counted as a repetition of the first, but on Redis."""
    hub = MemoryHub()
    hub.create(1000, 100, NO_PAST)
    first = Job(PMF(rank=2), SGD(0.2), BSP(), 2, 12, "mean", {}).invocation(0)
    for invocation in (dataclasses.replace(first, invoked_s=invoked_s) for invoked_s in (0.0, 40.5, 80.25)):
        for _ in range(2):
            MemoryCoordinator(hub).refund(10, 0, unused_by(invocation))
    assert hub.reserved == 70
    assert MemoryCoordinator(hub).settled([0]) == set()


@pytest.mark.parametrize(
    ("is_local", "longest_s", "most_gets", "most_puts"), [(True, 0.02, math.inf, math.inf), (False, 0.3, 300, 20)]
)
def test_a_successor_asks_for_its_slot_by_few_requests_where_they_are_billed(
    is_local: bool, longest_s: float, most_gets: float, most_puts: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a cloud it asked by a write every 20 ms; where requests cost nothing it still does so."""
    monkeypatch.setattr(MemoryConditional, "has_local_objects", is_local)
    objects, now_s, pauses_s = MemoryObjects(), 0.0, [0.0]

    def opened(nonce: str) -> JobCoordinator:
        return open_coordinator([], "run", "generation", nonce, objects=objects)

    def sleep(pause_s: float) -> None:
        nonlocal now_s
        now_s += pause_s
        pauses_s.append(pause_s)
        if now_s >= 60.0:
            holder.hand_over(0, 5)

    for module in (succession, leases, state):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now_s, sleep=sleep))
    holder = opened("10-a")
    holder.create(cap_nusd=None, reserved_nusd=0)
    assert holder.claim(0)
    gets, puts = objects.gets, objects.puts
    invocation = Job(PMF(rank=2), SGD(0.2), BSP(), 2, 12, "mean", {}).invocation(0)
    invocation = dataclasses.replace(invocation, is_successor=True, lease_s=15.0)
    assert await_slot(invocation, opened("11-b"), open_bus("memory://", uuid.uuid4().hex), 0.0)
    assert now_s < 60.0 + 2 * longest_s
    assert max(pauses_s) == longest_s
    assert objects.gets - gets <= most_gets
    assert objects.puts - puts <= most_puts


def test_who_has_a_slot_looks_whether_it_still_has_it_without_a_write() -> None:
    """The supervisor does so five times a second: without a Redis that cost more than its function."""
    objects = MemoryObjects()
    log = open_coordinator([], "run", "generation", "10-a", objects=objects)
    log.create(cap_nusd=None, reserved_nusd=0)
    assert log.claim(-1)
    puts = objects.puts
    assert all(log.claim(-1) for _ in range(10))
    assert objects.puts == puts
    log.release(-1)
    other = open_coordinator([], "run", "generation", "11-b", objects=objects)
    assert other.claim(-1)
    assert not log.claim(-1)
    other.release(-1)
    assert log.claim(-1)


@pytest.mark.parametrize("is_successor", [False, True])
def test_what_was_granted_for_a_slow_start_is_no_successors(is_successor: bool) -> None:
    """It counted it as its own, and returned at its end money that was not reserved for it."""
    hub, rates = MemoryHub(), Rates(price_profile("aws-lambda-x86"), 1769)
    granted = rates.function_nusd(3.0)
    hub.create(10**9, granted, NO_PAST)
    log: Any = MemoryCoordinator(hub, "10-a")
    assert log.reserve_start({0: 500})
    first = Job(PMF(rank=2), SGD(0.2), BSP(), 2, 12, "mean", {}).invocation(0)
    prepaid = Prepaid(rates, granted, lambda: 0.5, lambda: 0)
    assert entry._begin(dataclasses.replace(first, is_successor=is_successor), log, prepaid, MemoryObjects(), "10-a")
    assert prepaid.granted_nusd == granted + (0 if is_successor else 500)


@pytest.mark.parametrize(("is_supervisor", "elapsed_s"), [(True, 2.0), (False, 2.0), (True, 5.0), (False, 5.0)])
@pytest.mark.parametrize("cap_s", [None, 4.6, 9.0])
def test_a_function_that_comes_in_vain_leaves_what_it_has_spent_itself_in_the_books(
    is_supervisor: bool, elapsed_s: float, cap_s: float | None
) -> None:
    """What a late one had spent beyond its grant was in no bill, and a supervisor kept money for servers of another."""
    hub, rates, slot = MemoryHub(), Rates(price_profile("aws-lambda-x86"), 1769), SUPERVISOR if is_supervisor else 0
    granted = rates.function_nusd(3.0) + (rates.servers_nusd(1.0) if is_supervisor else 0)
    cap, spent = None if cap_s is None else rates.function_nusd(cap_s), rates.function_nusd(elapsed_s)
    hub.create(cap, granted, NO_PAST)
    assert MemoryCoordinator(hub, "10-a").claim(slot)
    first = Job(PMF(rank=2), SGD(0.2), BSP(), 2, 12, "mean", {}).invocation(0)
    late = dataclasses.replace(first, role="supervisor" if is_supervisor else "worker", slot=slot, invoked_s=4.0)
    prepaid = Prepaid(rates, granted, lambda: elapsed_s, lambda: 0, with_servers=is_supervisor)
    log: Any = MemoryCoordinator(hub, "11-b")
    assert not entry._begin(late, log, prepaid, MemoryObjects(), "11-b")
    assert hub.reserved == spent  # above the cap, too: nobody else gets what it has spent
    assert (log.reserve(1) == 0) == (cap is not None and spent >= cap)


@pytest.mark.parametrize(
    ("is_supervisor", "invoked_s", "is_successor"),
    [(True, 0.0, False), (False, 0.0, False), (False, 4.0, False), (True, 4.0, True), (False, 4.0, True)],
)
def test_what_a_function_has_spent_that_a_platform_starts_twice_is_booked_and_told(
    is_supervisor: bool, invoked_s: float, is_successor: bool
) -> None:
    """It was in no book, so that the cap could be passed by it, and in no bill."""
    hub, rates, slot = MemoryHub(), Rates(price_profile("aws-lambda-x86"), 1769), SUPERVISOR if is_supervisor else 0
    granted, spent = rates.function_nusd(5.0), rates.function_nusd(2.0)
    hub.create(granted, granted, NO_PAST)
    first = Job(PMF(rank=2), SGD(0.2), BSP(), 2, 12, "mean", {}).invocation(0)
    role = "supervisor" if is_supervisor else "worker"
    invocation = dataclasses.replace(
        first, role=role, slot=slot, invoked_s=invoked_s, is_successor=is_successor, job_id=uuid.uuid4().hex
    )
    begun = []
    for pid in (10, 11, 12):
        nonce = nonce_of(pid, invoked_s)
        log: Any = MemoryCoordinator(hub, nonce)
        prepaid = Prepaid(rates, granted, lambda: 2.0, lambda: 0, with_servers=is_supervisor)
        begun.append(entry._begin(invocation, log, prepaid, MemoryObjects(), nonce))
    assert begun == [True, False, False]
    assert hub.reserved == granted + 2 * spent
    heard = open_bus("memory://", invocation.job_id).receive("supervisor", 10.0)
    assert [Message.decode(body) for body in heard] == [StartedTwice(slot, spent)] * 2


@pytest.mark.parametrize("invoked_s", [0.0, 4.0])
def test_what_one_that_is_started_twice_has_spent_is_booked_before_it_is_told_and_after_that_the_rest(
    invoked_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed while it connected to the bus, a function was in no book, and the cap could be passed by its life."""
    hub, rates, spans_s = MemoryHub(), Rates(price_profile("aws-lambda-x86"), 1769), [2.0]
    hub.create(None, 0, NO_PAST)
    first = Job(PMF(rank=2), SGD(0.2), BSP(), 2, 12, "mean", {}).invocation(0)
    invocation = dataclasses.replace(first, invoked_s=invoked_s, job_id=uuid.uuid4().hex, redis_urls=["redis://here"])
    booked = []

    def opened(*given: Any, **more: Any) -> Any:
        booked.append(hub.reserved)
        spans_s.append(3.5)
        return open_bus("memory://", invocation.job_id)

    monkeypatch.setattr(second_start, "open_bus", opened)
    for pid in (10, 11):
        nonce = nonce_of(pid, invoked_s)
        log: Any = MemoryCoordinator(hub, nonce)
        prepaid = Prepaid(rates, 10**9, lambda: spans_s[-1], lambda: 0)
        assert entry._begin(invocation, log, prepaid, MemoryObjects(), nonce) == (pid == 10)
    assert booked == [rates.function_nusd(2.0)]
    assert hub.reserved == rates.function_nusd(3.5)
    (heard,) = open_bus("memory://", invocation.job_id).receive("supervisor", 10.0)
    assert Message.decode(heard) == StartedTwice(0, rates.function_nusd(3.5))


def began(hub: MemoryHub, invocation: Invocation, pid: int, invoked_s: float = 0.0) -> bool:
    """Whether a function of ``invocation`` begins after two seconds."""
    rates, log = Rates(price_profile("aws-lambda-x86"), 1769), MemoryCoordinator(hub, nonce_of(pid, invoked_s))
    prepaid = Prepaid(rates, 10**9, lambda: 2.0, lambda: 0)
    return entry._begin(invocation, cast(Any, log), prepaid, MemoryObjects(), nonce_of(pid, invoked_s))


@pytest.mark.parametrize(("holder_s", "is_told"), [(4.0, False), (0.0, True)])
def test_one_whose_slot_another_invocation_has_is_not_told_as_started_twice(
    holder_s: float, is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It came so late that it was replaced; unless the claim of its place is lost, with all data of the run."""
    hub = MemoryHub()
    hub.create(None, 0, NO_PAST)
    assert MemoryCoordinator(hub, nonce_of(10, holder_s)).claim(0)
    first = Job(PMF(rank=2), SGD(0.2), BSP(), 2, 12, "mean", {}).invocation(0)
    first = dataclasses.replace(first, job_id=uuid.uuid4().hex)
    monkeypatch.setattr(second_start, "open_bus", lambda *_, **__: open_bus("memory://", first.job_id))
    assert not began(hub, first, 11)
    assert hub.reserved == Rates(price_profile("aws-lambda-x86"), 1769).function_nusd(2.0)
    assert len(open_bus("memory://", first.job_id).receive("supervisor", 0.0)) == is_told


@pytest.mark.parametrize("slot", [-1, 0])
@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_second_start_does_not_take_the_slot_of_the_first_one_that_was_lost(
    slot: int, is_replaced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It spent the money of the dead once more, which the cap did not know of, and was not on the bill."""
    hub = MemoryHub()
    hub.create(None, 0, NO_PAST)
    first = Job(PMF(rank=2), SGD(0.2), BSP(), 2, 12, "mean", {}).invocation(0)
    first = dataclasses.replace(first, slot=slot, job_id=uuid.uuid4().hex, redis_urls=["redis://here"])
    monkeypatch.setattr(second_start, "open_bus", lambda *_, **__: open_bus("memory://", first.job_id))
    assert began(hub, first, 10)
    MemoryCoordinator(hub, "driver").release(slot)
    replacement = dataclasses.replace(first, invoked_s=3.0)
    assert not is_replaced or began(hub, replacement, 12, 3.0)
    assert not began(hub, first, 11)
    assert is_replaced or began(hub, replacement, 12, 3.0)
    spent = Rates(price_profile("aws-lambda-x86"), 1769).function_nusd(2.0)
    assert hub.reserved == spent
    (heard,) = open_bus("memory://", first.job_id).receive("supervisor", 10.0)
    assert Message.decode(heard) == StartedTwice(slot, spent)
