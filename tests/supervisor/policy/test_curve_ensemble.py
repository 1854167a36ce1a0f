"""When a loss will be reached: by curves of known form, with noise, and from whatever comes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlless_nb.supervisor.policy.curve_ensemble import mix

STEPS = np.arange(10.0, 401.0, 10.0)
FORMS = {
    "hyperbola": lambda t: 0.5 + 1 / (0.06 * t + 5.2),
    "power law": lambda t: 0.4 + t**-0.4,
    "exponential": lambda t: 0.5 + 0.3 * np.exp(-t / 300),
    "logarithm": lambda t: 1 - 0.08 * np.log(t),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_half_way_there_the_step_is_within_a_seventh(form: str, unit: float) -> None:
    mixture = mix(STEPS, unit * FORMS[form](STEPS))
    assert mixture is not None
    low, middle, high = mixture.steps_to(unit * float(FORMS[form](800.0)))
    assert low <= middle <= high
    assert middle == pytest.approx(800, rel=0.15)


def test_the_spread_grows_with_noise_with_the_distance_and_off_the_curves() -> None:
    rng = np.random.default_rng(1)
    clean, noisy = (mix(STEPS, FORMS["hyperbola"](STEPS) + rng.normal(0, sd, len(STEPS))) for sd in (1e-4, 0.03))
    assert clean is not None
    assert noisy is not None
    near, far = (float(FORMS["hyperbola"](step)) for step in (450.0, 700.0))
    assert clean.spread(450.0, near) < clean.spread(700.0, far) < noisy.spread(700.0, far)
    assert clean.spread(700.0, 1.1 * far) > 0.1


def test_the_interval_holds_the_truth_more_often_than_not() -> None:
    rng = np.random.default_rng(0)
    inside = []
    for form in FORMS.values():
        for noise in (1e-4, 1e-3):
            for _ in range(10):
                mixture = mix(STEPS, form(STEPS) + rng.normal(0, noise, len(STEPS)))
                assert mixture is not None
                low, _, high = mixture.steps_to(float(form(800.0)))
                inside.append(low <= 800 <= high)
    assert np.mean(inside) > 0.7


def test_a_loss_that_was_passed_is_reached_now_and_one_below_the_floor_never() -> None:
    mixture = mix(STEPS, 0.5 + np.exp(-STEPS / 40))
    assert mixture is not None
    assert mixture.steps_to(0.6) == (400, 400, 400)
    assert mixture.steps_to(0.4)[1] == math.inf


def test_losses_that_fall_ever_faster_are_followed_along_a_line() -> None:
    losses = 1 - 1e-6 * STEPS**2
    mixture = mix(STEPS, losses)
    assert mixture is not None
    low, middle, _ = mixture.steps_to(0.7)
    # The parabola is there at step 548, its tangent a little later.
    assert low <= 600
    assert middle == pytest.approx(590, rel=0.1)


@settings(deadline=None)
@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=60), st.floats(-1e3, 1e3))
def test_any_numbers_give_steps_in_order_or_nothing(losses: list[float], target: float) -> None:
    mixture = mix(np.arange(1.0, len(losses) + 1), np.array(losses))
    if mixture is not None:
        low, middle, high = mixture.steps_to(target)
        assert len(losses) <= low <= middle <= high


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["rising", "flat", "noise", "three points"]))
def test_what_does_not_fall_does_not_arrive(seed: int, kind: str) -> None:
    rng = np.random.default_rng(seed)
    noise = rng.normal(0, 0.01, len(STEPS))
    losses = {"rising": 0.5 + STEPS / 400 + noise, "flat": np.full(len(STEPS), 0.5), "noise": 0.5 + noise}
    if kind == "three points":
        assert mix(STEPS[:3], np.array((0.9, 0.8, 0.7))) is None
        return
    mixture = mix(STEPS, losses[kind])
    assert mixture is not None
    # Noise may look like the beginning of a descent, rarely, and is then followed.
    assert mixture.steps_to(0.2)[1] > (2 if kind == "noise" else 10) * STEPS[-1]
