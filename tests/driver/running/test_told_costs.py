"""What a run has cost by its supervisors' words, of which a later one may know less."""

from __future__ import annotations

from typing import Any

import pytest

from mlless_nb.bus.messages import Ended
from mlless_nb.driver.running.told_costs import ToldCosts
from mlless_nb.money import Rates, price_profile
from mlless_nb.money.meter import NUSD

RATES = Rates(price_profile("aws-lambda-x86"), 1769, n_redis=0)


def state(time_s: float, spent_usd: float, since_s: float | None = None) -> dict[str, Any]:
    """What a supervisor tells, while a second costs $0.25."""
    told = {"time_s": time_s, "spent_usd": spent_usd, "rate_usd_s": 0.25, "step": 7}
    return told if since_s is None else {**told, "heard_since_s": since_s}


def spent(costs: ToldCosts, told: dict[str, Any]) -> float:
    """What is passed on of ``told``; nobody else knows the field that is for this alone."""
    costs.take(told)
    assert told.keys() == {"time_s", "spent_usd", "rate_usd_s", "step"}
    return float(told["spent_usd"])


def ended(n_invoked: int | None, workers_usd: float, most_usd: float | None = None) -> Ended:
    """A final message."""
    costs = {"workers": round(workers_usd * NUSD), "supervisor": 0}
    most = None if most_usd is None else round(most_usd * NUSD)
    return Ended("finished", "", 9, None, None, costs, 60.0, n_invoked=n_invoked, most_nusd=most)


def test_what_a_supervisor_says_that_has_heard_all_is_passed_on() -> None:
    costs = ToldCosts(RATES)
    assert [spent(costs, state(at_s, usd)) for at_s, usd in ((1.0, 2.0), (2.0, 1.5), (3.0, 4.0))] == [2.0, 1.5, 4.0]
    assert costs.billed(ended(0, 5.0)) == ended(0, 5.0)
    nothing: dict[str, Any] = {"status": "running"}
    costs.take(nothing)
    assert nothing == {"status": "running"}


def test_what_a_later_one_does_not_know_is_added_from_its_first_word_on() -> None:
    costs = ToldCosts(RATES)
    spent(costs, state(10.0, 8.0))
    assert spent(costs, state(12.0, 3.0, since_s=11.0)) == 8.5  # it was silent for two seconds
    assert spent(costs, state(13.0, 3.25, since_s=11.0)) == 8.75
    assert spent(costs, state(14.0, 3.0, since_s=11.0)) == 8.5  # a bill was closed that had been estimated
    assert costs.billed(ended(None, 4.0)).costs_nusd == {"workers": round(9.5 * NUSD), "supervisor": 0}
    # The one after it does not know what that one knew.
    assert spent(costs, state(15.0, 0.5, since_s=14.5)) == 8.75
    assert costs.billed(ended(None, 1.0)).costs_nusd == {"workers": round(9.25 * NUSD), "supervisor": 0}


def test_started_seconds_of_the_servers_are_no_difference() -> None:
    rates = Rates(price_profile("aws-lambda-x86"), 1769, n_redis=1000)
    for ends_s in (12.0, 12.5, 12.9, 13.0):
        costs = ToldCosts(rates)
        before, after = ((at_s, rates.servers_nusd(at_s + rates.tail_s) / NUSD) for at_s in (10.9, ends_s))
        told = state(before[0], 8.0 + before[1]), state(after[0], 3.0 + after[1], since_s=11.0)
        for each in told:
            each["rate_usd_s"] += rates.servers_usd_s
            costs.take(each)
        assert told[1]["spent_usd"] == pytest.approx(8.0 + 0.25 * (ends_s - 10.9) + after[1])


def test_one_that_bills_more_than_was_expected_is_believed() -> None:
    costs = ToldCosts(RATES)
    spent(costs, state(10.0, 8.0))
    assert spent(costs, state(11.0, 9.0, since_s=10.5)) == 9.0
    assert costs.billed(ended(None, 10.0)) == ended(None, 10.0)


@pytest.mark.parametrize(("own_usd", "expected_usd"), [(3.0, 8.0), (9.0, 9.0)])
def test_a_driver_that_does_not_know_the_past_bills_what_was_told_or_more(own_usd: float, expected_usd: float) -> None:
    costs = ToldCosts(RATES)
    spent(costs, state(10.0, 8.0))
    assert costs.at_least(ended(None, own_usd)).costs_nusd["workers"] == round(expected_usd * NUSD)
    assert costs.at_least(ended(4, own_usd)) == ended(4, own_usd)


def test_no_more_is_billed_than_was_reserved() -> None:
    costs = ToldCosts(RATES)
    spent(costs, state(10.0, 8.0))
    assert sum(costs.at_least(ended(None, 3.0, most_usd=7.0)).costs_nusd.values()) == 7 * NUSD
