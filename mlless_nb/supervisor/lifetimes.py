"""When functions need successors: a provider ends each one after its lifetime. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection

from ..exchange import SUPERVISOR

#: The first worker gets its successor at this share of its lifetime, the others one after the other until the second
#: share, and then the supervisor: so not all start at once.
FIRST_SHARE, LAST_SHARE = 0.6, 0.8
#: That much earlier where functions start slowly: so many times the longest start, and not before this share.
STARTS, LEAST_SHARE = 2.0, 0.4
#: A successor that is not there after so many times the longest start, and so many leases, is asked for again; twice as
#: long after that. So often in all.
LATE_STARTS, LATE_LEASES, MOST_ASKED = 2.0, 1.0, 3
#: Share of its lifetime at which the run of a function without a successor is ended in good order.
END_SHARE = 0.9


class Lifetimes:
    """The ages of one run's functions.

    Parameters
    ----------
    lifetime_s : float
        Seconds that a function may live.
    n_workers : int
    supervisor_s : float
        When the supervisor was invoked, seconds after the run.
    lease_s : float
        Lease of the functions.
    """

    def __init__(self, lifetime_s: float, n_workers: int, supervisor_s: float, lease_s: float = math.inf) -> None:
        self._lifetime_s, self._n_workers = lifetime_s, n_workers
        self._invoked_s = {SUPERVISOR: supervisor_s, **dict.fromkeys(range(n_workers), 0.0)}
        self._lease_s = lease_s
        self._asked: dict[int, tuple[float, int]] = {}  # when a successor was asked for last, and how often
        self._waiting_s: dict[int, float] = {}  # when successors that wait for their slots were invoked
        self._unheard: set[int] = set()  # slots whose new functions have not said when they were invoked
        self._handed_s: dict[int, float] = {}  # when slots were handed over whose successors have not said so yet
        #: The longest start of a function so far, seconds.
        self.start_s = 0.0

    def begin(self, slot: int, invoked_s: float) -> None:
        """``slot`` has a new function, invoked ``invoked_s`` seconds after the run."""
        self._invoked_s[slot] = invoked_s
        self._asked.pop(slot, None)
        self._waiting_s.pop(slot, None)
        self._handed_s.pop(slot, None)
        self._unheard.add(slot)

    def wait(self, slot: int, invoked_s: float) -> None:
        """A successor of ``slot`` waits to take over, invoked ``invoked_s`` seconds after the run."""
        self._waiting_s[slot] = invoked_s

    def hand_over(self, slot: int, left_s: float) -> None:
        """The successor of ``slot`` has it, since ``left_s`` seconds after the run.

        Until it says so the driver may still see the function before it, and takes another request for the same one.
        """
        self.begin(slot, self._waiting_s.get(slot, left_s))
        self._handed_s[slot] = left_s

    def start(self, slot: int, invoked_s: float) -> None:
        """The new function of ``slot`` says when it was invoked.

        It may have waited for the slot for long, as only an earlier supervisor has heard, or until the slot was free
        for a replacement.
        """
        self._handed_s.pop(slot, None)
        if slot in self._unheard:
            self._unheard.discard(slot)
            self._invoked_s[slot] = invoked_s

    def lose(self, slot: int) -> None:
        """The successor that waits for ``slot`` is lost: it is `late`, as one that has not started."""
        waiting_s = self._waiting_s.pop(slot)
        self._asked.setdefault(slot, (waiting_s, 1))

    def learn(self, slot: int, invoked_s: float) -> None:
        """The function that has ``slot`` was invoked ``invoked_s`` seconds after the run, whatever was heard."""
        self._invoked_s[slot] = invoked_s
        if slot in self._asked and self._asked[slot][0] <= invoked_s:
            del self._asked[slot]

    def _age_s(self, slot: int) -> float:
        """The age at which the function of ``slot`` needs a successor, which takes its time to start."""
        rank = self._n_workers if slot == SUPERVISOR else slot
        share = FIRST_SHARE + (LAST_SHARE - FIRST_SHARE) * rank / self._n_workers
        return max(share * self._lifetime_s - STARTS * self.start_s, LEAST_SHARE * self._lifetime_s)

    def due(self, time_s: float, slots: Collection[int]) -> list[int]:
        """Those of ``slots`` whose functions need successors at ``time_s`` seconds after the run; each is told once."""
        due = []
        for slot in slots:
            due_s = self._invoked_s[slot] + self._age_s(slot)
            asked_s, _ = self._asked.get(slot, (-math.inf, 0))  # before it was due: as a duplicate of a straggler
            is_unseen = time_s - self._handed_s.get(slot, -math.inf) < self._lease_s
            if asked_s < due_s <= time_s and slot not in self._waiting_s and not is_unseen:
                self._asked[slot] = time_s, 1
                due.append(slot)
        return due

    def invoke(self, slot: int, invoked_s: float) -> None:
        """A successor of ``slot`` was invoked ``invoked_s`` seconds after the run, whoever has asked for it."""
        if invoked_s > self._invoked_s.get(slot, math.inf):  # else it has the slot by now
            asked_s, n = self._asked.get(slot, (invoked_s, 1))
            self._asked[slot] = max(asked_s, invoked_s), n

    def late(self, time_s: float, slots: Collection[int]) -> list[int]:
        """Those of ``slots`` whose successors have not started in time; each is told so to ask for it again."""
        patience_s = max(LATE_STARTS * self.start_s, LATE_LEASES * self._lease_s)
        late = []
        for slot in slots:
            asked_s, n = self._asked.get(slot, (math.inf, MOST_ASKED))
            is_late = time_s - asked_s >= patience_s * 2 ** (n - 1)
            if is_late and n < MOST_ASKED and slot not in self._waiting_s:
                self._asked[slot] = time_s, n + 1
                late.append(slot)
        return late

    def is_over(self, time_s: float, slots: Collection[int]) -> bool:
        """Whether one of ``slots`` has so old a function, and no successor that waits, that the run has to end."""
        begun_s = self._invoked_s | self._waiting_s
        return any(time_s - begun_s[slot] >= END_SHARE * self._lifetime_s for slot in slots)
