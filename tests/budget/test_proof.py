"""A few trials of the proof that no run spends more than its cap; ``make budget-proof`` does hundreds of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
from budget.outcomes import Outcome, lacking, summary
from budget.plans import DRIVER, PLACES, RABBITMQ, STORAGE, SUPERVISOR, Plan, drawn
from budget.proof import Site, numbers_of, prove, tried

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes through /proc")
#: An outcome that is as it must be: the meter has heard of everything, and is right.
RIGHT = Outcome(
    *(Plan(0, 2, "BSP", 1.0), 1.0, 0.9, "capped", "the budget does not pay for another step", 10),
    metered=0.9,
    metered_servers=0.4,
    needed=0.5,
    missed=0.5,
    unspent=0.01,
    slice_usd=0.01,
    last_usd=0.001,
)


@pytest.fixture
def site(redis_program: str, tmp_path: Path) -> Iterator[Site]:
    """A Redis to be killed and paused."""
    one = Site(tmp_path, redis_program)
    yield one
    one.close()


def test_plans_follow_from_the_seed() -> None:
    plans = [drawn(7, number) for number in range(200)]
    assert plans == [drawn(7, number) for number in range(200)]
    assert plans != [drawn(8, number) for number in range(200)]
    struck = {what for plan in plans for _, what in plan.faults}
    assert struck >= {"0", "1", "2", "3", SUPERVISOR, "everybody", DRIVER, "redis restart", "redis pause", "slow 1"}
    assert {plan.place for plan in plans} == {*PLACES}
    for place in PLACES:
        assert any(plan.lifetime_s for plan in plans if plan.place == place)
    assert any(plan.resumes for plan in plans)
    assert any(plan.twice for plan in plans)
    assert any(plan.raised for plan in plans)
    assert any(plan.skew_s for plan in plans)
    assert any(plan.times_least == 1.0 for plan in plans)
    assert not any(what.startswith("redis") for plan in plans if plan.place == STORAGE for _, what in plan.faults)


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({}, ""),
        ({"spent": 1.1}, "the cap was passed"),
        ({"metered": 0.89}, "the meter is too low"),
        ({"metered": 0.91}, "the meter is too high"),
        ({"metered": 0.91, "needed": 0.5, "missed": 0.51}, ""),  # a successor that waited in vain
        ({"metered": 0.89, "struck": ("redis restart",)}, "the meter is too low"),
        ({"metered": 0.89, "n_lost": 1}, "the meter is too low"),
        ({"metered": 0.91, "n_lost": 1}, "the meter is too high"),
        ({"metered": 0.904, "last_usd": 0.0, "n_lost": 1}, ""),
        ({"unspent": 0.022}, "more than a slice a worker was not spent"),
        ({"unspent": 0.022, "n_lost": 1}, ""),
        ({"status": "failed", "reason": "it broke"}, "failed: it broke"),
        ({"status": "killed", "metered": 0.0}, "killed: the budget does not pay for another step"),
        ({"status": "killed", "metered": 0.0, "struck": (DRIVER,)}, ""),
        ({"status": "refused"}, "refused: the budget does not pay for another step"),
    ],
)
def test_what_is_not_as_it_must_be_is_said(changes: dict[str, object], wrong: str) -> None:
    outcome = dataclasses.replace(RIGHT, **changes)
    assert "; ".join(outcome.wrong) == wrong
    assert ("WRONG" in str(outcome)) == bool(wrong)


def test_a_whole_proof_must_have_met_what_is_drawn() -> None:
    assert lacking([RIGHT] * 99) == []
    assert "a hand-over" in lacking([RIGHT] * 100)
    told = ["Worker 0 handed over after step 3 to its duplicate, which cost $0.1 until then", "worker 1 replaced"]
    others = [dataclasses.replace(RIGHT, plan=dataclasses.replace(RIGHT.plan, place=place)) for place in PLACES]
    resumed = dataclasses.replace(RIGHT, plan=dataclasses.replace(RIGHT.plan, resumes=True, twice=(1.0, 0)), told=told)
    assert lacking([resumed, *others] * 25) == []
    assert "100 of 100 caps kept, 100 of 100 trials as they must be" in summary(1, [resumed, *others] * 25)


def test_numbers_of_trials_may_be_ranges() -> None:
    assert [*numbers_of("7"), *numbers_of("10-12")] == [7, 10, 11, 12]


@pytest.mark.long
def test_a_run_whose_functions_are_killed_and_whose_clocks_are_off_keeps_its_cap(site: Site) -> None:
    plan = Plan(0, 2, "ISP", 4.0, (50, 1.5), 3600.0, ((0.5, "1"), (1.5, SUPERVISOR)))
    outcome = tried(plan, site)
    assert not outcome.wrong, outcome
    assert outcome.spent > 0


@pytest.mark.long
def test_a_run_that_goes_on_from_a_capped_one_keeps_its_own_cap(site: Site) -> None:
    outcome = tried(Plan(0, 2, "BSP", 1.5, resumes=True), site)
    assert not outcome.wrong, outcome
    assert any(text.startswith("Goes on from") for text in outcome.told), outcome.told


@pytest.mark.proof
def test_caps_are_kept_in_random_trials(site: Site) -> None:
    outcomes = prove(20, [*range(12)], [site])
    assert not [outcome for outcome in outcomes if outcome.wrong]
    assert any(outcome.plan.place == RABBITMQ for outcome in outcomes)  # over Redis, as this site has no broker
