"""One worker's copy of the plan: the active slots of each step, when training ends, and the supervisor's lease."""

from __future__ import annotations

import math
from collections.abc import Callable

from ..bus.messages import Invocation
from ..exchange import Arrival, Coordinator, Plan
from ..exchange.protocol import START_LEASES
from ..money.budget import Prepaid

#: The driver has so many leases to replace a lost supervisor.
MISSED_LEASES = 4


class Membership:
    """The plan as one worker knows it. Every arrival at a round may return a newer one.

    Parameters
    ----------
    invocation : Invocation
    log : Coordinator
    prepaid : Prepaid
        Receives the money that arrivals grant.
    clock : callable
        Wall time, seconds.

    Attributes
    ----------
    plan : Plan
    """

    def __init__(self, invocation: Invocation, log: Coordinator, prepaid: Prepaid, clock: Callable[[], float]) -> None:
        self._log, self._prepaid, self._clock = log, prepaid, clock
        self._n_workers, self._lease_s = invocation.n_workers, invocation.lease_s
        self.plan = Plan()
        # The driver replaces a supervisor that it has not heard only START_LEASES leases after it was invoked.
        self._asked_at = clock()
        self._missed_from = self._patient_until = self._asked_at + START_LEASES * invocation.lease_s

    def settle_steps(self) -> None:
        """Wait for the step log, where it is written beside the work: no checkpoint may be ahead of it."""
        settle = getattr(self._log, "settle_steps", None)
        if settle is not None:
            settle()

    def active(self, step: int) -> list[int]:
        """Slots that take part in ``step``, ascending."""
        return self.plan.active(step, self._n_workers)

    def leaving(self, step: int) -> list[int]:
        """Slots whose last step is ``step``, ascending."""
        leaves = self.plan.leaves  # mostly empty, and this is asked in every step
        return sorted(slot for slot, first in leaves.items() if first == step + 1) if leaves else []

    def hands_over(self, step: int, slot: int) -> bool:
        """Whether another function goes on with ``slot`` after ``step``."""
        return self.plan.hand_overs.get(slot) == step

    def is_stopped(self, step: int) -> bool:
        """Whether an announced stop makes ``step`` the last one."""
        return self.plan.stop_after is not None and step >= self.plan.stop_after

    def announce_stop(self, status: str, reason: str) -> None:
        """Announce the end of training, unless one is announced already."""
        if self.plan.stop_after is None:
            self.plan = self._log.announce_stop(status, reason)

    def learn(self, arrival: Arrival, step: int) -> None:
        """Take over the grant, the plan and the supervisor's lease from an arrival at a round of ``step``."""
        if arrival.granted_nusd:
            self._prepaid.add(arrival.granted_nusd)
        self.plan = arrival.plan or self.plan
        self._miss_supervisor(arrival.has_supervisor, step)

    def _miss_supervisor(self, is_there: bool, step: int) -> None:
        """End the run if the supervisor's lease is missing for `MISSED_LEASES`: the driver did not replace it.

        What passes between two arrivals counts for a lease at most: while servers are away nobody can renew one.
        """
        now, asked_at = self._clock(), self._asked_at
        self._asked_at = now
        if is_there:
            if self._missed_from != math.inf:  # it is another one, perhaps
                self._patient_until = now + START_LEASES * self._lease_s
            self._missed_from = math.inf
            return
        if self._missed_from == math.inf:
            self._missed_from = max(now, self._patient_until)
        else:
            self._missed_from += max(now - asked_at - self._lease_s, 0.0)
        if now - self._missed_from > MISSED_LEASES * self._lease_s:
            self._log.announce_stop("failed", f"the supervisor was lost by step {step}")
