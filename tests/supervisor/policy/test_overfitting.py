"""A person is told when training has stopped helping: once a best, and again only when much more was spent."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlless_nb.supervisor.policy.overfitting import AGAIN, LEAST_EVALUATIONS, Evaluation, Overfitting

#: An evaluation every ten steps and half epoch, a second apart, at a dollar a thousand seconds.
RATE_USD_S = 1e-3


def told(
    losses: list[float], cap_usd: float | None = None, *, per_epoch: float = 2.0, **stop: Any
) -> list[tuple[int, str]]:
    """What is said of ``losses``, with the number of evaluations (1-based) at which it is."""
    judge, said = Overfitting(stop), []
    for number, loss in enumerate(losses, start=1):
        judge.observe(Evaluation(10 * number, number / per_epoch, float(number), loss))
        sentence = judge.advise(number * RATE_USD_S, RATE_USD_S, cap_usd)
        if sentence is not None:
            said.append((number, sentence))
    return said


FALLS_THEN_RISES = [1 - 0.01 * n for n in range(40)] + [0.62 + 0.001 * n for n in range(40)]


def test_rising_loss_is_told_with_what_a_stop_keeps_and_saves() -> None:
    ((number, sentence),) = told(FALLS_THEN_RISES[:55], cap_usd=0.1)
    assert number == 40 + 40 // 4  # a quarter of the epochs that the best one took
    assert sentence == "No better since epoch 20: a stop now keeps 0.6100 and saves $0.05"


@pytest.mark.parametrize(
    ("stop", "cap_usd", "saves"),
    [
        ({"epochs": 30}, None, " and saves $0.01"),
        ({"steps": 600}, None, " and saves $0.01"),
        ({"time_s": 70.0}, None, " and saves $0.02"),
        ({"patience": 15}, None, " and saves $0.005"),
        ({"epochs": 30, "time_s": 55.0}, 0.1, " and saves $0.005"),
        ({"epochs": 300}, 0.06, " and saves $0.01"),
        ({"target": 0.5}, None, ""),
        ({}, None, ""),
    ],
)
def test_what_is_left_is_of_whichever_rule_is_first(stop: dict[str, Any], cap_usd: float | None, saves: str) -> None:
    ((_, sentence),) = told(FALLS_THEN_RISES[:51], cap_usd, **stop)
    assert sentence == f"No better since epoch 20: a stop now keeps 0.6100{saves}"


def test_it_is_told_again_only_when_much_more_was_spent() -> None:
    numbers = [number for number, _ in told([0.5] * 3 + [0.6] * 200)]
    assert len(numbers) > 2
    assert all(after >= AGAIN * before for before, after in pairwise(numbers))


def test_a_new_best_is_told_of_anew() -> None:
    losses = [0.6] + [0.7] * 20 + [0.5] + [0.7] * 20
    kept = [sentence.split("keeps ")[1] for _, sentence in told(losses)]
    assert set(kept) == {"0.6000", "0.5000"}
    assert kept == sorted(kept, reverse=True)


def test_an_end_that_is_near_is_not_worth_a_word() -> None:
    assert told(FALLS_THEN_RISES[:55], cap_usd=0.0505) == []
    assert told(FALLS_THEN_RISES[:50], epochs=25) == []


@pytest.mark.parametrize(
    ("left_usd", "amount"), [(0.0012, "$0.0012"), (0.35, "$0.35"), (12, "$12.00"), (1e-5, "$0.00001")]
)
def test_dollars_are_short(left_usd: float, amount: str) -> None:
    judge = Overfitting({})
    for number in range(1, 51):
        judge.observe(Evaluation(number, number, number, 0.5 + (number > 1)))
    assert (judge.advise(1e-5, RATE_USD_S, 1e-5 + left_usd) or "").endswith(f"saves {amount}")


@given(st.lists(st.floats(0.1, 2), max_size=60), st.floats(0.2, 20))
def test_nothing_is_said_soon_after_a_best(losses: list[float], per_epoch: float) -> None:
    for number, sentence in told(losses, per_epoch=per_epoch):
        best = min(losses[:number])
        since = number - 1 - losses.index(best)
        assert since >= LEAST_EVALUATIONS
        assert since / per_epoch >= 0.999
        assert f"keeps {best:.4f}" in sentence


@given(st.integers(2, 200))
def test_a_loss_that_falls_is_never_told_of(n: int) -> None:
    assert told([1 / (1 + number) for number in range(n)], cap_usd=1.0) == []
