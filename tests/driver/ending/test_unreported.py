"""Successors that the supervisor has not heard of are billed what they were granted to start."""

from __future__ import annotations

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
