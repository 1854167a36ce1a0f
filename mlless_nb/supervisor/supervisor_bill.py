"""The supervisors' part of a run's bill: functions that follow one another, of which each knows its own time."""

from __future__ import annotations

from ..money.meter import Rates

#: A start that is told twice, by `Ready` and by `Started`, differs by less, seconds.
SAME_S = 1.0


class SupervisorBill:
    """The time of this supervisor and of those before it.

    Parameters
    ----------
    rates : Rates
    began_s : float
        When this supervisor's bill began, seconds after the run.
    invoked_s : float
        When it was invoked in the place of another one; 0 if it is the first.

    Attributes
    ----------
    own_s : float
        As ``began_s``; 0 for the driver's, which stands in for all.
    """

    def __init__(self, rates: Rates, began_s: float, invoked_s: float) -> None:
        self._rates, self.own_s, self._taken_over_s = rates, began_s, invoked_s
        self._changes: list[tuple[float, float]] = []  # when one ended, and when the bill of the next one began
        self._in_vain = 0  # cost of those that came in vain

    @property
    def have_changed(self) -> bool:
        """Whether there were others before."""
        return bool(self._changes or self._taken_over_s)

    def is_own(self, began_s: float) -> bool:
        """Whether this supervisor's bill began then, and not that of one which comes after it."""
        return began_s < self.own_s + SAME_S

    def change(self, ended_s: float, began_s: float) -> None:
        """A supervisor has ended, at the latest ``ended_s`` seconds after the run; the next one's bill began."""
        self._changes.append((ended_s, began_s))

    def add(self, nusd: int) -> None:
        """One that came in vain has cost ``nusd`` nano-dollars."""
        self._in_vain += nusd

    def _all_changes(self) -> list[tuple[float, float]]:
        if self._taken_over_s - SAME_S > max((began_s for _, began_s in self._changes), default=0.0):
            # The bus has forgotten the message that told of the last one, or has not delivered it yet.
            return [*self._changes, (self._taken_over_s - self._rates.tail_s, self.own_s)]
        return self._changes

    @property
    def newest_s(self) -> float:
        """When the bill of the newest one began: one that stands in for others goes on where the last change left."""
        changes = self._all_changes()
        return max(self.own_s, changes[-1][1] if changes else 0.0)

    def nusd(self, time_s: float) -> int:
        """Cost of their time, ``time_s`` seconds after the run."""
        began_s, nusd = 0.0, self._in_vain
        for ended_s, following_s in self._all_changes():
            nusd += self._rates.function_nusd(max(ended_s - began_s, 0.0))
            began_s = following_s
        return nusd + self._rates.function_nusd(max(time_s - self.newest_s, 0.0))
