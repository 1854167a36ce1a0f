"""Functions that were invoked so late that the run ended before its supervisor could hear of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from ...bus.messages import Ended, Invocation
from ...exchange import SUPERVISOR
from ...money import Rates
from ...money.start import StartingMoney


class UnreportedFunctions:
    """Those of one run.

    Parameters
    ----------
    money : StartingMoney
        What functions were granted for their starts.
    rates : Rates
    """

    def __init__(self, money: StartingMoney, rates: Rates) -> None:
        self._start_s, self._rates = money.unheard_start_s, rates
        self._slots: list[int] = []  # of all successors, in the order in which the supervisor was told of them

    def note(self, invocations: Iterable[Invocation]) -> None:
        """Note which of ``invocations`` are successors: others the supervisor misses, and waits for."""
        self._slots += [one.slot for one in invocations if one.is_successor]

    def billed(self, ended: Ended) -> Ended:
        """The final message with the starts in its bill that its sender had not heard of."""
        if ended.n_invoked is None or not self._start_s:
            return ended
        costs = dict(ended.costs_nusd)
        for slot in self._slots[ended.n_invoked :]:
            component = "supervisor" if slot == SUPERVISOR else "workers"
            costs[component] = costs.get(component, 0) + self._rates.function_nusd(self._start_s)
        return dataclasses.replace(ended, costs_nusd=costs)
