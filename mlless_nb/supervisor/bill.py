"""The bill of a whole run, kept by its supervisor: functions, servers and storage requests."""

from __future__ import annotations

import math
from typing import Self

from ..bus.messages import Invocation
from ..exchange import SUPERVISOR
from ..exchange.frame_count import NO_FRAMES, FrameCount
from ..exchange.stores import store_kind
from ..money.budget import Prepaid
from ..money.cost import PREPARATION
from ..money.meter import NUSD, Rates
from .request_counts import RequestCounts
from .supervisor_bill import SAME_S, SupervisorBill


class Bill:
    """What a run has cost so far, in nano-dollars.

    Parameters
    ----------
    rates : Rates
    n_workers : int
        Functions that train; each is billed until it reports its end.
    prepaid : Prepaid
        The supervisor's own prepaid slice of the budget.
    began_s : float
        When this supervisor's bill began, seconds after the run; the servers' begins with the run.
    invoked_s : float
        When it was invoked in the place of another one; 0 if it is the first.
    spent_before : int
        Nano-dollars that the driver had spent on requests before it invoked the functions.
    prepared : int
        Nano-dollars that functions had spent on preparing the data.
    store : str
        The component of requests to the frame store; "" if they are free.
    lost_nusd : int
        Nano-dollars of the requests that a lost function may have made since its last report.
    """

    def __init__(
        self,
        rates: Rates,
        n_workers: int,
        prepaid: Prepaid,
        spent_before: int,
        store: str = "",
        prepared: int = 0,
        *,
        began_s: float = 0.0,
        invoked_s: float = 0.0,
        lost_nusd: int = 0,
    ) -> None:
        self._rates, self._prepaid, self._spent_before = rates, prepaid, spent_before
        self._store, self._stored = store, 0
        self._prepared, self._lost_nusd = prepared, lost_nusd
        #: The supervisors' part.
        self.supervisor = SupervisorBill(rates, began_s, invoked_s)
        self._stands_in = False
        self._known = set(range(n_workers))  # slots whose functions before are billed
        # When the bills of the functions that have not ended began, by slot, seconds after the run.
        self._began_s = dict.fromkeys(range(n_workers), 0.0)
        self._earlier_s: dict[int, float] = {}  # the same of functions that had these slots before
        self._taken_s: dict[int, float] = {}  # when successors said that they had these slots, see `begin`
        self._ended = 0  # cost of the workers that have ended, without requests
        self._requested = RequestCounts(n_workers)
        #: Notes what a report says; called for each worker and step.
        self.note_requests = self._requested.note
        # Whether functions were lost, and the cost of requests that these may have made after their last report.
        self._has_lost, self._unreported = False, 0
        # When the bills of successors began that wait for their slots, and by the slots of those that have not started
        # how many seconds they were granted for it.
        self._waiting_s: dict[int, float] = {}
        self._starting: dict[int, float] = {}
        # The same of successors, with their slots, that do not take over: their slots have ended, so that they leave as
        # soon as they have started, or others were invoked in their place.
        self._in_vain: list[tuple[int, float, float | None]] = []
        #: Successors that were invoked; None if that is not known.
        self.n_invoked: int | None = 0
        #: Seconds that a start takes, to be billed for successors that start in vain as the run ends.
        self.start_s = 0.0

    @classmethod
    def of(cls, invocation: Invocation, rates: Rates, prepaid: Prepaid, time_s: float) -> Self:
        """The bill of the supervisor of ``invocation``, ``time_s`` seconds after the run."""
        store = store_kind(invocation.store)
        component = store.component if store is not None else ""
        # Most make none: few are for minibatches. Without a Redis functions say by themselves what they have made.
        lost_nusd = rates.requests_nusd(1, 1) if component and invocation.redis_urls else 0
        before = invocation.spent_before_nusd, component, invocation.prepared_nusd
        return cls(
            rates,
            invocation.n_workers,
            prepaid,
            *before,
            began_s=time_s - prepaid.elapsed_s,
            invoked_s=invocation.invoked_s,
            lost_nusd=lost_nusd,
        )

    def stand_in(self) -> None:
        """This is the bill of the driver, which concludes a run without a supervisor: they are billed from its start.

        To be called before anything is heard.
        """
        self.supervisor.own_s, self._stands_in = 0.0, True

    def miss_past(self) -> None:
        """What the supervisors before heard is not told again: slots are billed from the start, whoever had them.

        To be called before anything is heard.
        """
        if self.n_invoked is not None:  # or it was called before, and a server failed then
            self._known.clear()
            self.n_invoked = None

    @property
    def n_running(self) -> int:
        """Workers that have not ended."""
        return len(self._began_s)

    @property
    def is_estimate(self) -> bool:
        """Whether functions were lost or have not ended: how much they have spent is not known."""
        return bool(self._began_s or self._waiting_s or self._has_lost or self.supervisor.have_changed)

    @property
    def unheard(self) -> list[list[float]]:
        """See `Ended`."""
        supervisor = [[float(SUPERVISOR), self.supervisor.newest_s]] if self._stands_in else []
        return supervisor + [[float(slot), began_s] for slot, began_s in self._began_s.items()]

    def begin(self, slot: int, began_s: float, at_s: float = 0.0) -> bool:
        """The function of ``slot`` has started, and says ``at_s`` seconds after the run when its bill began.

        Returns whether it is the successor, which has the slot though nobody has handed over: the one before is lost.
        """
        if slot not in self._known or began_s <= self._began_s.get(slot, math.inf):
            return False
        has_waited = slot in self.waiting and abs(self._waiting_s[slot] - began_s) < SAME_S
        if has_waited:
            del self._waiting_s[slot]
            self.lose(slot, at_s)
            self._requested.begin(slot, at_s)
            self._taken_s[slot] = at_s
        else:
            self._earlier_s[slot] = self._began_s[slot]  # of a lost one, perhaps: see `replace`
        self._began_s[slot] = began_s
        return has_waited

    def add(self, slot: int, nusd: int) -> None:
        """A function that came in vain for ``slot`` has cost ``nusd`` nano-dollars."""
        if slot == SUPERVISOR:
            self.supervisor.add(nusd)
        else:
            self._ended += nusd

    def change_supervisor(self, ended_s: float, began_s: float, *, is_lost: bool = False) -> None:
        """A supervisor has ended, at the latest ``ended_s`` seconds after the run; the next one's bill began."""
        self._waiting_s.pop(SUPERVISOR, None)
        self._starting.pop(SUPERVISOR, None)
        self.supervisor.change(ended_s - self._rates.tail_s * is_lost, began_s)

    def close(
        self,
        slot: int,
        spent: int,
        storage: int,
        stored: int = 0,
        frames: FrameCount = NO_FRAMES,
        ended_s: float | None = None,
    ) -> None:
        """Close the bill of ``slot``, whose function has ended, ``ended_s`` seconds after the run (None: now).

        It ``spent`` so much in all, ``storage`` of it on requests, ``stored`` of these to the frame store, where it
        moved ``frames``.
        """
        self._began_s.pop(slot, None)
        self._leave_waiting(slot)
        self._stored += stored
        time_nusd = spent - storage
        if slot not in self._known:  # it may have had others before, see `miss_past`
            ended_s = self.supervisor.own_s + self._prepaid.elapsed_s if ended_s is None else ended_s
            time_nusd = max(time_nusd, self._rates.function_nusd(ended_s))
            self._known.add(slot)
        self._ended += time_nusd
        self._requested.close(slot, storage, frames)

    def lose(self, slot: int, lost_s: float) -> None:
        """The function of ``slot``, if it had not ended, was lost at ``lost_s``, see `replace`."""
        began_s = self._began_s.pop(slot, None)
        if began_s is not None:
            self._ended += self._rates.lost_nusd(lost_s - began_s)
            self._has_lost, self._unreported = True, self._unreported + self._lost_nusd
        self._leave_waiting(slot)

    def _leave_waiting(self, slot: int) -> None:
        """The successor of ``slot``, if there is one, will not take over."""
        if slot in self._waiting_s:
            self._in_vain.append((slot, self._waiting_s.pop(slot), self._starting.pop(slot, None)))

    def replace(self, slot: int, lost_s: float, invoked_s: float) -> None:
        """The function of ``slot``, if it had not ended, was lost at ``lost_s``; another one was invoked.

        Seconds after the invocation of the run. When it died is not known, so it is billed until it was missed, and for
        the requests that it may have made since its last report: a minibatch, and its part of a checkpoint. The other
        one may have started before this is told.
        """
        if lost_s < self._taken_s.pop(slot, -math.inf):
            return  # its successor has taken the slot by then, and who was invoked finds it taken
        heard_s = self._began_s.get(slot, -math.inf)
        if heard_s > invoked_s:
            self._began_s[slot] = self._earlier_s.pop(slot, heard_s)
        self.lose(slot, lost_s)
        self._requested.begin(slot, invoked_s)
        self._known.add(slot)
        self._began_s[slot] = max(invoked_s, heard_s)

    def count_invoked(self, number: int) -> None:
        """So many successors have been invoked, this one included: earlier ones may have been told to another."""
        if self.n_invoked is not None:
            self.n_invoked = max(number, self.n_invoked)

    def invoke(self, slot: int, invoked_s: float, granted_s: float = 0.0) -> None:
        """A successor of ``slot`` was invoked ``invoked_s`` seconds after the run.

        If the run ends before it is heard, its start is billed with ``granted_s`` seconds at least. An earlier one that
        was not heard is lost.
        """
        if slot in self._starting:
            self._leave_waiting(slot)
            self._has_lost, self._unreported = True, self._unreported + self._rates.requests_nusd(1, 0)
        if slot not in self._waiting_s:
            self._waiting_s[slot], self._starting[slot] = invoked_s, granted_s

    def lose_successor(self, slot: int) -> None:
        """The successor that waited for ``slot`` is lost."""
        self._leave_waiting(slot)
        self._has_lost, self._unreported = True, self._unreported + self._rates.requests_nusd(1, 0)

    def forget(self, slot: int) -> None:
        """The successor of ``slot`` could not be invoked after all."""
        if slot in self._starting:
            del self._waiting_s[slot], self._starting[slot]

    def succeed(self, slot: int, began_s: float) -> None:
        """A successor of ``slot`` has started and waits; its bill began then."""
        self._waiting_s[slot] = began_s
        self._starting.pop(slot, None)

    @property
    def waiting(self) -> list[int]:
        """The slots of workers whose successors wait."""
        return [slot for slot in self._waiting_s if slot not in self._starting]

    def hand_over(
        self, slot: int, left_s: float, spent: int, storage: int, stored: int, frames: FrameCount = NO_FRAMES
    ) -> int:
        """The function of ``slot`` has ended ``left_s`` seconds after the run, and its successor goes on.

        Amounts as of `close`. Returns what the successor cost while both were there, nano-dollars.
        """
        following_s = self._waiting_s.pop(slot, left_s)
        self.close(slot, spent, storage, stored, frames, left_s)
        self._requested.begin(slot, left_s)
        self._began_s[slot] = following_s
        self._starting.pop(slot, None)
        return self._rates.function_nusd(max(left_s - following_s, 0.0))

    def _supervisors(self, time_s: float, *, is_last: bool = False) -> int:
        """Cost of this supervisor's time and of those before it; ``is_last``: see `_wait`."""
        return self.supervisor.nusd(time_s) + self._wait(SUPERVISOR, time_s, is_last=is_last)

    def _servers(self, time_s: float) -> int:
        """Cost of the servers, which are needed until the supervisor's very end."""
        return self._rates.servers_nusd(time_s + self._rates.tail_s)

    def _running(self, time_s: float, *, is_last: bool = False) -> int:
        """Cost of the workers that have not ended, without requests; ``is_last``: see `_wait`."""
        running, function_nusd = 0, self._rates.function_nusd  # called for each step
        for began_s in self._began_s.values():
            running += function_nusd(max(time_s - began_s, 0.0))
        for slot in self._waiting_s:
            if slot != SUPERVISOR:
                running += self._wait(slot, time_s, is_last=is_last)
        return running

    def _wait(self, slot: int, time_s: float, *, is_last: bool = False) -> int:
        """Cost of the successor of ``slot``, 0 if there is none; one that starts in vain leaves once it has started.

        ``is_last``: nobody will hear how long its start has taken.
        """
        if slot not in self._waiting_s:
            return 0
        least_s = self.start_s if slot in self._starting else 0.0
        if is_last:
            least_s = max(least_s, self._starting.get(slot, 0.0))
        return self._rates.function_nusd(max(time_s - self._waiting_s[slot], least_s))

    def _end_in_vain(self, time_s: float) -> None:
        """Close the bills of successors that have started in vain: at the first look after their slots have ended."""
        for slot, since_s, granted_s in self._in_vain:
            least_s = 0.0 if granted_s is None else max(self.start_s, granted_s)
            self.add(slot, self._rates.function_nusd(max(time_s - since_s, least_s)))
        self._in_vain.clear()

    def spent(self, time_s: float) -> int:
        """The run's cost ``time_s`` seconds after the invocation."""
        self._end_in_vain(time_s)
        running = self._running(time_s)
        others = self._supervisors(time_s) + self._servers(time_s)
        return self._ended + running + others + self._requests + self._prepared

    def state(self, time_s: float) -> dict[str, float]:
        """Fields of an update: `spent`, requests in it, since when this supervisor hears, whether the past is lost."""
        known = {"heard_since_s": self.supervisor.own_s, "lacks_past": self.n_invoked is None}
        known["requests_usd"] = self._requests / NUSD
        return {"spent_usd": self.spent(time_s) / NUSD, **known}

    @property
    def _requests(self) -> int:
        """Cost of the requests of the driver, the supervisor and all workers."""
        own = self._spent_before + self._prepaid.storage_nusd
        return own + self._requested.nusd + self._unreported

    @property
    def store_use(self) -> dict[str, int]:
        """What the workers have told of the store of frames: the fields of `FrameCount`, and ``nusd`` of its requests.

        The nano-dollars are a part of the bill. What lost workers had told counts, except for these.
        """
        return {**self._requested.frames._asdict(), "nusd": self._stored}

    def by_component(self, time_s: float) -> dict[str, int]:
        """The last bill, by component of `Cost`. A worker that was lost without a final message is billed up to now.

        Such a worker's requests to the frame store are among those of the storage.
        """
        self._end_in_vain(time_s)
        workers = self._ended + self._running(time_s, is_last=True)
        costs = {"workers": workers, "supervisor": self._supervisors(time_s, is_last=True)}
        costs |= self._rates.servers_by_component(self._servers(time_s))
        costs["storage"] = self._requests - self._stored
        if self._prepared:
            costs[PREPARATION] = self._prepared
        if self._stored:
            costs[self._store] = costs.get(self._store, 0) + self._stored
        return costs
