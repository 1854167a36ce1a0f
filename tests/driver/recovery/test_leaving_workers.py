"""For how long a worker that was lost while it left may have handed all over."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from mlless_nb.driver.recovery import leaving_workers
from mlless_nb.driver.recovery.leaving_workers import LeavingWorkers
from mlless_nb.exchange import Plan, Restart
from mlless_nb.telemetry.live import COLUMNS, Telemetry

#: Worker 2 takes its last step, 8, and hands over.
PLAN = Plan(leaves={2: 9})


class Missing:
    """A run whose steps take four seconds each and whose worker 2 is lost after ``step`` and ``number`` restarts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, step: int, number: int = 0, staleness: int = 0) -> None:
        self._now, self._restart = [100.0], Restart(number, 7)
        monkeypatch.setattr(leaving_workers, "time", SimpleNamespace(monotonic=lambda: self._now[0]))
        self.telemetry, self.let_go = Telemetry(), list[list[int]]()
        rows = [[4.0 * at if name == "time_s" else at for name in COLUMNS] for at in range(1, step)]
        self.telemetry.append(np.array(rows))
        self.telemetry.update(step=step)
        self._leaving = LeavingWorkers(self.let_go.append, self.telemetry, staleness)
        assert self.lost_after(0.0) == []

    def lost_after(self, more_s: float) -> list[int]:
        self._now[0] += more_s
        return self._leaving.without([2], PLAN, self._restart)


@pytest.mark.parametrize("staleness", [0, 2])
def test_it_is_let_go_once_the_step_is_complete_that_tells_so(staleness: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All went back to a checkpoint after a second, though a step took four."""
    run = Missing(monkeypatch, 8, staleness=staleness)
    assert run.lost_after(12.9) == []
    run.telemetry.update(step=8 + staleness)
    assert (run.lost_after(0.0), run.let_go) == ([], [])
    run.telemetry.update(step=9 + staleness)
    assert (run.lost_after(100.0), run.let_go) == ([], [[2]])


@pytest.mark.parametrize(
    ("step", "number", "staleness", "after_s"),
    [
        (8, 0, 0, 13.0),  # its peers have taken its last step, and do not come further
        (8, 0, 2, 21.0),  # at most
        (5, 0, 2, 21.0),  # its peers may be behind
        (7, 0, 0, 1.0),  # it has not taken its last step
        (4, 0, 2, 1.0),
        (8, 1, 0, 1.0),  # the step may have been complete before a restart: it tells nothing
    ],
)
def test_it_is_lost_when_that_step_should_have_been_complete(
    step: int, number: int, staleness: int, after_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Missing(monkeypatch, step, number, staleness)
    assert run.lost_after(after_s - 0.1) == []
    assert (run.lost_after(0.1), run.let_go) == ([2], [])
