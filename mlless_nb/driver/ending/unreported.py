"""Functions that were invoked so late, or lost so silently, that a run's supervisor could not hear of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from ...bus.messages import Ended, Invocation
from ...exchange import SUPERVISOR
from ...money import Rates
from ...money.start import StartingMoney
from ..backends.exits import Exits
from .final_bill import exit_times, until_exits


class UnreportedFunctions:
    """Those of one run.

    Parameters
    ----------
    money : StartingMoney
        What functions were granted for their starts.
    rates : Rates
    exits : Exits
    launched_at : float
        When the run was invoked, on the monotonic clock.
    """

    def __init__(self, money: StartingMoney, rates: Rates, exits: Exits, launched_at: float) -> None:
        self._start_s, self._rates, self._exits, self._launched_at = money.unheard_start_s, rates, exits, launched_at
        self._slots: list[int] = []  # of all successors, in the order in which the supervisor was told of them

    def note(self, invocations: Iterable[Invocation]) -> None:
        """Note which of ``invocations`` are successors: others the supervisor misses, and waits for."""
        invocations = list(invocations)
        self._exits.invoked({one.slot: self._launched_at + one.invoked_s for one in invocations})
        self._slots += [one.slot for one in invocations if one.is_successor]

    def ends_s(self, ended: Ended) -> list[float]:
        """As `exit_times`, with the end of the run for those that are not known."""
        found = exit_times(ended, self._exits, self._launched_at)
        return [ended.time_s if exited_s is None else exited_s for exited_s in found]

    def billed(self, ended: Ended) -> Ended:
        """The final message with a bill for what its sender had not heard of: starts, and lost functions' ends."""
        ended = until_exits(ended, self._exits, self._launched_at, self._rates)
        if ended.n_invoked is None or not self._start_s:
            return ended
        costs = dict(ended.costs_nusd)
        for slot in self._slots[ended.n_invoked :]:
            component = "supervisor" if slot == SUPERVISOR else "workers"
            costs[component] = costs.get(component, 0) + self._rates.function_nusd(self._start_s)
        return dataclasses.replace(ended, costs_nusd=costs)
