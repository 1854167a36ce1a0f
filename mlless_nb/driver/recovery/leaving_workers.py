"""Workers that are lost while they leave: whether they had handed over all that they had, so that nobody goes back."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from ...exchange import Plan, Restart
from ...telemetry.live import COLUMNS, Telemetry

#: Seconds until one that may have handed all over counts as lost, beside the steps that would tell: by then its peers
#: have gone on, or wait for it.
DECIDED_S = 1.0
#: Such a step may take so many times as long as recent ones; together they are waited for at most so many seconds.
SLACK, MOST_S = 3.0, 20.0
#: Rows that tell how long a step takes.
RECENT_ROWS = 8


class LeavingWorkers:
    """The workers of one run that were lost while they left.

    Parameters
    ----------
    let_go : callable
        Takes the slots of those that had handed all over.
    telemetry : Telemetry
        Says which steps are complete.
    staleness : int
        Steps that a worker may be ahead of the newest peers' updates that it has applied.
    """

    def __init__(self, let_go: Callable[[list[int]], None], telemetry: Telemetry, staleness: int) -> None:
        self._let_go, self._telemetry, self._staleness = let_go, telemetry, staleness
        self._missed_at: dict[int, float] = {}  # by slot, monotonic clock

    def without(self, lost: list[int], plan: Plan, restart: Restart) -> list[int]:
        """The slots that are ``lost`` and are not to be waited for; those that had handed all over are let go.

        If others are lost, too, all go back in any case.

        Parameters
        ----------
        lost : list of int
        plan : Plan
        restart : Restart
            The newest one.
        """
        if not all(slot in plan.leaves for slot in lost):
            return lost
        step, now = int(self._telemetry.state.step), time.monotonic()
        # A step may have been complete before the newest restart, to one with these workers.
        step = min(step, restart.step + 1) if restart.number else step
        if done := [slot for slot in lost if plan.has_handed_over(slot, step, self._staleness)]:
            self._let_go(done)
        missed = {slot: now - self._missed_at.setdefault(slot, now) for slot in lost if slot not in done}
        if restart.number:  # no further step can tell
            return [slot for slot, missed_s in missed.items() if missed_s >= DECIDED_S]
        return [slot for slot, missed_s in missed.items() if missed_s >= self._patience_s(plan.leaves[slot], step)]

    def _patience_s(self, first: int, step: int) -> float:
        """How long one may be missed before it counts as lost.

        Parameters
        ----------
        first : int
            The first step without it.
        step : int
            The newest complete one.
        """
        # A worker hands over after its last step. In lockstep that is complete then; else its peers may be behind.
        behind = self._staleness + 1 if self._staleness else 0
        if step < first - 1 - behind:
            return DECIDED_S
        n_steps = first + self._staleness - step
        return DECIDED_S + min(SLACK * n_steps * self._step_s, MOST_S)

    @property
    def _step_s(self) -> float:
        """Seconds that a step takes: the median of the newest ones, or the mean of all if these are too few."""
        rows = self._telemetry.rows_since(max(self._telemetry.n_rows - RECENT_ROWS, 0))
        if len(rows) < 2:
            return self._telemetry.state.time_s / max(self._telemetry.state.step, 1)
        return float(np.median(np.diff(rows[:, COLUMNS.index("time_s")])))
