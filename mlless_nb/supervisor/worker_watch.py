"""The state of a run's workers: which have started, which have ended, and whether the others are alive."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ..bus.messages import BY_USER, Failed, Invocation, Left
from ..exchange import Coordinator
from ..exchange.protocol import START_LEASES

#: The driver has so many leases to replace a lost worker.
REPLACE_LEASES = 4
#: Why a run without a driver is stopped.
DRIVER_GONE = "the notebook that started the run has ended"


class WorkerWatch:
    """The state of one run's workers, derived from their messages and leases.

    Parameters
    ----------
    invocation : Invocation
        The supervisor's.
    log : Coordinator
        Holds the leases; an abort is written to it.
    clock : callable
        Monotonic clock, seconds.

    Attributes
    ----------
    started : set of int
        Slots of the workers that reported their start.
    ended : dict
        The final message of each slot that has ended.
    aborted : tuple or None
        Status and reason of an abort, by this supervisor or by another process.
    """

    def __init__(self, invocation: Invocation, log: Coordinator, clock: Callable[[], float]) -> None:
        self._job, self._log, self._clock = invocation, log, clock
        self.started: set[int] = set()
        self.ended: dict[int, Left | Failed] = {}
        self.aborted: tuple[str, str] | None = None
        self._aborted_at = math.inf
        self._missing_since: dict[int, float] = {}  # slots whose lease ran out
        self._began_s: dict[int, float] = {}  # when the newest function of a slot that has said so began
        self._due_s: dict[int, float] = {}  # when functions that were invoked later must have started
        self._reported: dict[int, float] = {}  # when the driver was told that a slot was lost
        self._driver_since = math.inf  # since when the driver has no lease
        self._stopped_at = math.inf  # when the user asked the run to stop

    @property
    def have_all_started(self) -> bool:
        """Whether every worker has reported its start."""
        return len(self.started) == self._job.n_workers

    def status(self, step: int) -> str:
        """The run's status before its end; after a ``step`` it has started, also while every worker is replaced."""
        return "running" if self.started or step else "starting"

    @property
    def have_all_ended(self) -> bool:
        """Whether every worker has sent its final message."""
        return len(self.ended) == self._job.n_workers

    @property
    def last_step(self) -> int:
        """The last step that workers have done which have left, 0 if there is none."""
        return max((message.step for message in self.ended.values() if isinstance(message, Left)), default=0)

    def note_abort(self, status: str, reason: str) -> None:
        """Note the status and reason of an abort; the first one counts."""
        self.aborted = self.aborted or (status, reason)

    def abort(self, reason: str, status: str = "failed") -> None:
        """End the run, so that the other workers do not wait for a lost one."""
        self.note_abort(status, reason)
        self._log.abort(reason, self._job.n_workers, status)

    def stop(self) -> None:
        """The user has asked the run to stop: after a lease nobody waits for a function that is not there."""
        self._stopped_at = min(self._stopped_at, self._clock())

    def told(self, slot: int) -> None:
        """The driver was told that the function of ``slot`` is lost."""
        self._reported.setdefault(slot, self._clock())

    def start(self, slot: int, began_s: float) -> bool:
        """The function of ``slot`` says that it began ``began_s`` seconds after the run; whether it is news."""
        self._began_s[slot] = began_s
        is_news = slot not in self.started
        self.started.add(slot)
        return is_news

    def replace(self, slots: Sequence[int], invoked_s: float) -> None:
        """New functions of ``slots`` were invoked, ``invoked_s`` seconds after the run.

        They may have started before this is told: then only their leases tell whether they are there.
        """
        for slot in slots:
            if self._began_s.get(slot, -math.inf) <= invoked_s:
                self.started.discard(slot)
            self.ended.pop(slot, None)
            self._due_s[slot] = invoked_s + START_LEASES * self._job.lease_s
        self._missing_since.clear()
        self._reported.clear()

    def check_leases(self, time_s: float, step: int) -> list[tuple[int, str]]:
        """The slots whose lease expired more than half a lease ago, each with what happened, until `told`.

        If the driver has had no lease for the time of one, the run is stopped: servers that were away, or have lost the
        run's data, give it a moment to renew it. In good order if nobody is lost, else at once. If the driver was told
        of a lost worker `REPLACE_LEASES` ago and the run was not restarted, it is aborted; and if the user asked for a
        stop a lease ago, and somebody is missing, who may also have never started.

        Parameters
        ----------
        time_s : float
            Seconds since the invocation.
        step : int
            The newest complete step.
        """
        first_s = START_LEASES * self._job.lease_s
        is_stopped = self._clock() - self._stopped_at > self._job.lease_s
        slots = [
            slot
            for slot in range(self._job.n_workers)
            if slot in self.started or time_s > self._due_s.get(slot, first_s) or is_stopped
        ]
        waiting = [slot for slot in slots if slot not in self.ended]
        has_driver, *are_alive = self._log.alive(["driver", *map(str, waiting)])
        now = self._clock()
        self._driver_since = math.inf if has_driver else min(self._driver_since, now)
        if is_driver_gone := now - self._driver_since > self._job.lease_s:
            self._log.announce_stop("stopped", DRIVER_GONE)
        lost: list[tuple[int, str]] = []
        if self.aborted:
            return lost
        for slot, is_alive in zip(waiting, are_alive, strict=True):
            if is_alive:
                self._missing_since.pop(slot, None)
            elif now - self._missing_since.setdefault(slot, now) > self._job.lease_s / 2:
                if is_stopped:
                    self.abort(BY_USER, "stopped")
                    break
                reason = f"worker {slot} " + (
                    f"was lost at step {step + 1}" if slot in self.started else "did not start"
                )
                if slot not in self._reported:
                    lost.append((slot, reason))
                elif is_driver_gone:  # nobody will replace it
                    self.abort(DRIVER_GONE, "stopped")
                elif now - self._reported[slot] > REPLACE_LEASES * self._job.lease_s:
                    self.abort(reason)
        return lost

    def is_over(self) -> bool:
        """Whether the run was aborted and no further final messages are expected."""
        self.aborted = self.aborted or self._log.aborted()
        if self.aborted is not None:
            self._aborted_at = min(self._aborted_at, self._clock())
            silent = [str(slot) for slot in range(self._job.n_workers) if slot not in self.ended]
            if silent and not any(self._log.alive(silent)):
                return True
        return self._clock() - self._aborted_at > 2 * self._job.lease_s
