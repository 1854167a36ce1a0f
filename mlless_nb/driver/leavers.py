"""Workers that are lost while they leave: whether they had handed over all that they had, so that nobody goes back."""

from __future__ import annotations

import time

from ..exchange import Coordinator, Plan, Restart
from ..exchange.slots import role_of
from ..telemetry.live import Telemetry

#: Seconds until one that may have handed all over counts as lost: by then its peers have gone on, or wait for it.
DECIDED_S = 1.0


class Leavers:
    """The workers of one run that were lost while they left.

    Parameters
    ----------
    log : Coordinator
    telemetry : Telemetry
        Says which steps are complete.
    staleness : int
        Steps that a worker may be ahead of the newest peers' updates that it has applied.
    """

    def __init__(self, log: Coordinator, telemetry: Telemetry, staleness: int) -> None:
        self._log, self._telemetry, self._staleness = log, telemetry, staleness
        self._missed_at: dict[int, float] = {}  # by slot, monotonic clock

    def without(self, lost: list[int], plan: Plan, restart: Restart) -> list[int]:
        """The slots that are ``lost`` and are not to be waited for; those that had handed all over are settled.

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
        missed: list[int] = []
        for slot in lost:
            if plan.has_handed_over(slot, step, self._staleness):
                self._log.refund(0, slot)  # it could not do so itself any more
                self._log.bury(role_of(slot))
            elif now - self._missed_at.setdefault(slot, now) >= DECIDED_S:
                missed.append(slot)
        return missed
