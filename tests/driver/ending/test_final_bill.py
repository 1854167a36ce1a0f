"""The bill of a final message, with the functions whose end nobody heard billed until they exited."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mlless_nb.bus.messages import Ended, Message
from mlless_nb.driver.ending.final_bill import as_lived, until_exits
from mlless_nb.money import Rates, price_profile
from mlless_nb.money.cost import cut

RATES = Rates(price_profile("aws-lambda-x86"), 1769)
LAUNCHED_AT = 1000.0


class Known:
    """See `Exits`: seconds after the launch, by slot."""

    began_at: float | None = None

    def __init__(self, **at_s: float) -> None:
        self._at_s = {int(slot.removeprefix("slot").replace("m", "-")): at for slot, at in at_s.items()}

    def at(self, slot: int, _: float) -> float | None:
        """See `Exits`."""
        at_s = self._at_s.get(slot)
        return None if at_s is None else LAUNCHED_AT + at_s


def message(unheard: list[list[float]], most_nusd: int | None = None) -> Ended:
    """The end after 10 s of a run whose functions were all billed for 10 s."""
    function = RATES.function_nusd(10.0)
    costs = {"workers": 2 * function, "supervisor": function, "redis": 7, "storage": 11}
    ended = Ended("failed", "lost", 3, None, None, costs, 10.0, unheard=unheard, most_nusd=most_nusd)
    assert Message.decode(ended.encode()) == ended
    return ended


def corrected(ended: Ended, known: Any) -> dict[str, int]:
    """Its costs."""
    return until_exits(ended, known, LAUNCHED_AT, RATES).costs_nusd


def test_lost_functions_are_billed_until_they_exited() -> None:
    costs = corrected(message([[0.0, 0.0], [-1.0, 4.0]]), Known(slot0=3.0, slotm1=8.0))
    whole = RATES.function_nusd(10.0)
    assert costs["workers"] == whole + RATES.lost_nusd(3.0)
    # The supervisor's bill had begun after 4 s, after that of another one.
    assert costs["supervisor"] == whole - RATES.function_nusd(6.0) + RATES.lost_nusd(4.0)
    assert (costs["redis"], costs["storage"]) == (7, 11)


def test_one_whose_exit_is_the_end_of_the_run_is_billed_no_time_after_a_return() -> None:
    costs = corrected(message([[0.0, 0.0]]), Known(slot0=10.0))
    assert costs["workers"] == RATES.function_nusd(10.0) + RATES.lost_nusd(10.0)


def test_no_function_is_billed_before_the_process_that_starts_them_was_there() -> None:
    known = Known(slot0=3.0)
    known.began_at = LAUNCHED_AT + 1.0
    costs = corrected(message([[0.0, 0.0], [1.0, 0.0], [-1.0, 4.0]]), known)
    assert costs["workers"] == RATES.lost_nusd(2.0) + RATES.function_nusd(9.0)
    assert costs["supervisor"] == RATES.function_nusd(10.0)  # it said when its bill began, and was another one's before
    # None is billed for less than nothing.
    known.began_at = LAUNCHED_AT + 20.0
    assert corrected(message([[1.0, 0.0]]), known)["workers"] == RATES.function_nusd(10.0) + RATES.function_nusd(0.0)


def test_one_that_outlives_the_message_is_billed_until_it_exits_and_so_are_the_servers() -> None:
    costs = corrected(message([[0.0, 0.0], [1.0, 9.5]]), Known(slot0=10.5, slot1=12.2))
    functions = RATES.lost_nusd(10.5) + RATES.lost_nusd(12.2 - 9.5)
    assert costs["workers"] == 2 * RATES.function_nusd(10.0) + functions - RATES.function_nusd(
        10.0
    ) - RATES.function_nusd(0.5)
    # The message has the servers' started seconds: eleven.
    assert costs["redis"] == 7 + RATES.servers_nusd(12.2) - RATES.servers_nusd(10.0 + RATES.tail_s)
    # No more is billed than was reserved.
    most = sum(message([]).costs_nusd.values()) + 100
    assert sum(corrected(message([[0.0, 0.0]], most), Known(slot0=12.0)).values()) == most


@pytest.mark.parametrize(
    ("unheard", "known"),
    [
        ([], Known(slot0=3.0)),  # its end was heard
        ([[0.0, 0.0]], Known(slot1=3.0)),  # another one's
        ([[0.0, 5.0]], Known(slot0=3.0)),  # that of the one before
    ],
)
def test_all_others_are_billed_as_the_message_says(unheard: list[list[float]], known: Any) -> None:
    ended = message(unheard)
    assert corrected(ended, known) == ended.costs_nusd


def test_no_more_is_billed_than_was_reserved_and_lost_functions_are_cut_first() -> None:
    whole = RATES.function_nusd(10.0)
    total = sum(message([]).costs_nusd.values())
    costs = corrected(message([[0.0, 0.0]], most_nusd=total - 100), Known())
    assert costs == {"workers": 2 * whole - 100, "supervisor": whole, "redis": 7, "storage": 11}
    costs = corrected(message([[-1.0, 0.0]], most_nusd=total - 100), Known())
    assert costs == {"workers": 2 * whole, "supervisor": whole - 100, "redis": 7, "storage": 11}
    # What is known of the exits is less than was reserved: nothing is cut.
    costs = corrected(message([[0.0, 0.0]], most_nusd=total - 100), Known(slot0=3.0))
    assert costs["workers"] == whole + RATES.lost_nusd(3.0)


def test_a_bill_within_the_most_stays_and_one_above_is_cut_to_it() -> None:
    costs = {"workers": 10, "supervisor": 5, "storage": 1}
    assert cut(costs, None) == cut(costs, 16) == costs
    assert cut(costs, 9) == {"workers": 8, "supervisor": 0, "storage": 1}
    assert sum(cut(costs, 0).values()) == 0
    assert costs == {"workers": 10, "supervisor": 5, "storage": 1}


def lived(costs: dict[str, int], *lives: tuple[float, float], are_all: bool = True) -> dict[str, int]:
    """``costs`` with functions of these lives."""
    exits: Any = SimpleNamespace(lives=lambda: (list(lives), are_all))
    return as_lived(costs, exits, RATES)


def test_functions_are_billed_for_no_less_than_their_processes_lived() -> None:
    one, other = (5.0, 12.0), (5.0, 7.5)
    least = RATES.lost_nusd(7.0) + RATES.lost_nusd(2.5)
    costs = {"workers": least - 5_000, "supervisor": 1_000, "storage": 11}
    assert lived(costs, one, other) == {"workers": least - 1_000, "supervisor": 1_000, "storage": 11}
    # Also if more are there, of which nothing is known.
    assert lived(costs, one, other, are_all=False)["workers"] == least - 1_000
    assert lived({"storage": 11}, one) == {"workers": RATES.lost_nusd(7.0), "storage": 11}


def test_functions_are_billed_for_no_more_than_all_of_them_have_lived() -> None:
    one, other = (5.0, 12.0), (5.0, 7.5)
    most = RATES.function_nusd(7.0) + RATES.function_nusd(2.5)
    costs = {"workers": most, "supervisor": 1_000, "storage": 11}
    assert lived(costs, one, other) == {"workers": most - 1_000, "supervisor": 1_000, "storage": 11}
    # Others may be those that are billed.
    assert lived(costs, one, other, are_all=False) == lived(costs) == costs


def test_a_bill_between_what_they_have_lived_and_the_time_after_a_return_stays() -> None:
    costs = {"workers": RATES.lost_nusd(7.0), "supervisor": RATES.function_nusd(2.5), "redis": 7}
    assert lived(costs, (5.0, 12.0), (5.0, 7.5)) == costs
