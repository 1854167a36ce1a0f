"""Functions that were invoked so late, or lost so silently, that a run's supervisor could not hear of them."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable

from ...bus.messages import Ended, Invocation
from ...exchange import SUPERVISOR
from ...money import Rates
from ...money.cost import FUNCTIONS, cut
from ...money.start import StartingMoney
from ..backends.exits import Exits
from .final_bill import until_exits

#: The life of a slot's first function, of which only its slot is known.
FIRST = 0.0, math.inf


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
        self._n_workers = money.n_workers
        self._slots: list[int] = []  # of all successors, in the order in which the supervisor was told of them
        # When the functions of each slot were invoked, and were known to have ended as the next one was, after the run.
        self._lives: dict[int, list[tuple[float, float]]] = {}
        # Those that live on beside a successor, until it has their slot: slots, and when they were invoked.
        self._followed: list[tuple[int, float]] = []

    def note(self, invocations: Iterable[Invocation]) -> None:
        """Note the lives that begin with ``invocations``, and which are successors: others the supervisor waits for."""
        invocations = list(invocations)
        for one in invocations:
            # The first one may have been invoked by another function.
            if lives := self._lives.setdefault(one.slot, [FIRST] if one.invoked_s else []):
                exited_at = self._exits.at(one.slot)
                exited_s = math.inf if exited_at is None else exited_at - self._launched_at
                self._followed += [(one.slot, lives[-1][0])] * one.is_successor
                lives[-1] = lives[-1][0], min(exited_s, one.invoked_s)
            lives.append((one.invoked_s, math.inf))
        self._exits.invoked({one.slot: self._launched_at + one.invoked_s for one in invocations})
        self._slots += [one.slot for one in invocations if one.is_successor]

    def lived_s(self, ended: Ended, since_s: float) -> float:
        """Seconds that all functions together have lived from ``since_s`` seconds after the run on.

        If it is not known when one exited, it has lived up to the end if it was ``ended.unheard``, else not.
        """
        unheard, lived_s = {int(slot) for slot, _ in ended.unheard}, 0.0
        for slot, lives in ({slot: [FIRST] for slot in unheard} | self._lives).items():
            exited_at = self._exits.at(slot)
            unknown_s = ended.time_s if slot in unheard else since_s
            last_s = unknown_s if exited_at is None else exited_at - self._launched_at
            for life in lives:
                until_s = min(last_s if life[1] == math.inf else self._until_s(slot, *life), ended.time_s)
                lived_s += max(until_s - max(life[0], since_s), 0.0)
        return lived_s

    def _until_s(self, slot: int, invoked_s: float, end_s: float) -> float:
        """When one has exited whose successor was invoked at ``end_s``: it may have worked on for seconds."""
        exited_at = self._exits.until(slot, invoked_s) if (slot, invoked_s) in self._followed else None
        return end_s if exited_at is None else max(exited_at - self._launched_at, end_s)

    def at_most(self, ended: Ended) -> Ended:
        """A final message of the driver's own, with no more for functions than those can have lived.

        What a lost supervisor has told was as if all were to live on; one that had just died may be in that.

        Parameters
        ----------
        ended : Ended
            Its bill in nano-dollars; ``time_s`` is when all had ended, seconds after the run.
        """
        rates, end_s, most = self._rates, ended.time_s, 0
        unheard = {int(slot) for slot, _ in ended.unheard}
        first_s = 0.0 if self._exits.began_at is None else self._exits.began_at - self._launched_at
        for slot in (SUPERVISOR, *range(self._n_workers)):
            exited_at = self._exits.at(slot)
            last_s = math.inf if exited_at is None else exited_at - self._launched_at
            invoked_s, last_s = [one for one, _ in self._lives.get(slot, [FIRST])], min(last_s, end_s)
            for since_s, until_s in itertools.pairwise([max(first_s, invoked_s[0]), *invoked_s[1:]]):
                most += rates.function_nusd(until_s - since_s)  # it was billed until it was missed
            lived_s = max(last_s - max(first_s, invoked_s[-1]), 0.0)
            is_lost = exited_at is not None and slot in unheard  # else it has told what it costs, with its tail
            most += rates.lost_nusd(lived_s) if is_lost else rates.function_nusd(lived_s)
        most += sum(rates.function_nusd(max(end_s - invoked_s, 0.0)) for _, invoked_s in self._followed)
        functions = {name: ended.costs_nusd.get(name, 0) for name in FUNCTIONS}
        return dataclasses.replace(ended, costs_nusd={**ended.costs_nusd, **cut(functions, most, "workers")})

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
