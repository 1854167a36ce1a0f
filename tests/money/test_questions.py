"""Functions whose budget answers slowly ask for more in time, and only as long as it does."""

from __future__ import annotations

import pytest

from mlless_nb.money import Rates, price_profile
from mlless_nb.money.budget import BUY_AHEAD_S, EXIT_S, Prepaid
from mlless_nb.money.questions import MOST_S

RATES = Rates(price_profile("aws-lambda-x86"), 1769, n_redis=0)


class Asking:
    """A function on a clock of its own, with a budget that answers after ``takes_s`` seconds."""

    def __init__(self) -> None:
        self.now_s, self.takes_s = 0.0, 0.0
        self.prepaid = Prepaid(RATES, RATES.function_nusd(1.0), lambda: self.now_s, lambda: 0)
        self.prepaid.learn(10**12, 0)

    def reserve(self, nusd: int, least_nusd: int, request_id: str) -> int:
        """All that is asked for."""
        self.now_s += self.takes_s
        return nusd

    def ask(self, takes_s: float) -> float:
        """After one answer that took so long: how many seconds before the end of its grant it asks again."""
        self.takes_s, self.now_s = takes_s, self.now_s + max(self.prepaid.left_s, 0.0)
        assert self.prepaid.hold_out(self.reserve)
        return self.prepaid.buy_ahead_s


def test_who_was_answered_late_asks_sooner_until_answers_are_quick_again() -> None:
    function = Asking()
    assert function.prepaid.buy_ahead_s == BUY_AHEAD_S
    assert function.ask(0.4) == pytest.approx(BUY_AHEAD_S + 0.8)
    assert function.prepaid.exit_s == EXIT_S  # it may be refused, and then no step is
    assert [function.ask(0.0) for _ in range(3)] == pytest.approx([BUY_AHEAD_S + part for part in (0.4, 0.2, 0.1)])


def test_a_request_that_failed_after_minutes_is_no_measure() -> None:
    assert Asking().ask(200.0) == BUY_AHEAD_S + MOST_S


def test_each_answer_comes_before_the_grant_ends() -> None:
    """Grants of half a second ended before the next answer, which took as long: the run ended with its cap unused."""
    function = Asking()
    function.ask(0.45)
    for _ in range(20):
        function.now_s += max(function.prepaid.left_s - function.prepaid.buy_ahead_s, 0.0)
        assert function.prepaid.hold_out(function.reserve)
        assert function.prepaid.left_s > 0.0


def test_the_last_of_a_budget_is_not_kept_for_slow_answers() -> None:
    function = Asking()
    function.ask(0.4)
    function.prepaid.learn(10**12, 10**12 - 1)
    assert function.prepaid.buy_ahead_s == BUY_AHEAD_S
