"""What is told of lost functions."""

from __future__ import annotations

import pytest
from driver.recovery.test_recovery import begin, of_three

from mlless_nb.bus.messages import Trouble
from mlless_nb.exchange import SUPERVISOR


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
