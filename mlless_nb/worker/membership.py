"""What one worker knows of the plan: who takes part in which step, when training ends, whether somebody supervises."""

from __future__ import annotations

import math
from collections.abc import Callable

from ..bus.messages import Invocation
from ..exchange import Arrival, Coordinator, Plan
from ..exchange.protocol import START_LEASES
from ..money.budget import Prepaid


class Membership:
    """The plan as one worker knows it; every arrival at a round may bring a newer one.

    Parameters
    ----------
    invocation : Invocation
    log : Coordinator
    prepaid : Prepaid
        Is given the money that arrivals grant.
    clock : callable
        Seconds that pass.

    Attributes
    ----------
    plan : Plan
    """

    def __init__(self, invocation: Invocation, log: Coordinator, prepaid: Prepaid, clock: Callable[[], float]) -> None:
        self._log, self._prepaid, self._clock = log, prepaid, clock
        self._n_workers, self._lease_s = invocation.n_workers, invocation.lease_s
        self.plan = Plan()
        # A supervisor that was never there is missed only once it is late.
        self._missed_from = clock() + START_LEASES * invocation.lease_s

    def active(self, step: int) -> list[int]:
        """Slots that take part in ``step``, ascending."""
        return self.plan.active(step, self._n_workers)

    def leaving(self, step: int) -> list[int]:
        """Slots that take part for the last time in ``step``, ascending."""
        return sorted(slot for slot, first in self.plan.leaves.items() if first == step + 1)

    def is_stopped(self, step: int) -> bool:
        """Whether ``step`` is the last one by an announcement."""
        return self.plan.stop_after is not None and step >= self.plan.stop_after

    def announce_stop(self, status: str, reason: str) -> None:
        """Announce the end of training, unless one is announced already."""
        if self.plan.stop_after is None:
            self.plan = self._log.announce_stop(status, reason)

    def learn(self, arrival: Arrival, step: int) -> None:
        """Take note of what arriving at a round of ``step`` told."""
        self._prepaid.add(arrival.granted_nusd)
        self.plan = arrival.plan or self.plan
        self._miss_supervisor(arrival.has_supervisor, step)

    def _miss_supervisor(self, is_there: bool, step: int) -> None:
        """End the run when the supervisor is gone for a lease, or has not come long after the start."""
        now = self._clock()
        if is_there:
            self._missed_from = math.inf
        elif self._missed_from == math.inf:
            self._missed_from = now
        if now - self._missed_from > self._lease_s:
            self._log.announce_stop("failed", f"the supervisor was lost by step {step}")
