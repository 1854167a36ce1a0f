"""Successors that the supervisor has not heard of are billed what they were granted to start."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from mlless_nb.bus.messages import Ended
from mlless_nb.driver.backends.exits import Exits
from mlless_nb.driver.ending.unreported import UnreportedFunctions
from mlless_nb.money import Rates, price_profile
from mlless_nb.money.start import StartingMoney

RATES = Rates(price_profile("aws-lambda-x86"), 1769)


def billed(n_invoked: int | None, *, is_local: bool = False) -> dict[str, int]:
    money = StartingMoney(RATES, 2, is_local)
    unreported = UnreportedFunctions(money, RATES, Exits(list), 0.0)
    for slots, is_successor in (([-1, 0, 1], False), ([0], True), ([1, -1], True)):
        some: Any = [SimpleNamespace(slot=slot, is_successor=is_successor, invoked_s=0.0) for slot in slots]
        unreported.note(some)
    costs = {"workers": 100, "supervisor": 10, "redis": 1}
    return unreported.billed(Ended("finished", "", 9, None, None, costs, 60.0, n_invoked=n_invoked)).costs_nusd


def test_those_that_nobody_has_heard_of_are_added_to_the_bill_of_a_cloud() -> None:
    each = RATES.function_nusd(StartingMoney(RATES, 2, False).start_s)
    known = {"workers": 100, "supervisor": 10, "redis": 1}
    assert billed(3) == known
    assert billed(2) == known | {"supervisor": 10 + each}
    assert billed(0) == known | {"workers": 100 + 2 * each, "supervisor": 10 + each}
    assert billed(None) == billed(0, is_local=True) == known


class Known:
    """Exits of which each slot's newest is known, if it is."""

    began_at: float | None = 100.0

    def __init__(self) -> None:
        self.exited_at: dict[int, float] = {}
        self.until_of: dict[tuple[int, float], float] = {}

    def until(self, slot: int, invoked_s: float) -> float | None:
        """See `Exits`."""
        return self.until_of.get((slot, invoked_s))

    def invoked(self, invoked_at: dict[int, float]) -> None:
        """Others are the newest ones now."""
        self.exited_at = {}

    def at(self, slot: int) -> float | None:
        """See `Exits`."""
        return self.exited_at.get(slot)


def local_run() -> tuple[Any, UnreportedFunctions, Callable[..., None]]:
    """Exits, and the functions of a run of two workers on this machine; and what invokes some of those."""
    exits: Any = Known()
    unreported = UnreportedFunctions(StartingMoney(RATES, 2, True), RATES, exits, 100.0)

    def invoke(invoked_s: float, *slots: int, is_successor: bool = False) -> None:
        some: Any = [SimpleNamespace(slot=slot, is_successor=is_successor, invoked_s=invoked_s) for slot in slots]
        unreported.note(some)

    return exits, unreported, invoke


def test_functions_have_lived_until_they_exited_or_others_came_in_their_places() -> None:
    """Of those that came after the last word before a loss of the run's data nothing was billed."""
    exits, unreported, invoke = local_run()
    invoke(0.0, -1, 0, 1)
    exits.exited_at = {0: 125.0}  # of worker 1 it is not known
    invoke(30.0, 0, 1)
    exits.exited_at = {0: 138.0, -1: 145.0}
    ended = Ended("capped", "", 9, None, None, {}, 40.0, n_invoked=None, unheard=[[-1, 0.0]])
    assert unreported.lived_s(ended, 0.0) == 40.0 + (25.0 + 8.0) + 30.0
    assert unreported.lived_s(ended, 20.0) == 20.0 + (5.0 + 8.0) + 10.0
    assert unreported.lived_s(ended, 39.0) == 1.0
    ended.unheard.append([1, 0.0])
    assert unreported.lived_s(ended, 20.0) == 20.0 + (5.0 + 8.0) + (10.0 + 10.0)
    ended.unheard.append([2, 0.0])  # another function has invoked those of slots 2 and 3
    assert unreported.lived_s(ended, 20.0) == 20.0 + (5.0 + 8.0) + (10.0 + 10.0) + 20.0
    exits.exited_at = {}
    invoke(30.0, 3)
    assert unreported.lived_s(dataclasses.replace(ended, unheard=[]), 20.0) == 5.0 + 10.0 + 10.0


def test_a_function_has_lived_on_beside_its_successor_until_it_exited() -> None:
    """It was taken to end as its successor was invoked, which takes seconds to start: -3.5 to -5.9 % of a bill."""
    exits, unreported, invoke = local_run()
    invoke(0.0, -1, 0, 1)
    invoke(30.0, 0, 1, is_successor=True)
    exits.exited_at = {-1: 130.0, 0: 140.0, 1: 140.0}
    ended = Ended("capped", "", 9, None, None, {}, 40.0, n_invoked=None)
    assert unreported.lived_s(ended, 0.0) == 30.0 + 2 * (30.0 + 10.0)  # of both it was never seen who they are
    exits.until_of = {(0, 0.0): 133.0, (1, 0.0): math.inf}
    assert unreported.lived_s(ended, 0.0) == 30.0 + (33.0 + 10.0) + (40.0 + 10.0)
    assert unreported.lived_s(ended, 32.0) == (1.0 + 8.0) + (8.0 + 8.0)


def test_no_more_is_billed_for_functions_than_they_can_have_lived() -> None:
    """A supervisor told what all had cost as if they lived on, and was lost as the worker was: +5 to +7 % of a bill."""
    exits, unreported, invoke = local_run()

    def most(workers: int) -> dict[str, int]:
        costs = {"workers": workers, "supervisor": 20, "storage": 7}
        unheard = [[-1, 0.0], [0, 0.0]]  # worker 1 has told what it costs
        return unreported.at_most(Ended("capped", "", 9, None, None, costs, 40.0, unheard=unheard)).costs_nusd

    invoke(0.0, -1, 0, 1)
    exits.exited_at = {-1: 130.0, 0: 125.0, 1: 140.0}
    known = RATES.lost_nusd(30.0) + RATES.lost_nusd(25.0) + RATES.function_nusd(40.0)
    assert most(known - 20) == {"workers": known - 20, "supervisor": 20, "storage": 7}
    assert most(known + 1000) == {"workers": known - 20, "supervisor": 20, "storage": 7}
    invoke(30.0, 0)  # another one after a gap, until which it was not missed
    exits.exited_at = {-1: 130.0, 0: 138.0}
    known += RATES.function_nusd(30.0) - RATES.lost_nusd(25.0) + RATES.lost_nusd(8.0)
    assert most(10**12)["workers"] == known - 20
    invoke(39.0, 1, is_successor=True)  # the one before it works on
    exits.exited_at = {-1: 130.0, 0: 138.0}
    beside = RATES.function_nusd(39.0) + RATES.function_nusd(1.0)
    assert most(10**12)["workers"] == known - 20 + beside
