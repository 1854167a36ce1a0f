"""The bill of a whole run, kept by its supervisor: functions, servers and storage requests."""

from __future__ import annotations

from ..money.budget import Prepaid
from ..money.cost import PREPARATION
from ..money.meter import Rates


class Bill:
    """What a run has cost so far, in nano-dollars.

    Parameters
    ----------
    rates : Rates
    n_workers : int
        Functions that train; each is billed until it reports its end.
    prepaid : Prepaid
        The supervisor's own prepaid slice of the budget.
    spent_before : int
        Nano-dollars that the driver had spent on requests before it invoked the functions.
    prepared : int
        Nano-dollars that functions had spent on preparing the data.
    store : str
        The component of requests to the frame store; "" if they are free.

    Attributes
    ----------
    n_running : int
        Workers that have not ended.
    """

    def __init__(
        self, rates: Rates, n_workers: int, prepaid: Prepaid, spent_before: int, store: str = "", prepared: int = 0
    ) -> None:
        self._rates, self._prepaid, self._spent_before = rates, prepaid, spent_before
        self._store, self._stored = store, 0
        self.n_running, self._prepared = n_workers, prepared
        self._ended = 0  # cost of the workers that have ended, without requests
        self._storage: dict[int, int] = {}  # cost of requests by slot

    def note_requests(self, slot: int, nusd: int) -> None:
        """Note that ``slot`` has spent ``nusd`` on requests; a report may be read after the slot's final message."""
        self._storage[slot] = max(nusd, self._storage.get(slot, 0))

    def close(self, slot: int, spent: int, storage: int, stored: int = 0) -> None:
        """Close the bill of ``slot``, which has ended.

        It ``spent`` so much in all, ``storage`` of it on requests, ``stored`` of these to the frame store.
        """
        self.n_running -= 1
        self._stored += stored
        self._ended += spent - storage
        self._storage[slot] = storage

    def spent(self, time_s: float) -> int:
        """The run's cost ``time_s`` seconds after the invocation."""
        running = self.n_running * self._rates.function_nusd(time_s)
        return self._ended + running + self._prepaid.cost_nusd(time_s) + self._requests + self._prepared

    @property
    def _requests(self) -> int:
        """Cost of the requests of the driver, the supervisor and all workers."""
        return self._spent_before + self._prepaid.storage_nusd + sum(self._storage.values())

    def by_component(self, time_s: float) -> dict[str, int]:
        """The bill by component of `Cost`. A worker that was lost without a final message is billed up to now.

        Such a worker's requests to the frame store are among those of the storage.
        """
        workers = self._ended + self.n_running * self._rates.function_nusd(time_s)
        costs = {"workers": workers, **self._rates.others_nusd(time_s), "storage": self._requests - self._stored}
        if self._prepared:
            costs[PREPARATION] = self._prepared
        if self._stored:
            costs[self._store] = costs.get(self._store, 0) + self._stored
        return costs
