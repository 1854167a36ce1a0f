"""Functions of this machine that end before they have claimed their slots, so that no claim names their processes."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ..servers.services import Services


class EarlyEnds:
    """Those of one run, among the functions that were invoked in the place of others.

    Parameters
    ----------
    services : Services
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._jobs: dict[int, str] = {}  # Lithops' jobs of functions that may not have claimed their slots, by slot

    def invoked(self, slots: Iterable[int]) -> None:
        """Functions of ``slots`` were invoked just now, in one call."""
        self._jobs |= dict.fromkeys(slots, self._services.launcher.newest)

    def look(self, started: Collection[int]) -> list[int]:
        """The slots whose functions have ended without a claim; those in ``started`` have claimed theirs.

        Of functions that were invoked in one call, only the end of all of them is seen.
        """
        self._jobs = {slot: job for slot, job in self._jobs.items() if slot not in started}
        launcher, log = self._services.launcher, self._services.log
        ended = [slot for slot, job in self._jobs.items() if launcher.has_job_ended(job)]
        if not ended:
            return []
        taken = log.at_work(ended).keys() | log.settled(ended)  # only now: they may have done all their work
        return [slot for slot in ended if slot not in taken]
