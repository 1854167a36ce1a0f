"""What a run has cost by its supervisors' words, also where one does not know what those before it had heard.

That is so once a Redis has lost its data, and where a broker's messages are not recorded. A supervisor that has heard
them goes on with its bill; the next one begins anew, and bills less. The difference to the last word of the one before
is added to its bill from then on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from ...bus.messages import Ended
from ...money import Rates
from ...money.cost import FUNCTIONS, PREPARATION, cut
from ...money.meter import NUSD, to_nusd


class ToldCosts:
    """Those of one run.

    Parameters
    ----------
    rates : Rates
    """

    def __init__(self, rates: Rates) -> None:
        self._rates = rates
        self._told = self._before = (0.0, 0.0, 0.0)  # seconds, dollars, dollars a second: newest word, and see `take`
        self._sender_s: float | None = None  # who has sent the newest word: when its bill began
        self._first_step: int | None = None  # of a sender that has not heard all functions yet
        self._unknown_usd, self._has_lost_past = 0.0, False
        self._requests_usd = 0.0  # the most that was told of requests

    def lose_past(self) -> None:
        """The run's servers have lost what functions have said."""
        self._has_lost_past = True

    def take(self, state: dict[str, Any]) -> None:
        """Take in the ``state`` of an update, and add to its cost what its sender does not know.

        That is known once it has heard a step of all functions: they report what they have requested in all.
        """
        sender_s, lacks_past = state.pop("heard_since_s", None), state.pop("lacks_past", False)
        self._requests_usd = max(state.pop("requests_usd", 0.0), self._requests_usd)
        if "spent_usd" not in state:
            return
        time_s, spent_usd, step = state["time_s"], state["spent_usd"], state["step"]
        if sender_s != self._sender_s:
            self._sender_s, self._before, self._unknown_usd = sender_s, self._told, 0.0
            self._first_step = step if lacks_past else None
        if self._first_step is not None:
            before_s, before_usd, rate_usd_s = self._before
            # Of the servers' time both know all; started seconds are billed whole.
            expected_usd = before_usd - self._servers_usd(before_s)
            expected_usd += (rate_usd_s - self._rates.servers_usd_s) * max(time_s - before_s, 0.0)
            self._unknown_usd = max(expected_usd - (spent_usd - self._servers_usd(time_s)), 0.0)
            self._first_step = self._first_step if step <= self._first_step else None
        state["spent_usd"] = min(spent_usd + self._unknown_usd, state.get("budget_usd") or float("inf"))
        self._told = time_s, state["spent_usd"], state["rate_usd_s"]

    def _servers_usd(self, time_s: float) -> float:
        return self._rates.servers_nusd(time_s + self._rates.tail_s) / NUSD

    def billed(self, ended: Ended) -> Ended:
        """A supervisor's final message with what it does not know."""
        return _with_more(ended, to_nusd(self._unknown_usd))

    def at_least(self, ended: Ended, lived_s: Callable[[Ended, float], float]) -> Ended:
        """A final message of the driver's own: if it does not know the past, what was told of that counts, or more.

        Parameters
        ----------
        ended : Ended
        lived_s : callable
            Seconds that all functions have lived since a moment, seconds after the run: `UnreportedFunctions.lived_s`.
        """
        if ended.n_invoked is not None and not self._has_lost_past:
            return ended
        told_s, told_usd, _ = self._told
        told_s += self._rates.tail_s  # it was told as if all were to return then
        later_usd = self._rates.function_usd_s * lived_s(ended, told_s)
        costs, servers = dict(ended.costs_nusd), self._rates.servers_by_component(0).keys()
        functions = sum(costs.get(name, 0) for name in FUNCTIONS)
        others = {*servers, *FUNCTIONS, PREPARATION}
        requests = sum(nusd for name, nusd in costs.items() if name not in others)
        past_usd = told_usd - self._requests_usd - self._rates.servers_nusd(told_s) / NUSD
        past_usd -= costs.get(PREPARATION, 0) / NUSD
        if (untold := to_nusd(self._requests_usd) - requests) > 0:
            costs["storage"] = costs.get("storage", 0) + untold
        costs["workers"] = costs.get("workers", 0) + max(to_nusd(max(past_usd, 0.0) + later_usd) - functions, 0)
        return dataclasses.replace(ended, costs_nusd=cut(costs, ended.most_nusd, "workers"))


def _with_more(ended: Ended, nusd: int) -> Ended:
    """``ended`` with ``nusd`` more for workers: these, and their requests, are most of what is not known."""
    costs = {**ended.costs_nusd, "workers": ended.costs_nusd.get("workers", 0) + nusd}
    return dataclasses.replace(ended, costs_nusd=cut(costs, ended.most_nusd, "workers")) if nusd else ended
