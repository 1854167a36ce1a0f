"""What a supervisor makes of workers whose functions are gone: lost, needed again, or done."""

from __future__ import annotations

import dataclasses
import uuid
from typing import Any

import pytest
from engine.threads import RATES, Job

from mlless_nb import BSP, PMF, SGD, SSP
from mlless_nb.bus import open_bus
from mlless_nb.bus.messages import Invocation, Left, LetGo, Message, Ready, Replaced, Trouble
from mlless_nb.exchange import NO_PAST, MemoryCoordinator, MemoryHub, Past, Plan, Restart
from mlless_nb.money.budget import Prepaid
from mlless_nb.storage.objects import MemoryObjects
from mlless_nb.storage.run_objects import model_key
from mlless_nb.supervisor.ending import UNHEARD
from mlless_nb.supervisor.loop import Supervisor


def supervisor(
    hub: MemoryHub,
    sync: Any = BSP(),  # noqa: B008 - frozen
    invoked_s: float = 0.0,
) -> tuple[Supervisor, Any, MemoryObjects]:
    """The supervisor of a run of two workers, which has heard that both have started, its bus and the storage.

    ``invoked_s`` is not 0 if it takes over.
    """
    worker = Job(PMF(rank=2), SGD(0.2), sync, 2, 12, "mean", {}).invocation(0)
    invocation: Invocation = dataclasses.replace(worker, role="supervisor", slot=-1, invoked_s=invoked_s)
    objects, bus, log = MemoryObjects(), open_bus("memory://", uuid.uuid4().hex), MemoryCoordinator(hub, "9-s")
    log.claim(-1)
    prepaid = Prepaid(RATES, 10**12, lambda: 1.0, lambda: 0, with_servers=True)
    made = Supervisor(invocation, log, bus, objects, prepaid, clock=lambda: 0.0)
    made._workers.started |= {0, 1}
    return made, bus, objects


def left(slot: int, step: int) -> Left:
    return Left(slot, step, 1000, 0, 0.0, 0.0, "left", f"left after step {step}")


@pytest.mark.parametrize(("is_stored", "leaves", "is_done"), [(False, 13, False), (True, 13, True), (False, 12, True)])
def test_a_worker_that_is_lost_after_its_work_is_done_has_ended(is_stored: bool, leaves: int, is_done: bool) -> None:
    hub = MemoryHub()
    hub.create(None, 0, Past(plan=Plan(1, {0: leaves})))
    made, bus, objects = supervisor(hub)
    if is_stored:
        objects.put(model_key("job"), b"a model")
    running = made._bill.n_running
    made._incoming.miss(0, "worker 0 was lost at step 13", 20.0, 12)
    assert made._workers.ended.keys() == ({0} if is_done else set())
    assert made._bill.n_running == running - is_done
    told = [Message.decode(body) for body in bus.receive("driver", 0.0)]
    assert told == ([] if is_done else [Trouble(0, 0, "worker 0 was lost at step 13", is_lost=True)])
    assert all(one.reason == UNHEARD for one in made._workers.ended.values())


@pytest.mark.parametrize(("step", "is_done"), [(12, False), (14, False), (15, True)])
def test_under_bounded_staleness_a_leavers_peers_go_on_without_its_residual_for_some_steps(
    step: int, is_done: bool
) -> None:
    """It counted as done at once; then they waited for the residual until the round's limit ended the run."""
    hub = MemoryHub()
    hub.create(None, 0, Past(plan=Plan(1, {0: 12})))
    made, bus, _ = supervisor(hub, SSP(3))
    made._incoming.miss(0, "worker 0 was lost", 20.0, step)
    assert (0 in made._workers.ended, len(bus.receive("driver", 0.0))) == (is_done, not is_done)


@pytest.mark.parametrize(("step", "is_stored", "again"), [(1, False, True), (4, False, False), (1, True, False)])
def test_a_worker_that_left_is_watched_again_if_servers_have_lost_the_steps_since(
    step: int, is_stored: bool, again: bool
) -> None:
    hub = MemoryHub()
    hub.create(None, 0, Past(Restart(1, step), Plan(1, {1: 5})))
    made, _, objects = supervisor(hub)
    if is_stored:
        objects.put(model_key("job"), b"a model")
    made._incoming.take(left(1, 4))
    made._bus.send("supervisor", Replaced(1, step, [], 5.0, 5.0, step).encode())
    assert made._incoming.receive(0.0)
    assert (1 not in made._workers.ended) == again


def test_the_last_rows_are_sent_though_the_servers_have_lost_the_budget() -> None:
    hub = MemoryHub()
    hub.create(None, 0, NO_PAST)
    made, bus, _ = supervisor(hub)
    made._outgoing._update.rows.append([12.0])
    hub.lose()
    made._final_message()
    update, _ = [Message.decode(body) for body in bus.receive("driver", 0.0)]
    assert update.rows == [[12.0]]  # type: ignore[attr-defined]


def test_a_worker_that_leaves_without_having_heard_of_a_restart_that_needs_it_is_missed() -> None:
    """The driver had looked who has settled its money, and the worker did so afterwards."""
    for base, is_heard_first, needed in ((1, False, True), (1, True, True), (4, False, False)):
        hub = MemoryHub()
        hub.create(None, 0, Past(Restart(1, base), Plan(1, {1: 5})))
        made, bus, _ = supervisor(hub)
        if is_heard_first:
            made._incoming.take(left(1, 4))
        made._bus.send("supervisor", Replaced(1, base, [0], 5.0, 5.0).encode())
        assert made._incoming.receive(0.0)
        made._incoming.take(left(1, 4))
        assert (1 not in made._workers.ended) == needed
        made._incoming.miss(1, "worker 1 was lost at step 5", 20.0, 7)  # step 7 was complete before the restart
        told = [Message.decode(body) for body in bus.receive("driver", 0.0)]
        assert told == ([Trouble(1, 1, "worker 1 was lost at step 5", is_lost=True)] if needed else [])
        again = dataclasses.replace(left(1, 4), number=1)
        made._incoming.take(again)
        assert 1 in made._workers.ended


@pytest.mark.parametrize("has_settled", [True, False])
@pytest.mark.parametrize("number", [None, 0, 1])
def test_a_lost_worker_is_let_go_once_the_driver_says_so_and_only_then(number: int | None, has_settled: bool) -> None:
    """One whose money was settled may have left without having heard of a restart, or its last message is lost."""
    hub, now = MemoryHub(), [0.0]
    hub.create(None, 0, Past(Restart(1, 1), Plan(1, {1: 5})))
    made, bus, _ = supervisor(hub, SSP(3))
    log, incoming, workers = made._log, made._incoming, made._workers
    workers._clock = lambda: now[0]
    for role in ("driver", "0"):
        log.renew(role, 1000.0)
    incoming.restart, incoming.base = 1, 1
    if has_settled:
        log.refund(0, 1)
    for now[0] in (0.0, 1000.0):
        incoming.miss_lost(now[0], 7)
    assert [Message.decode(body) for body in bus.receive("driver", 0.0)] == [
        Trouble(1, 1, "worker 1 was lost at step 8", is_lost=True)
    ]
    assert 1 not in workers.ended
    running = made._bill.n_running
    if number is not None:
        bus.send("supervisor", LetGo(number, [1], 30.0).encode())
        assert incoming.receive(0.0)
    now[0] = 1e6  # the driver has had its time
    incoming.miss_lost(now[0], 7)
    is_let_go = number == 1
    assert (1 in workers.ended, log.aborted() is None, made._bill.n_running < running) == (is_let_go,) * 3
    assert bus.receive("driver", 0.0) == []
    if is_let_go:
        before = workers.ended[1]
        bus.send("supervisor", LetGo(1, [1], 40.0).encode())
        assert incoming.receive(0.0)
        assert workers.ended[1] is before


def test_a_worker_that_was_let_go_is_watched_again_if_a_later_restart_needs_it() -> None:
    hub = MemoryHub()
    hub.create(None, 0, Past(Restart(1, 4), Plan(1, {1: 5})))
    made, bus, _ = supervisor(hub)
    made._incoming.restart, made._incoming.base = 1, 4
    for news in (LetGo(1, [1], 30.0), Replaced(2, 1, [0], 40.0, 40.0)):
        assert (1 in made._workers.ended) == (news != LetGo(1, [1], 30.0))
        bus.send("supervisor", news.encode())
        assert made._incoming.receive(0.0)
    assert 1 not in made._workers.ended


def test_a_restart_that_is_announced_twice_counts_once() -> None:
    """The driver announces it again if the bus has not answered."""
    hub = MemoryHub()
    hub.create(None, 0, Past(Restart(1, 4)))
    made, bus, _ = supervisor(hub)
    spent: list[int] = []
    for _ in range(2):
        bus.send("supervisor", Replaced(1, 4, [0], 20.0, 20.0).encode())
        made._incoming.receive(0.0)
        spent.append(made._bill.spent(25.0))
    assert made._incoming.replacements == {0: 1}
    assert spent[0] == spent[1]


def test_a_successor_whose_lease_was_gone_at_the_hand_over_gets_the_slot_later() -> None:
    """The function before it went on, and nobody told it to hand over again: it lived up to its lifetime."""
    hub = MemoryHub()
    hub.create(None, 0, NO_PAST)
    made, bus, _ = supervisor(hub)
    hub.latest = 7
    made._log.renew("0", 1e6)
    bus.send("supervisor", Ready(0, 20.0, 20.0).encode())
    made._incoming.receive(0.0)
    assert hub.plan.hand_overs == {0: 8}
    made._successors.watch_waiting(21.0, 8)  # it has no lease, for less than a half of one
    hub.latest = 10
    made._log.renew("0-successor", 1e6)
    for step, hand_over in ((8, 8), (9, 11), (10, 11)):
        made._successors.watch_waiting(22.0, step)
        assert hub.plan.hand_overs == {0: hand_over}
    assert made._bill.waiting == [0]
    made._log.bury("0-successor")
    lease_s = made._job.lease_s
    made._successors.watch_waiting(30.0, 10)
    assert made._bill.waiting == [0]
    made._successors.watch_waiting(30.1 + lease_s / 2, 10)
    assert made._bill.waiting == []
