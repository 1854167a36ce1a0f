"""Fits of loss curves: they find what made the losses, say how sure they are, and survive whatever comes."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from supervisor.policy.curves import row

from mlless_nb.supervisor.policy.curve_fit import LEAST_POINTS, fit
from mlless_nb.supervisor.policy.knee import find_knee, has_emerged, kneedle
from mlless_nb.supervisor.policy.loss_history import History
from mlless_nb.supervisor.policy.pace import LEAST_JUDGED, horizon, newest_pace
from mlless_nb.supervisor.policy.smoothing import MOST_BINS, binned, ewma
from mlless_nb.telemetry.live import COLUMNS

STEPS = np.arange(1.0, 401.0)
FAMILIES = {
    "reference": lambda t: 1 / (0.02 * t**0.9 + 2) + 0.4,
    "current": lambda t: 1 / (1e-5 * t**2 + 0.01 * t + 2) + 0.4,
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_a_curve_of_the_family_is_found_whatever_its_magnitude(family: str, unit: float) -> None:
    curve = fit(STEPS, unit * FAMILIES[family](STEPS), family)
    assert curve is not None
    for ahead in (0, 50, 200):
        wanted = unit * FAMILIES[family](400.0 + ahead)
        assert curve.at(400 + ahead) == pytest.approx(wanted, rel=5e-3)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_step_of_a_loss_is_where_the_curve_has_it(family: str) -> None:
    curve = fit(STEPS, FAMILIES[family](STEPS), family)
    assert curve is not None
    loss = curve.at(600)
    assert curve.steps_to(loss, 400) == pytest.approx(600, rel=1e-6)
    assert curve.steps_to(1.0, 400) == 400
    assert curve.steps_to(curve.floor, 400) == math.inf
    assert curve.steps_to(curve.floor - 1, 400) == math.inf


@pytest.mark.parametrize("family", FAMILIES)
def test_more_noise_makes_less_sure_and_the_interval_holds_the_truth(family: str) -> None:
    rng = np.random.default_rng(0)
    inside, medians = [], []
    for noise in (0.001, 0.01):
        sds = []
        for _ in range(20):
            curve = fit(STEPS, FAMILIES[family](STEPS) + rng.normal(0, noise, 400), family, 1.0)
            assert curve is not None
            sds.append(curve.sd(500))
            inside.append(abs(curve.at(500) - FAMILIES[family](500.0)) < 1.2816 * curve.sd(500))
        medians.append(np.median(sds))
        assert 0 < medians[-1] < 3 * noise
    assert np.mean(inside) > 0.6
    assert medians[1] > 3 * medians[0]


def test_what_is_too_short_or_has_gaps_is_not_fitted() -> None:
    losses = FAMILIES["reference"](STEPS)
    assert fit(STEPS[: LEAST_POINTS - 1], losses[: LEAST_POINTS - 1], "current") is None
    losses[-3] = np.nan
    assert fit(STEPS, losses, "current") is None


@settings(deadline=None)
@given(st.lists(st.floats(-1e9, 1e9), max_size=60), st.sampled_from(list(FAMILIES)))
def test_any_numbers_give_a_finite_curve_or_none(losses: list[float], family: str) -> None:
    curve = fit(np.arange(1.0, len(losses) + 1), np.array(losses), family)
    if curve is not None:
        assert (curve.theta >= 0).all()
        assert math.isfinite(curve.at(len(losses) + 200))
        assert curve.sd(len(losses) + 200) >= 0
        assert curve.at(len(losses) + 200) <= curve.at(len(losses)) + 1e-9 * abs(curve.at(len(losses)))


@given(st.integers(1, 500), st.integers(1, MOST_BINS))
def test_bins_hold_every_record_once(n: int, most: int) -> None:
    values = np.random.default_rng(n).normal(size=n)
    bins = binned(np.arange(1.0, n + 1), values, most)
    assert len(bins.losses) == min(n, most)
    assert bins.counts.sum() == n
    assert float(bins.losses @ bins.counts) == pytest.approx(values.sum(), abs=1e-9)
    assert (np.diff(bins.steps) > 0).all()


def test_the_mean_follows_and_stays_within_the_values() -> None:
    smooth = ewma(np.array([4.0, 2.0, 2.0, 2.0]), 0.25)
    np.testing.assert_allclose(smooth, [4.0, 3.0, 8 / 3, 2.5])


@pytest.mark.parametrize("how", ["slope", "kneedle"])
@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e4])
def test_the_knee_is_found_whatever_the_magnitude(how: str, unit: float) -> None:
    losses = 0.5 + np.exp(-STEPS / 20) * 0.5
    knees = [find_knee(STEPS[:n], unit * losses[:n], how) for n in range(1, 200)]
    found = [knee for knee in knees if knee is not None]
    assert found
    assert found[0] >= 50
    assert found[0] <= 120


@pytest.mark.parametrize("how", ["slope", "kneedle"])
def test_a_straight_line_and_a_rise_have_no_knee(how: str) -> None:
    assert find_knee(STEPS, 1 - STEPS / 1000, how) is None
    assert find_knee(STEPS, 1 + STEPS / 1000, how) is None
    assert find_knee(STEPS, np.ones(400), how) is None


def two_descents(steps: NDArray[np.float64]) -> NDArray[np.float64]:
    """A plateau near step 150, the steepest second descent at step 300."""
    return 0.85 + 0.1 * np.exp(-steps / 30) + 0.06 / (1 + np.exp((steps - 300) / 40))


def test_a_curve_is_relied_on_as_far_as_it_has_seen() -> None:
    for make in FAMILIES.values():
        assert horizon(STEPS, make(STEPS)) == 400
        few = LEAST_JUDGED - 1
        assert horizon(STEPS[:few], make(STEPS[:few])) == 0


def test_of_a_second_descent_no_more_is_relied_on_than_was_seen_until_it_flattens() -> None:
    steps = np.arange(10.0, 801.0, 10.0)
    ahead = {int(steps[n - 1]): horizon(steps[:n], two_descents(steps[:n])) for n in range(8, len(steps))}
    assert ahead[100] == 100
    assert all(ahead[step] == pytest.approx(step / 5) for step in (220, 250, 280, 300))
    assert all(ahead[step] == step for step in range(450, 790, 10))


@pytest.mark.parametrize("family", ["reference", "current"])
@pytest.mark.parametrize("width", [15.0, 60.0])
def test_no_curve_is_let_fall_faster_than_the_newest_losses(family: str, width: float) -> None:
    steps = np.arange(10.0, 801.0, 10.0)
    losses = 0.85 + 0.1 * np.exp(-steps / 30) + 0.06 / (1 + np.exp((steps - 250) / width))
    n_bound = 0
    for n in range(15, len(steps) - 20):
        curve = fit(steps[:n], losses[:n], family)
        assert curve is not None
        now, ahead = float(steps[n - 1]), float(steps[n + 19])
        assert curve.steepest == pytest.approx(newest_pace(steps[:n], losses[:n]).steepest, rel=0.05, abs=1e-5)
        least = curve.at(now) - curve.steepest * (ahead - now)
        loss = curve.at(ahead)
        assert loss >= least - 1e-12
        n_bound += loss <= least + 1e-12
        if curve.at(now) - loss > 1e-6:
            there = curve.steps_to(loss, now)
            assert there == pytest.approx(ahead, rel=1e-3)
            assert curve.at(there) == pytest.approx(loss, abs=1e-6)
    assert n_bound


def emerged_at(interactions: NDArray[np.float64], loss: float = 0.9) -> list[bool]:
    """Whether the factors have emerged, after each evaluation of a run."""
    history, told = History(has_held_out=True), []
    for step, interaction in enumerate(interactions.tolist(), start=1):
        one = row(10 * step, loss, 8, step, step, loss)
        one[COLUMNS.index("interaction")] = interaction
        history.append(one)
        told.append(has_emerged(history))
    return told


def test_factors_have_emerged_once_they_have_grown() -> None:
    steps = np.arange(10.0, 401.0, 10.0)
    growing = 1e-3 * np.exp(-steps / 30) + 1e-5 * np.exp(np.minimum(steps, 300) / 30)
    told = emerged_at(growing)
    first = told.index(True)
    assert growing[first] >= 4 * growing[: first + 1].min()
    assert all(told[first:])
    from_less = emerged_at(growing / 100)
    assert growing[from_less.index(True)] / 100 >= (0.03 * 0.9) ** 2


def test_factors_have_emerged_once_they_are_strong_and_settled() -> None:
    steps = np.arange(10.0, 401.0, 10.0)
    told = emerged_at(0.2 + 0.1 * np.exp(-steps / 40))  # a start that is no smaller than what is learnt
    assert not told[5]
    assert told[-1]
    assert not any(emerged_at(1e-4 * np.exp(steps / 1000)))


def test_what_is_not_known_of_factors_does_not_keep_the_knee() -> None:
    assert emerged_at(np.zeros(9)) == [False] * 3 + [True] * 6
    assert emerged_at(np.full(9, np.nan))[-1]
    assert emerged_at(np.append(np.full(8, 1e-5), np.nan))[-1] is False
    assert has_emerged(History())
    assert not has_emerged(History(has_held_out=True))


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32 - 1), st.sampled_from(list(FAMILIES)))
def test_noise_alone_is_seldom_taken_for_a_descent(seed: int, family: str) -> None:
    rng = np.random.default_rng(seed)
    relied_on = [horizon(STEPS, FAMILIES[family](STEPS) + rng.normal(0, 0.01, 400)) == 400 for _ in range(40)]
    assert np.mean(relied_on) > 0.8


@settings(deadline=None)
@given(
    n=st.integers(3, 60),
    bend=st.floats(0.01, 20),
    noise=st.sampled_from([0.0, 0.001, 0.05]),
    seed=st.integers(0, 2**32 - 1),
)
@example(n=5, bend=0.0625, noise=0.001, seed=1)  # below the chord again after a minimum
def test_knees_are_those_of_the_reference(n: int, bend: float, noise: float, seed: int) -> None:
    """Of the paper's own implementation in Python, which this project does not ship."""
    kneed = pytest.importorskip("kneed")
    rng = np.random.default_rng(seed)
    x = np.cumsum(rng.integers(1, 20, n)).astype(float)
    y = 1.0 / (1.0 + bend * x / x[-1]) + rng.normal(0, noise, n)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a curve without a knee
        wanted = kneed.KneeLocator(x, y, S=1.0, curve="convex", direction="decreasing")
    place, height = kneedle(x, y)
    assert place == wanted.knee
    assert height == pytest.approx(float(np.max(wanted.y_difference)))
