"""The bill of a whole run, as its supervisor keeps it: every function, the servers, requests to the storage."""

from __future__ import annotations

from ..money.budget import Prepaid
from ..money.meter import Rates


class Bill:
    """What a run has cost so far, in nano-dollars.

    Parameters
    ----------
    rates : Rates
    n_workers : int
        Functions that train; each runs until it reports its end.
    prepaid : Prepaid
        The supervisor's own money.
    spent_before : int
        What the driver had spent on requests when it invoked the functions.

    Attributes
    ----------
    n_running : int
        Workers that have not ended.
    """

    def __init__(self, rates: Rates, n_workers: int, prepaid: Prepaid, spent_before: int) -> None:
        self._rates, self._prepaid, self._spent_before = rates, prepaid, spent_before
        self.n_running = n_workers
        self._ended = 0  # bills of the workers that have, without their requests
        self._storage: dict[int, int] = {}  # requests by slot

    def note_requests(self, slot: int, nusd: int) -> None:
        """``slot`` had spent so much on requests when it said so; its final message may have been read before."""
        self._storage[slot] = max(nusd, self._storage.get(slot, 0))

    def close(self, slot: int, spent: int, storage: int) -> None:
        """``slot`` has ended, and has spent so much, of it so much on requests."""
        self.n_running -= 1
        self._ended += spent - storage
        self._storage[slot] = storage

    def spent(self, time_s: float) -> int:
        """What the run has cost ``time_s`` seconds after the invocation."""
        running = self.n_running * self._rates.function_nusd(time_s)
        return self._ended + running + self._prepaid.cost_nusd(time_s) + self._requests

    @property
    def _requests(self) -> int:
        """Requests of the driver, the supervisor and every worker."""
        return self._spent_before + self._prepaid.storage_nusd + sum(self._storage.values())

    def by_component(self, time_s: float) -> dict[str, int]:
        """The bill by component of `Cost`. Who is gone without a word is billed to now."""
        workers = self._ended + self.n_running * self._rates.function_nusd(time_s)
        return {"workers": workers, **self._rates.others_nusd(time_s), "storage": self._requests}
