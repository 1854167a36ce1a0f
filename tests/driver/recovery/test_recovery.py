"""Which functions count as lost, and how often a run is restarted in vain."""

from __future__ import annotations

import dataclasses
import time
from types import SimpleNamespace
from typing import Any

import pytest
from engine.threads import Job

from mlless_nb import BSP, PMF, SGD
from mlless_nb.bus.messages import Aged, LetGo, Message, Replaced, Trouble
from mlless_nb.driver.backends.exits import Exits
from mlless_nb.driver.recovery import leaving_workers
from mlless_nb.driver.recovery.fault_handling import FaultHandler
from mlless_nb.driver.recovery.recovery import Recovery
from mlless_nb.driver.recovery.unrecoverable import Unrecoverable
from mlless_nb.exchange import FROM_THE_START, SUPERVISOR, MemoryCoordinator, MemoryHub, Plan
from mlless_nb.exchange.plan import NO_PLAN
from mlless_nb.exchange.standing import Past, Standing
from mlless_nb.money import Rates, price_profile
from mlless_nb.money.start import StartingMoney
from mlless_nb.storage.objects import MemoryObjects
from mlless_nb.storage.run_objects import Checkpoint, model_key, part_key
from mlless_nb.storage.worker_state import WorkerState
from mlless_nb.telemetry.live import Telemetry

RATES = Rates(price_profile("aws-lambda-x86"), 1769)


def recovery(log: dict[str, Any], launcher: dict[str, Any]) -> Recovery:
    """The recovery of a run of three workers that stands on these."""
    always = {
        "identities": list,
        "restart": lambda: FROM_THE_START,
        "standing": lambda slots: Standing(NO_PLAN, log["at_work"](slots), 7_000, FROM_THE_START, []),
    }
    where = SimpleNamespace(newest="M000", exits=Exits(list), **launcher)
    stands_on: Any = SimpleNamespace(log=SimpleNamespace(**{**always, **log}), launcher=where, dues=None)
    facts = {"n_workers": 3, "job_id": "run", "lease_s": 15.0, "launched_at_s": 0.0}
    invocations: Any = [SimpleNamespace(slot=slot, **facts) for slot in (-1, 0, 1, 2)]
    return Recovery(stands_on, invocations, StartingMoney(RATES, 3, True), RATES, Telemetry(), 0.0, lambda _: None)


@pytest.mark.parametrize("successor", [None, "14-e"])
def test_a_function_that_died_at_work_is_lost_and_one_that_settled_its_money_is_not(successor: str | None) -> None:
    at_work = {-1: "10-a", 0: "11-b", 1: "12-c", 2: "13-d"}
    gone = {12, 13}

    def has_died(pid: int) -> bool:
        at_work.pop(2, None)  # it settles its money, and goes, between the two looks
        if successor is not None:  # which takes its slot
            at_work[2] = successor
        return pid in gone

    def listed(slots: list[int]) -> dict[int, str]:
        return {slot: at_work[slot] for slot in slots if slot in at_work}

    looking = recovery({"at_work": listed}, {"has_died": has_died, "objects": MemoryObjects()})
    assert looking.look() == [1]
    gone.add(10)
    assert looking.look() == [-1, 1]


def test_a_run_that_gets_no_further_is_given_up() -> None:
    restarts: list[int] = []
    reserved: list[int] = []

    def roll_back(known: Any, step: int, replaced: list[int], n_workers: int, origin: int) -> Any:
        restarts.append(step)
        return known._replace(number=known.number + 1)

    log = {
        "at_work": lambda slots: {},
        "settled": lambda slots: set(),
        "reserve": lambda nusd, *_: reserved.append(nusd) or nusd,
        "roll_back": roll_back,
    }
    trying = recovery(log, {"objects": (objects := MemoryObjects())})
    trying._services.bus = SimpleNamespace(send=lambda *_: None)  # type: ignore[assignment]
    for _ in range(3):
        trying.replace([], "a reason")
    with pytest.raises(Unrecoverable, match="a reason; after 3 restarts the run is no further than step 0"):
        trying.replace([], "a reason")
    assert restarts == [0, 0, 0]
    # What the driver itself asks of the storage is paid for.
    assert sum(reserved) == trying.payments.requests_nusd >= RATES.requests_nusd(objects.gets, objects.puts) > 0


def test_money_that_was_reserved_while_no_supervisor_told_of_it_counts_after_servers_lost_their_data() -> None:
    created: list[dict[str, Any]] = []
    log = {
        "at_work": lambda slots: {},
        "delete": lambda: None,
        "create": lambda **what: created.append(what),
        "renew": lambda *_: None,
    }
    for has_looked in (False, True):
        restoring = recovery(log, {"has_died": lambda pid: False, "objects": MemoryObjects()})
        restoring._services.bus = SimpleNamespace(send=lambda *_: None)  # type: ignore[assignment]
        restoring._services.keep_user = lambda: None  # type: ignore[method-assign]
        restoring._of_slot[-1].lease_s = 1.0  # type: ignore[misc]
        if has_looked:
            restoring.look()
        restoring.restore([], "a reason")
    before, after = (what["reserved_nusd"] for what in created)
    assert after == before + 7_000


@pytest.mark.parametrize("can_pay", [True, False])
def test_a_duplicate_is_paid_first_and_a_refusal_is_told_and_changes_nothing(can_pay: bool) -> None:
    reserved: list[int] = []

    def reserve(nusd: int, *_: Any) -> int:
        reserved.append(nusd)
        return nusd * can_pay

    invoked: list[Any] = []
    sent: list[tuple[str, bytes]] = []
    trying = recovery({"reserve": reserve, "at_work": lambda _: {}}, {"objects": MemoryObjects()})
    trying._services.bus = SimpleNamespace(send=lambda *what: sent.append(what))  # type: ignore[assignment]
    trying._of_slot[1] = Job(PMF(rank=2), SGD(0.2), BSP(), 3, 5, "mean", {}).invocation(1)
    trying._successors._invoke = invoked.extend
    trying.succeed(Aged([1], "worker 1 is 5.0 times as slow as the median at step 90"))
    (event,) = trying._telemetry.state.events
    assert len(reserved) == 1
    assert [topic for topic, _ in sent] == ["supervisor"] * can_pay  # it bills the duplicate from now on
    if not can_pay:
        assert invoked == []
        assert event.text.endswith("at step 90; the budget does not pay for a duplicate")
        return
    assert event.text.endswith("at step 90; a duplicate was invoked")
    (duplicate,) = invoked
    assert (duplicate.slot, duplicate.is_successor, duplicate.granted_nusd) == (1, True, reserved[0])


def test_the_time_without_a_supervisor_is_paid_once_and_is_not_for_the_new_one_to_return(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of several that were lost before one was heard reserved all of it again."""
    reserved: list[int] = []
    invoked: list[Any] = []
    now = [30.0]
    log = {"reserve": lambda nusd, *_: reserved.append(nusd) or nusd, "bury": lambda _: None, "release": lambda _: None}
    trying = recovery(log, {"objects": MemoryObjects()})
    monkeypatch.setattr(Recovery, "_run_s", property(lambda self: now[0]))
    trying._services.bus = SimpleNamespace(send=lambda *_: None)  # type: ignore[assignment]
    trying._of_slot[-1] = Job(PMF(rank=2), SGD(0.2), BSP(), 3, 5, "mean", {}).invocation(1)
    trying._invoke = invoked.extend
    each = StartingMoney(RATES, 3, True).supervisor_nusd
    trying._telemetry.update(time_s=10.0)  # when the lost one was heard last
    for now[0], heard_s, gap_s in ((30.0, 10.0, 20.0), (120.0, 10.0, 90.0), (125.0, 10.0, 5.0), (150.0, 130.0, 20.0)):
        trying._telemetry.update(time_s=heard_s)
        trying.replace_supervisor()
        assert reserved.pop() - each == RATES.function_nusd(gap_s) + RATES.servers_nusd(gap_s)
    assert [one.granted_nusd for one in invoked] == [each] * 4


def test_what_a_new_supervisor_took_counts_though_the_servers_lose_their_data_before_the_next_look() -> None:
    created: list[dict[str, Any]] = []
    log = {
        "reserve": lambda nusd, *_: nusd,
        "bury": lambda _: None,
        "release": lambda _: None,
        "at_work": lambda slots: {},
        "delete": lambda: None,
        "create": lambda **what: created.append(what),
        "renew": lambda *_: None,
    }
    trying = recovery(log, {"has_died": lambda pid: False, "objects": MemoryObjects()})
    trying._services.bus = SimpleNamespace(send=lambda *_: None)  # type: ignore[assignment]
    trying._services.keep_user = lambda: None  # type: ignore[method-assign]
    trying._of_slot[-1] = Job(PMF(rank=2), SGD(0.2), BSP(), 3, 5, "mean", {}).invocation(1)
    trying._invoke = lambda _: None
    trying.look()
    trying.replace_supervisor()
    trying.restore([], "a reason")
    assert created[0]["reserved_nusd"] >= 7_000 + StartingMoney(RATES, 3, True).supervisor_nusd


def of_three(
    *, is_local: bool, is_silent: bool = False, silence_s: float = 0.0
) -> tuple[FaultHandler, MemoryHub, list[int]]:
    """The handler of a run of three workers, its data, and the slots of functions that were invoked."""
    hub, invoked = MemoryHub(), list[int]()
    log: Any = MemoryCoordinator(hub, "driver")
    log.create(cap_nusd=1000, reserved_nusd=900, past=Past(plan=Plan(leaves={2: 9})))
    seen = {"has_ended": lambda: False, "has_died": lambda _: False, "has_job_ended": lambda _: False}
    known = {"objects": MemoryObjects(), "newest": "M000", "exits": Exits(list)}
    launcher = SimpleNamespace(is_local=is_local, **known, **seen)
    bus = SimpleNamespace(send=lambda *_: None)
    services: Any = SimpleNamespace(
        log=log, launcher=launcher, bus=bus, keep_user=lambda: None, redis_urls=["redis://here"], dues=None
    )
    worker = Job(PMF(rank=2), SGD(0.2), BSP(), 3, 5, "mean", {}).invocation(1)
    invocations = [dataclasses.replace(worker, slot=slot, job_id="run", lease_s=15.0) for slot in (SUPERVISOR, 0, 1, 2)]
    telemetry = Telemetry()
    telemetry.update(budget_usd=1e-6, committed_usd=0.9e-6)

    def invoke(those: list[Any]) -> None:
        invoked.extend(one.slot for one in those)

    doing = Recovery(
        services, invocations, StartingMoney(RATES, 3, is_local), RATES, telemetry, time.monotonic(), invoke
    )
    contact: Any = SimpleNamespace(
        is_silent=lambda: is_silent, n_unheard=1, unpaid_s=silence_s, is_starting=False, listen=lambda: None
    )
    return FaultHandler(services, doing, contact, telemetry, 3, 0), hub, invoked


def test_a_supervisor_that_is_out_of_sight_and_that_the_budget_does_not_replace_ends_the_run() -> None:
    handler, hub, invoked = of_three(is_local=False, is_silent=True)
    over = handler.handle(is_due=True)
    assert over is not None
    assert (over.status, invoked, hub.aborted) == ("capped", [], ("capped", over.reason))


def heard(handler: FaultHandler) -> list[tuple[int, int | None, list[int]]]:
    """Number, step and slots of the restarts that are announced from now on; with no step those that are let go."""
    said: list[tuple[int, int | None, list[int]]] = []

    def send(topic: str, body: bytes) -> None:
        message = Message.decode(body)
        assert isinstance(message, (Replaced, LetGo))
        said.append((message.number, getattr(message, "step", None), message.slots))

    handler._services.bus.send = send  # type: ignore[method-assign]
    return said


def begin(hub: MemoryHub, *slots: int) -> list[MemoryCoordinator]:
    """Functions that claim their ``slots``."""
    logs = [MemoryCoordinator(hub, f"{10 + slot}-a") for slot in slots]
    assert all(log.claim(slot) for log, slot in zip(logs, slots, strict=True))
    return logs


def test_a_worker_that_came_and_left_between_two_looks_is_invoked_again_where_it_is_needed() -> None:
    handler, hub, invoked = of_three(is_local=True)
    hub.cap, said = None, heard(handler)
    assert handler.handle(is_due=True) is None
    *_, leaver = begin(hub, SUPERVISOR, 0, 1, 2)
    leaver.refund(0, 2)
    handler.troubles.append(Trouble(0, 0, "worker 0 was lost", is_lost=True))
    assert handler.handle(is_due=True) is None
    assert (invoked, said) == ([0, 2], [(1, 0, [0, 2])])  # from the start, where slot 2 takes part


def test_a_worker_that_leaves_while_a_restart_is_decided_is_invoked_again() -> None:
    handler, hub, invoked = of_three(is_local=True)
    hub.cap, said = None, heard(handler)
    *_, leaver = begin(hub, SUPERVISOR, 0, 1, 2)
    roll_back = hub.roll_back

    def late(*given: Any) -> None:
        leaver.refund(0, 2)
        roll_back(*given)

    hub.roll_back = late  # type: ignore[method-assign]
    handler.troubles.append(Trouble(0, 0, "worker 0 was lost", is_lost=True))
    assert handler.handle(is_due=True) is None
    assert (invoked, said) == ([0, 2], [(1, 0, [0]), (2, 0, [2])])


def test_a_worker_that_ends_after_a_restart_that_it_has_heard_of_is_not_needed_again() -> None:
    """On a busy machine the rest of a short run was over before the driver looked: all went back once more."""
    handler, hub, invoked = of_three(is_local=True)
    hub.cap, said = None, heard(handler)
    _, _, other, _ = begin(hub, SUPERVISOR, 0, 1, 2)
    send = handler._services.bus.send

    def late(topic: str, body: bytes) -> None:
        other.refund(0, 1)  # worker 0 is about to store the model
        send(topic, body)

    handler._services.bus.send = late  # type: ignore[method-assign]
    handler.troubles.append(Trouble(0, 0, "worker 0 was lost", is_lost=True))
    assert handler.handle(is_due=True) is None
    assert (invoked, said) == ([0], [(1, 0, [0])])


@pytest.mark.parametrize("is_done", [False, True])
def test_a_worker_that_has_left_is_invoked_again_after_lost_data_unless_the_model_is_there(is_done: bool) -> None:
    handler, hub, invoked = of_three(is_local=False)
    handler._telemetry.update(budget_usd=None)
    hub.cap, said = None, heard(handler)
    *_, leaver = begin(hub, SUPERVISOR, 0, 1, 2)
    assert handler.handle(is_due=True) is None
    leaver.refund(0, 2)
    assert handler.handle(is_due=True) is None
    if is_done:
        handler._services.launcher.objects.put(model_key("run"), b"a model")
    hub.lose()
    assert handler.handle(is_due=True) is None
    again = [] if is_done else [2]
    # The supervisor does not wait for the start of one whose work is done.
    assert (invoked, said) == (again, [(1, 0, again), *([(1, None, [2])] if is_done else [])])


def test_lost_workers_of_whom_the_servers_know_nothing_any_more_have_not_ended() -> None:
    handler, hub, invoked = of_three(is_local=False)
    handler._telemetry.update(budget_usd=None)
    begin(hub, SUPERVISOR, 0, 1, 2)
    assert handler.handle(is_due=True) is None
    hub.lose()
    assert handler.handle(is_due=True) is None
    assert invoked == []  # they are given time to come back
    handler.troubles.append(Trouble(0, 1, "worker 0 did not start", is_lost=True))
    assert handler.handle(is_due=True) is None
    assert invoked == [0, 1, 2]  # nobody has come back


def test_a_leaver_that_is_lost_after_the_others_have_stored_what_it_gave_costs_no_restart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leaving_workers, "DECIDED_S", 0.0)
    handler, hub, invoked = of_three(is_local=True)
    hub.cap, objects = None, handler._services.launcher.objects
    for slot in (0, 1):
        objects.put(part_key("run", Checkpoint(0, 9), slot), WorkerState(9, slot, [0, 1], {}).encode())
    begin(hub, SUPERVISOR, 0, 1, 2)
    said = heard(handler)
    assert handler.handle(is_due=True) is None
    handler._services.launcher.has_died = lambda pid: pid == 12  # type: ignore[method-assign, assignment]
    assert handler.handle(is_due=True) is None
    assert (invoked, hub.restart.number, said) == ([], 0, [(0, None, [2])])
    assert handler._recovery.look() == []


@pytest.mark.parametrize("is_over", [True, False])
def test_the_supervisor_is_told_whom_it_need_not_wait_for_though_they_have_settled_themselves(is_over: bool) -> None:
    """It waited for four leases and ended the run: the last message of such a worker may be lost."""
    handler, hub, invoked = of_three(is_local=False)
    hub.cap, objects = None, handler._services.launcher.objects
    for slot in (0, 1):
        objects.put(part_key("run", Checkpoint(0, 9), slot), WorkerState(9, slot, [0, 1], {}).encode())
    *others, leaver = begin(hub, SUPERVISOR, 0, 1, 2)
    leaver.refund(0, 2)
    if is_over:
        for slot, log in enumerate(others[1:]):
            log.refund(0, slot)
    said = heard(handler)
    handler.troubles.append(Trouble(2, 0, "worker 2 was lost", is_lost=True))
    assert handler.handle(is_due=True) is None
    assert (invoked, hub.restart.number, said) == ([], 0, [(0, None, [2])])


@pytest.mark.parametrize(("step", "number", "goes_back"), [(8, 0, True), (9, 0, False), (9, 1, True)])
def test_a_leaver_that_is_lost_goes_back_only_if_its_peers_may_wait_for_it(
    step: int, number: int, goes_back: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no checkpoint: all went back to the start, though it had handed over all that it had."""
    handler, hub, invoked = of_three(is_local=True)
    hub.cap = None
    for _ in range(number):
        hub.roll_back(0, [])
        handler._recovery.restart = hub.restart
    begin(hub, SUPERVISOR, 0, 1, 2)
    handler._telemetry.update(step=8)
    assert handler.handle(is_due=True) is None
    handler._services.launcher.has_died = lambda pid: pid == 12  # type: ignore[method-assign, assignment]
    assert handler.handle(is_due=True) is None
    assert invoked == []  # the newest steps may not have been heard of
    handler._telemetry.update(step=step)
    monkeypatch.setattr(leaving_workers, "DECIDED_S", 0.0)
    assert handler.handle(is_due=True) is None
    assert (2 in invoked, hub.restart.number - number) == (goes_back, goes_back)
    if not goes_back:
        assert handler._recovery.look() == []
