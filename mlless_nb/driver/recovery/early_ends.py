"""Functions of this machine that end before they have claimed their slots, so that no claim names their processes."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping

from ...exchange.slots import pid_in
from ..servers.services import Services


class EarlyEnds:
    """Those of one run, among the functions that were invoked in the place of others.

    Of functions that were invoked in one call nobody knows which process is whose until they claim their slots. But
    once one of them has, Lithops has started them all; and if then, for half a lease, none of their processes lives
    that has no slot, those without a claim have ended.

    Parameters
    ----------
    services : Services
    lease_s : float
        Lease of the functions.
    """

    def __init__(self, services: Services, lease_s: float) -> None:
        self._services, self._lease_s = services, lease_s
        self._jobs: dict[int, str] = {}  # Lithops' jobs of functions that may not have claimed their slots, by slot
        self._begun: set[str] = set()  # jobs of which a function has claimed its slot
        self._gone_since: dict[str, float] = {}  # since when a job has no process without a slot

    def invoked(self, slots: Iterable[int]) -> None:
        """Functions of ``slots`` were invoked just now, in one call."""
        self._jobs |= dict.fromkeys(slots, self._services.launcher.newest)

    def look(self, started: Collection[int], at_work: Mapping[int, str]) -> list[int]:
        """The slots whose functions have ended without a claim.

        Parameters
        ----------
        started : collection of int
            Slots that were claimed.
        at_work : dict
            Who has which slot, see `Coordinator.at_work`.
        """
        self._begun.update(job for slot, job in self._jobs.items() if slot in started)
        self._jobs = {slot: job for slot, job in self._jobs.items() if slot not in started}
        self._begun.intersection_update(self._jobs.values())
        over = {job for job in set(self._jobs.values()) if self._is_over(job, at_work)}
        ended = [slot for slot, job in self._jobs.items() if job in over]
        if not ended:
            return []
        log = self._services.log
        taken = log.at_work(ended).keys() | log.settled(ended)  # only now: they may have done all their work
        return [slot for slot in ended if slot not in taken]

    def _is_over(self, job: str, at_work: Mapping[int, str]) -> bool:
        """Whether all functions of ``job`` that have not claimed their slots have ended."""
        launcher, now = self._services.launcher, time.monotonic()
        if launcher.has_job_ended(job):
            return True
        living = launcher.functions_of(job) if job in self._begun else None
        if living is None or living - {pid_in(nonce) for nonce in at_work.values()}:
            self._gone_since.pop(job, None)
            return False
        return now - self._gone_since.setdefault(job, now) > self._lease_s / 2
