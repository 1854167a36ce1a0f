"""The bill of a whole run, kept by its supervisor: functions, servers and storage requests."""

from __future__ import annotations

from collections import Counter

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

    """

    def __init__(
        self, rates: Rates, n_workers: int, prepaid: Prepaid, spent_before: int, store: str = "", prepared: int = 0
    ) -> None:
        self._rates, self._prepaid, self._spent_before = rates, prepaid, spent_before
        self._store, self._stored = store, 0
        self._prepared = prepared
        # When the functions that have not ended were invoked, by slot, seconds after the run.
        self._invoked_s = dict.fromkeys(range(n_workers), 0.0)
        self._ended = 0  # cost of the workers that have ended, without requests
        self._storage: dict[int, int] = {}  # cost of requests by slot
        self._storage_before = 0  # of functions that were replaced
        self._waiting_s: dict[int, float] = {}  # when successors were invoked that wait for their slot

    @property
    def n_running(self) -> int:
        """Workers that have not ended."""
        return len(self._invoked_s)

    def note_requests(self, slot: int, nusd: int) -> None:
        """Note that ``slot`` has spent ``nusd`` on requests; a report may be read after the slot's final message."""
        self._storage[slot] = max(nusd, self._storage.get(slot, 0))

    def close(self, slot: int, spent: int, storage: int, stored: int = 0) -> None:
        """Close the bill of ``slot``, which has ended.

        It ``spent`` so much in all, ``storage`` of it on requests, ``stored`` of these to the frame store.
        """
        self._invoked_s.pop(slot, None)
        self._stored += stored
        self._ended += spent - storage
        self._storage[slot] = storage

    def replace(self, slot: int, lost_s: float, invoked_s: float) -> None:
        """The function of ``slot``, if it had not ended, was lost at ``lost_s``; another one was invoked.

        Seconds after the invocation of the run.
        """
        began_s = self._invoked_s.get(slot)
        if began_s is not None:
            self._ended += self._rates.function_nusd(max(lost_s - began_s, 0.0))
        self._storage_before += self._storage.pop(slot, 0)
        self._waiting_s.pop(slot, None)
        self._invoked_s[slot] = invoked_s

    def succeed(self, slot: int, invoked_s: float) -> None:
        """A successor of ``slot`` was invoked, and waits."""
        self._waiting_s[slot] = invoked_s

    @property
    def waiting(self) -> list[int]:
        """The slots whose successors wait."""
        return list(self._waiting_s)

    def hand_over(self, slot: int, spent: int, storage: int, stored: int) -> int:
        """The function of ``slot`` has ended, and its successor goes on; amounts as of `close`.

        Returns what the successor cost while both were there, nano-dollars. Of a successor that only an earlier
        supervisor has heard, the bill begins too early until it ends.
        """
        began_s = self._invoked_s.get(slot, 0.0)
        invoked_s = self._waiting_s.pop(slot, began_s)
        self.close(slot, spent, storage, stored)
        self._storage_before += self._storage.pop(slot)
        self._invoked_s[slot] = invoked_s
        return max(spent - storage - self._rates.function_nusd(max(invoked_s - began_s, 0.0)), 0)

    def _running(self, time_s: float) -> int:
        """Cost of the workers that have not ended, without requests."""
        began = Counter([*self._invoked_s.values(), *self._waiting_s.values()])
        return sum(n * self._rates.function_nusd(max(time_s - began_s, 0.0)) for began_s, n in began.items())

    def spent(self, time_s: float) -> int:
        """The run's cost ``time_s`` seconds after the invocation."""
        running = self._running(time_s)
        return self._ended + running + self._prepaid.cost_nusd(time_s) + self._requests + self._prepared

    @property
    def _requests(self) -> int:
        """Cost of the requests of the driver, the supervisor and all workers."""
        own = self._spent_before + self._prepaid.storage_nusd
        return own + sum(self._storage.values()) + self._storage_before

    def by_component(self, time_s: float) -> dict[str, int]:
        """The bill by component of `Cost`. A worker that was lost without a final message is billed up to now.

        Such a worker's requests to the frame store are among those of the storage.
        """
        workers = self._ended + self._running(time_s)
        costs = {"workers": workers, **self._rates.others_nusd(time_s), "storage": self._requests - self._stored}
        if self._prepared:
            costs[PREPARATION] = self._prepared
        if self._stored:
            costs[self._store] = costs.get(self._store, 0) + self._stored
        return costs
