"""When functions need successors: a provider ends each one after its lifetime. Pure."""

from __future__ import annotations

from collections.abc import Collection

from ..exchange import SUPERVISOR

#: The first worker gets its successor at this share of its lifetime, the others one after the other until the second
#: share, and then the supervisor: so not all start at once.
FIRST_SHARE, LAST_SHARE = 0.6, 0.8
#: That much earlier where functions start slowly: so many times the longest start, and not before this share.
STARTS, LEAST_SHARE = 2.0, 0.4
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
    """

    def __init__(self, lifetime_s: float, n_workers: int, supervisor_s: float) -> None:
        self._lifetime_s, self._n_workers = lifetime_s, n_workers
        self._invoked_s = {SUPERVISOR: supervisor_s, **dict.fromkeys(range(n_workers), 0.0)}
        self._asked: set[int] = set()
        #: The longest start of a function so far, seconds.
        self.start_s = 0.0

    def begin(self, slot: int, invoked_s: float) -> None:
        """``slot`` has a new function, invoked ``invoked_s`` seconds after the run."""
        self._invoked_s[slot] = invoked_s
        self._asked.discard(slot)

    def _age_s(self, slot: int) -> float:
        """The age at which the function of ``slot`` needs a successor, which takes its time to start."""
        rank = self._n_workers if slot == SUPERVISOR else slot
        share = FIRST_SHARE + (LAST_SHARE - FIRST_SHARE) * rank / self._n_workers
        return max(share * self._lifetime_s - STARTS * self.start_s, LEAST_SHARE * self._lifetime_s)

    def due(self, time_s: float, slots: Collection[int]) -> list[int]:
        """Those of ``slots`` whose functions need successors at ``time_s`` seconds after the run; each is told once."""
        due = [
            slot for slot in slots if slot not in self._asked and time_s - self._invoked_s[slot] >= self._age_s(slot)
        ]
        self._asked.update(due)
        return due

    def is_over(self, time_s: float, slots: Collection[int]) -> bool:
        """Whether one of the functions of ``slots`` is so old that the run has to end."""
        return any(time_s - self._invoked_s[slot] >= END_SHARE * self._lifetime_s for slot in slots)
