"""What is told of lost functions."""

from __future__ import annotations

import pytest
from driver.recovery.test_recovery import begin, of_three, recovery
from engine.threads import Job

from mlless_nb import BSP, PMF, SGD
from mlless_nb.bus.messages import Aged, Trouble
from mlless_nb.exchange import SUPERVISOR
from mlless_nb.storage.objects import MemoryObjects


@pytest.mark.parametrize(
    ("slots", "told"),
    [([0], "Worker 0 did not start; worker 0 replaced"), ([0, 1], "Workers 0, 1 were lost at step 1; workers 0, 1")],
)
def test_what_became_of_a_lost_worker_is_told(slots: list[int], told: str) -> None:
    handler, hub, _ = of_three(is_local=False)
    hub.cap = None
    begin(hub, SUPERVISOR, 0, 1, 2)
    handler.troubles += [Trouble(slot, 0, f"worker {slot} did not start", is_lost=True) for slot in slots]
    assert handler.handle(is_due=True) is None
    assert handler._telemetry.state.events[-1].text.startswith(told)


def test_that_the_budget_does_not_pay_for_the_successor_of_an_old_function_is_told_once() -> None:
    """The run ended at its functions' lifetime, and nobody said why; then it was said of a successor to "not start"."""
    trying = recovery({"reserve": lambda *_: 0, "at_work": lambda _: {}}, {"objects": MemoryObjects()})
    trying._of_slot[1] = Job(PMF(rank=2), SGD(0.2), BSP(), 3, 5, "mean", {}).invocation(1)
    trying.succeed(Aged([1]))
    trying.succeed(Aged([1], "The successor of worker 1 did not start", is_late=True))
    (event,) = trying._telemetry.state.events
    assert event.text.startswith("The budget does not pay for a successor of worker 1: a function's lifetime is ")
