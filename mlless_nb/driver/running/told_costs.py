"""What a run has cost by its supervisors' words, also where one does not know what those before it had heard.

A Redis that loses its data takes with it what functions have said. A supervisor that has heard it goes on with its
bill; the next one begins anew. Its first word is then lower than the last one of the one before: the rest is added to
its bill from then on.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from ...bus.messages import Ended
from ...money import Rates
from ...money.meter import NUSD, to_nusd
from ..ending.final_bill import cut


class ToldCosts:
    """Those of one run.

    Parameters
    ----------
    rates : Rates
    """

    def __init__(self, rates: Rates) -> None:
        self._rates = rates
        self._time_s, self._spent_usd, self._rate_usd_s = 0.0, 0.0, 0.0  # as of the newest word
        self._heard_since_s: float | None = None  # of the supervisor whose bill lacks what was before
        self._unknown_usd = 0.0  # to it

    def take(self, state: dict[str, Any]) -> None:
        """Take in the ``state`` of an update, and add to its cost what its sender does not know."""
        since_s = state.pop("heard_since_s", None)
        if "spent_usd" not in state:
            return
        time_s, spent_usd = state["time_s"], state["spent_usd"]
        if since_s is not None and since_s != self._heard_since_s:
            # Of the servers' time both know all; started seconds are billed whole.
            rate_usd_s, known_usd = self._rate_usd_s - self._rates.servers_usd_s, spent_usd - self._servers_usd(time_s)
            expected_usd = self._spent_usd - self._servers_usd(self._time_s)
            expected_usd += rate_usd_s * max(time_s - self._time_s, 0.0)
            self._unknown_usd = max(expected_usd - known_usd, 0.0)
        self._heard_since_s = since_s
        state["spent_usd"] = spent_usd + (self._unknown_usd if since_s is not None else 0.0)
        self._time_s, self._spent_usd, self._rate_usd_s = time_s, state["spent_usd"], state["rate_usd_s"]

    def _servers_usd(self, time_s: float) -> float:
        return self._rates.servers_nusd(time_s + self._rates.tail_s) / NUSD

    def billed(self, ended: Ended) -> Ended:
        """A supervisor's final message with what it does not know."""
        if ended.n_invoked is not None or self._heard_since_s is None:
            return ended
        return _with_more(ended, to_nusd(self._unknown_usd))

    def at_least(self, ended: Ended) -> Ended:
        """A final message of the driver's own: if it does not know the past, it costs what was told before, or more."""
        if ended.n_invoked is not None:
            return ended
        return _with_more(ended, max(to_nusd(self._spent_usd) - sum(ended.costs_nusd.values()), 0))


def _with_more(ended: Ended, nusd: int) -> Ended:
    """``ended`` with ``nusd`` more for workers: these, and their requests, are most of what is not known."""
    costs = {**ended.costs_nusd, "workers": ended.costs_nusd.get("workers", 0) + nusd}
    return dataclasses.replace(ended, costs_nusd=cut(costs, ended.most_nusd, "workers"))
