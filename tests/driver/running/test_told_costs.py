"""What a run has cost by its supervisors' words, of which a later one may know less."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mlless_nb.bus.messages import Ended
from mlless_nb.driver.running.told_costs import ToldCosts
from mlless_nb.money import Rates, price_profile
from mlless_nb.money.meter import NUSD

RATES = Rates(price_profile("aws-lambda-x86"), 1769, n_redis=0)


def state(time_s: float, spent_usd: float, step: int, since_s: float = 0.0, *, lacks: bool = False) -> dict[str, Any]:
    """What a supervisor tells, while a second costs $0.25."""
    own = {"heard_since_s": since_s, "lacks_past": lacks}
    return {"time_s": time_s, "spent_usd": spent_usd, "rate_usd_s": 0.25, "step": step, **own}


def spent(costs: ToldCosts, told: dict[str, Any]) -> float:
    """What is passed on of ``told``; nobody else knows the fields that are for this alone."""
    costs.take(told)
    assert told.keys() - {"budget_usd"} == {"time_s", "spent_usd", "rate_usd_s", "step"}
    return float(told["spent_usd"])


def ended(n_invoked: int | None, workers_usd: float, most_usd: float | None = None) -> Ended:
    """A final message."""
    costs = {"workers": round(workers_usd * NUSD), "supervisor": 0}
    most = None if most_usd is None else round(most_usd * NUSD)
    return Ended("finished", "", 9, None, None, costs, 60.0, n_invoked=n_invoked, most_nusd=most)


def workers_usd(message: Ended) -> float:
    """What workers cost by a final message."""
    return message.costs_nusd["workers"] / NUSD


def test_what_a_supervisor_says_that_has_heard_all_is_passed_on() -> None:
    costs = ToldCosts(RATES)
    assert [spent(costs, state(at_s, usd, 1)) for at_s, usd in ((1.0, 2.0), (2.0, 1.5), (3.0, 4.0))] == [2.0, 1.5, 4.0]
    assert spent(costs, state(4.0, 3.0, 2, since_s=3.5)) == 3.0  # it has been told again what was before
    assert costs.billed(ended(0, 5.0)) == ended(0, 5.0)
    costs.lose_past()  # it knows the past all the same
    assert spent(costs, state(5.0, 4.0, 3, since_s=3.5)) == 4.0
    assert costs.billed(ended(0, 5.0)) == ended(0, 5.0)
    nothing: dict[str, Any] = {"status": "running"}
    costs.take(nothing)
    assert nothing == {"status": "running"}


def test_what_a_later_one_does_not_know_is_added_to_its_bill() -> None:
    costs = ToldCosts(RATES)
    spent(costs, state(10.0, 8.0, 70))
    assert spent(costs, state(12.0, 3.0, 50, since_s=11.0, lacks=True)) == 8.5  # it was silent for two seconds
    # With the first step functions tell it what they have requested since they began, $2: it is not unknown any more.
    assert spent(costs, state(13.0, 5.25, 51, since_s=11.0, lacks=True)) == 8.75
    assert spent(costs, state(14.0, 5.5, 60, since_s=11.0, lacks=True)) == 9.0
    assert spent(costs, state(15.0, 5.25, 61, since_s=11.0, lacks=True)) == 8.75  # an estimated bill was closed
    assert workers_usd(costs.billed(ended(None, 6.0))) == 9.5
    # The one after it does not know what that one knew.
    assert spent(costs, state(16.0, 0.5, 62, since_s=15.5, lacks=True)) == 9.0
    assert workers_usd(costs.billed(ended(None, 1.0))) == 9.5


def test_a_late_word_of_the_one_before_changes_nothing() -> None:
    costs = ToldCosts(RATES)
    spent(costs, state(10.0, 8.0, 70))
    spent(costs, state(12.0, 3.0, 50, since_s=11.0, lacks=True))
    assert spent(costs, state(10.5, 8.125, 70)) == 8.125
    assert spent(costs, state(13.0, 3.25, 51, since_s=11.0, lacks=True)) == 8.75


def test_started_seconds_of_the_servers_are_no_difference() -> None:
    rates = Rates(price_profile("aws-lambda-x86"), 1769, n_redis=1000)
    for ends_s in (12.0, 12.5, 12.9, 13.0):
        costs = ToldCosts(rates)
        before, after = ((at_s, rates.servers_nusd(at_s + rates.tail_s) / NUSD) for at_s in (10.9, ends_s))
        told = state(before[0], 8.0 + before[1], 1), state(after[0], 3.0 + after[1], 2, since_s=11.0, lacks=True)
        for each in told:
            each["rate_usd_s"] += rates.servers_usd_s
            costs.take(each)
        assert told[1]["spent_usd"] == pytest.approx(8.0 + 0.25 * (ends_s - 10.9) + after[1])


def test_one_that_bills_more_than_was_expected_is_believed() -> None:
    costs = ToldCosts(RATES)
    spent(costs, state(10.0, 8.0, 70))
    assert spent(costs, state(11.0, 9.0, 50, since_s=10.5, lacks=True)) == 9.0
    assert costs.billed(ended(None, 10.0)) == ended(None, 10.0)


def test_what_is_shown_is_never_above_the_budget() -> None:
    costs = ToldCosts(RATES)
    spent(costs, state(10.0, 8.0, 70))
    assert spent(costs, {**state(30.0, 3.0, 50, since_s=11.0, lacks=True), "budget_usd": 9.0}) == 9.0


def lived(*ends_s: float) -> Callable[[Ended, float], float]:
    """What functions have lived that ended then, seconds after the run."""
    return lambda _, since_s: sum(max(end_s - since_s, 0.0) for end_s in ends_s)


@pytest.mark.parametrize(("own_usd", "expected_usd"), [(3.0, 8.0), (9.0, 9.0)])
def test_a_driver_that_does_not_know_the_past_bills_what_was_told_or_more(own_usd: float, expected_usd: float) -> None:
    costs = ToldCosts(RATES)
    spent(costs, state(10.0, 8.0, 70))
    assert workers_usd(costs.at_least(ended(None, own_usd), lived())) == expected_usd
    assert costs.at_least(ended(4, own_usd), lived()) == ended(4, own_usd)
    costs.lose_past()
    assert workers_usd(costs.at_least(ended(4, own_usd), lived())) == expected_usd


def test_and_what_functions_have_lived_since() -> None:
    """Until that word their past costs what was told, with their tails; of two that lived on it is known how long."""
    costs = ToldCosts(RATES)
    spent(costs, state(10.0, 8.0, 70))
    later_usd = (2.0 + 0.5 - 2 * RATES.tail_s) * RATES.function_usd_s
    billed = workers_usd(costs.at_least(ended(None, 3.0), lived(9.0, 12.0, 10.5)))
    assert billed == pytest.approx(8.0 + later_usd, abs=2 / NUSD)
    assert workers_usd(costs.at_least(ended(None, 9.0), lived(12.0))) == 9.0


def test_what_servers_have_cost_is_known_and_no_part_of_that_past() -> None:
    rates = Rates(price_profile("aws-lambda-x86"), 1769, n_redis=1000)
    costs = ToldCosts(rates)
    told = state(10.0, 8.0 + rates.servers_nusd(10.0 + rates.tail_s) / NUSD, 70)
    costs.take(told)
    own = ended(None, 3.0)
    own.costs_nusd.update(rates.servers_by_component(rates.servers_nusd(60.0)))
    billed = costs.at_least(own, lived())
    assert workers_usd(billed) == pytest.approx(8.0, abs=2 / NUSD)
    assert {**billed.costs_nusd, "workers": 0} == {**own.costs_nusd, "workers": 0}


def test_no_more_is_billed_than_was_reserved() -> None:
    costs = ToldCosts(RATES)
    spent(costs, state(10.0, 8.0, 70))
    assert sum(costs.at_least(ended(None, 3.0, most_usd=7.0), lived()).costs_nusd.values()) == 7 * NUSD


def test_requests_that_were_told_are_on_the_bill_and_no_part_of_what_functions_have_lived() -> None:
    costs = ToldCosts(RATES)
    spent(costs, {**state(10.0, 8.0, 70), "requests_usd": 2.0})
    spent(costs, {**state(11.0, 1.0, 71, since_s=10.5, lacks=True), "requests_usd": 0.25})  # it lacks the others
    own = ended(None, 7.0)
    own.costs_nusd["storage"] = NUSD
    assert costs.at_least(own, lived()).costs_nusd == {"workers": 7 * NUSD, "supervisor": 0, "storage": 2 * NUSD}
    own.costs_nusd.update({"workers": 3 * NUSD, "storage": 3 * NUSD})
    # What was told is $8.25 by now.
    billed = costs.at_least(own, lived()).costs_nusd
    assert billed == {"workers": round(6.25 * NUSD), "supervisor": 0, "storage": 3 * NUSD}


def test_what_preparing_the_data_has_cost_is_on_the_bill_once() -> None:
    costs = ToldCosts(RATES)
    spent(costs, {**state(10.0, 8.0, 70), "requests_usd": 1.0})
    own = ended(None, 2.5)
    own.costs_nusd.update({"preparation": 4 * NUSD, "storage": NUSD // 4})
    known = {"workers": 3 * NUSD, "supervisor": 0, "preparation": 4 * NUSD, "storage": NUSD}
    assert costs.at_least(own, lived()).costs_nusd == known
