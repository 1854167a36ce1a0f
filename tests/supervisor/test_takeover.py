"""How a supervisor takes over: what it reads, and whom it counts as departed where only the lost one heard of them."""

from __future__ import annotations

import itertools

import pytest
from engine.threads import RATES as JOB_RATES
from engine.threads import Job

from mlless_nb import BSP, PMF, SGD
from mlless_nb.exchange import FROM_THE_START, MemoryCoordinator, MemoryHub, Past, Plan, Restart
from mlless_nb.exchange.step_report import Report, StepEntry
from mlless_nb.money import Rates, price_profile
from mlless_nb.money.budget import Prepaid
from mlless_nb.supervisor.bill import Bill
from mlless_nb.supervisor.step_rows import StepRows
from mlless_nb.supervisor.takeover import departed, whole_log

RATES = Rates(price_profile("ibm-paper"), 2048)
#: Slot 1 takes part up to step 4, slot 2 up to step 8.
PLAN = Plan(1, {1: 5, 2: 9})


def gone(hub: MemoryHub, settled: set[int]) -> list[int]:
    """The slots that have departed from a run of three workers, of which ``settled`` had settled before."""
    return [left.slot for left in departed(MemoryCoordinator(hub), PLAN, {}, settled, RATES, 10.0, 3)]


def made(restart: Restart) -> MemoryHub:
    hub = MemoryHub()
    hub.create(None, 0, Past(restart, PLAN))
    return hub


def test_a_worker_that_leaves_and_never_came_has_not_left() -> None:
    hub = made(FROM_THE_START)
    hub.claims = {0: "10-a", 2: "12-c"}
    assert gone(hub, set()) == []
    hub.claims[1] = "11-b"
    hub.refunded.add((1, 0))
    assert gone(hub, set()) == [1]


def test_those_that_left_before_the_checkpoint_after_which_servers_lost_their_data() -> None:
    hub = made(Restart(1, 4))
    hub.claims = {0: "10-a"}
    assert gone(hub, set()) == [1]
    assert gone(made(Restart(1, 3)), set()) == []


def test_one_that_a_restart_needs_again_may_have_left_without_having_heard_of_it() -> None:
    """It counted as one that had left, so that its peers waited for it until a round's limit ended the run."""
    for step, departed_ones in ((3, []), (4, [1])):
        hub = made(Restart(1, step))
        hub.claims = {0: "10-a", 1: "11-b", 2: "12-c"}
        hub.refunded.add((1, 0))
        assert gone(hub, set()) == gone(hub, {1}) == departed_ones


def test_one_that_had_settled_and_was_invoked_again_has_not_left() -> None:
    hub = made(FROM_THE_START)
    hub.refunded.add((0, 0))
    assert gone(hub, {0}) == [0]
    hub.roll_back(0, [0])
    assert gone(hub, {0}) == []


def test_workers_that_are_quicker_than_the_reader_do_not_keep_a_supervisor_from_taking_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It read on for as long as they went on: nobody heard messages, told of steps or looked at the budget."""
    hub, steps = made(FROM_THE_START), itertools.count(1)
    log = MemoryCoordinator(hub)
    read_steps = log.read_steps

    def read(timeout_s: float) -> list[StepEntry]:
        """A worker completes another step meanwhile."""
        hub.log_step(StepEntry(next(steps), log.now_s(), {0: Report(1.0, 1.0)}))
        return read_steps(timeout_s)

    monkeypatch.setattr(log, "read_steps", read)
    for _ in range(3):
        hub.log_step(StepEntry(next(steps), log.now_s(), {0: Report(1.0, 1.0)}))
    invocation = Job(PMF(rank=2), SGD(0.2), BSP(), 1, 5, "mean", {}).invocation(0)
    bill = Bill(JOB_RATES, 1, Prepaid(JOB_RATES, 10**12, lambda: 0.0, lambda: 0), 0, "", 0)
    entries = list(itertools.islice(whole_log(log, StepRows(invocation, JOB_RATES, bill)), 10))
    assert [entry.step for batch in entries for entry in batch] == [1, 2, 3, 4]
