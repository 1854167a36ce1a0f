"""Workers that are lost while they leave: whether they had handed over all that they had, so that nobody goes back."""

from __future__ import annotations

import time
from collections.abc import Callable

from ..exchange import Plan, Restart
from ..telemetry.live import Telemetry

#: Seconds until one that may have handed all over counts as lost: by then its peers have gone on, or wait for it.
DECIDED_S = 1.0


class Leavers:
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
        others = [slot for slot in lost if slot not in done]
        return [slot for slot in others if now - self._missed_at.setdefault(slot, now) >= DECIDED_S]
