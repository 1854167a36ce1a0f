"""The state of a run's workers: who started, who ended, and whether the others are alive."""

from __future__ import annotations

import math
from collections.abc import Callable

from ..bus.messages import Failed, Invocation, Left
from ..exchange import Coordinator
from ..exchange.protocol import START_LEASES


class WorkerWatch:
    """The workers of one run, as their messages and their leases show them.

    Parameters
    ----------
    invocation : Invocation
        The supervisor's.
    log : Coordinator
        Has the leases; is told when the run is aborted.
    clock : callable
        Seconds that pass.

    Attributes
    ----------
    started : set of int
        Slots of workers that said so.
    ended : dict
        The last message of each slot.
    aborted : tuple or None
        Status and reason with which the run was aborted: by this supervisor or by anybody else.
    """

    def __init__(self, invocation: Invocation, log: Coordinator, clock: Callable[[], float]) -> None:
        self._job, self._log, self._clock = invocation, log, clock
        self.started: set[int] = set()
        self.ended: dict[int, Left | Failed] = {}
        self.aborted: tuple[str, str] | None = None
        self._aborted_at = math.inf
        self._missing_since: dict[int, float] = {}  # slots whose lease ran out

    @property
    def have_all_started(self) -> bool:
        """Whether every worker has said that it started."""
        return len(self.started) == self._job.n_workers

    @property
    def have_all_ended(self) -> bool:
        """Whether every worker has sent its last message."""
        return len(self.ended) == self._job.n_workers

    def note_abort(self, status: str, reason: str) -> None:
        """The run is aborted for this reason, unless there was one before."""
        self.aborted = self.aborted or (status, reason)

    def abort(self, reason: str) -> None:
        """End the run as failed: the others must not wait for a lost worker."""
        self.note_abort("failed", reason)
        self._log.abort(reason, self._job.n_workers)

    def check_leases(self, time_s: float, step: int) -> None:
        """Abort the run, naming the worker and the step, when a lease ran out more than half a lease ago.

        Without the driver it ends in good order.

        Parameters
        ----------
        time_s : float
            Seconds since the invocation.
        step : int
            The newest complete step.
        """
        is_late = time_s > START_LEASES * self._job.lease_s
        slots = range(self._job.n_workers) if is_late else sorted(self.started)
        waiting = [slot for slot in slots if slot not in self.ended]
        has_driver, *are_alive = self._log.alive(["driver", *map(str, waiting)])
        if not has_driver:
            self._log.announce_stop("stopped", "the notebook that started the run is gone")
        if self.aborted:
            return
        now = self._clock()
        for slot, is_alive in zip(waiting, are_alive, strict=True):
            if is_alive:
                self._missing_since.pop(slot, None)
            elif now - self._missing_since.setdefault(slot, now) > self._job.lease_s / 2:
                how = f"was lost at step {step + 1}" if slot in self.started else "did not start"
                self.abort(f"worker {slot} {how}")
                return

    def is_over(self) -> bool:
        """Whether the run was aborted, and the workers that have not reported their end will not."""
        self.aborted = self.aborted or self._log.aborted()
        if self.aborted is not None:
            self._aborted_at = min(self._aborted_at, self._clock())
            silent = [str(slot) for slot in range(self._job.n_workers) if slot not in self.ended]
            if silent and not any(self._log.alive(silent)):
                return True
        return self._clock() - self._aborted_at > 2 * self._job.lease_s
