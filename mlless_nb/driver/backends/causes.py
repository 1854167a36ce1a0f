"""Why functions of a cloud are not there: looked up where Lithops notes it, as soon as one is late or has gone.

On this machine the driver sees processes; on a cloud it has nothing but leases, and these last.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

from ...exchange import SUPERVISOR
from .call_failures import Failure
from .launcher import LithopsLauncher

#: Seconds after its invocation at which a function that has not started is late, and between two polls of failures.
LATE_S, FAILURES_POLL_S = 6.0, 4.0


class Causes:
    """Those of one run.

    Parameters
    ----------
    launcher : LithopsLauncher
    memory_mb : int
        Of each function.
    """

    def __init__(self, launcher: LithopsLauncher, memory_mb: int) -> None:
        self._cloud, self._memory_mb = launcher.cloud, memory_mb
        self._slots: dict[str, Sequence[int]] = {}  # by Lithops' job
        self._newest: dict[int, str] = {}  # the job of each slot's newest function
        self._invoked_at: dict[int, float] = {}
        self._looked_at = 0.0

    @property
    def can_look(self) -> bool:
        """Whether the functions are on a cloud."""
        return self._cloud is not None

    def invoked(self, job_key: str, slots: Sequence[int]) -> None:
        """Functions of ``slots`` were invoked, in this order, as Lithops' job ``job_key``."""
        self._slots[job_key] = slots
        self._newest |= dict.fromkeys(slots, job_key)
        self._invoked_at |= dict.fromkeys(slots, time.monotonic())

    def look(self, started: Collection[int], gone: Collection[int]) -> str | None:
        """Why the run cannot go on, None if nothing says that it cannot: a sentence.

        Parameters
        ----------
        started : collection of int
            Slots whose newest function has started.
        gone : collection of int
            Those of them that have no lease any more.
        """
        now = time.monotonic()
        late = [slot for slot, at in self._invoked_at.items() if slot not in started and now - at > LATE_S]
        if self._cloud is None or not (late or gone) or now - self._looked_at < FAILURES_POLL_S:
            return None
        self._looked_at = now
        for failure in self._cloud.failures():
            slots = self._slots_of(failure)
            if not slots:
                continue
            who = "a function" if len(slots) > 1 else "the supervisor" if SUPERVISOR in slots else f"worker {slots[0]}"
            if failure.is_out_of_memory:
                return f"{who} ran out of memory: memory_mb={self._memory_mb} is too small for this job"
            # One that was replaced may have failed after it had started.
            if any(slot in late and self._newest[slot] == failure.job for slot in slots):
                return f"{who} could not start: {failure}"
        return None

    def _slots_of(self, failure: Failure) -> Sequence[int]:
        """The slots of which one has failed; those of its whole job if its call is unknown."""
        slots = self._slots.get(failure.job, ())
        return slots if failure.call is None else slots[failure.call : failure.call + 1]
