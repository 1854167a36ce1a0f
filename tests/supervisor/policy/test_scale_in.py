"""When workers are let go: past the knee, where it pays, and never where the curve gives no reason to."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from supervisor.policy.curves import PRICES, STEP_S, hyperbola, live, rows
from supervisor.policy.curves import row as row_of

from mlless_nb import ScaleIn
from mlless_nb.supervisor.policy import projection
from mlless_nb.supervisor.policy.decision import Decision
from mlless_nb.supervisor.policy.efficiency import StatisticalEfficiency
from mlless_nb.supervisor.policy.loss_history import History
from mlless_nb.supervisor.policy.policy import Policy
from mlless_nb.supervisor.policy.scale_in import ScaleInTuner
from mlless_nb.telemetry.live import COLUMNS

#: The tuner of the paper, whose decisions are tested here; the other one is tested in ``test_economy.py``.
SHRINK = ScaleIn(global_minibatch="shrink")


class Run:
    """A tuner at work on a generated run."""

    def __init__(self, stop: dict[str, Any], n_workers: int = 8, scale_in: ScaleIn | None = None) -> None:
        self.history = History()
        spec = (scale_in or SHRINK).to_json()
        self.tuner = ScaleInTuner(spec, n_workers, stop, PRICES, self.history)
        self.decisions: list[Decision] = []

    def __call__(self, row: list[float | None]) -> int:
        self.history.append(row)
        found = self.tuner.decide()
        self.decisions += found
        return sum(decision.kind == "remove" for decision in found)


def removals(losses: Any, **stop: Any) -> int:
    """How many workers are let go in a run with ``losses``."""
    run = Run(stop)
    return sum(run(row) for row in rows(losses))


def test_workers_go_one_by_one_once_the_knee_is_past() -> None:
    run = Run({"target": 0.53})
    workers = live(lambda step, _: hyperbola(step), 400, 8, run)
    assert workers[-1] < 4
    assert set(np.diff(workers)) <= {0, -1}
    flattening = next(decision for decision in run.decisions if decision.kind == "knee")
    assert (
        flattening.text
        == f"Loss is flattening (step {flattening.numbers['knee']:.0f}): the auto-tuner may now remove workers"
    )
    knee = flattening.step
    assert knee >= 50
    assert all(decision.step > knee for decision in run.decisions if decision.kind == "remove")
    first = next(decision for decision in run.decisions if decision.kind == "remove")
    assert "Removed worker 5 (8 -> 7): forecast loss in " in first.about(5).text
    numbers = {name: value for name, value in first.numbers.items() if value is not None}
    # Nobody has left yet: what is projected is the reference, and that is the curve.
    assert (numbers["s"], numbers["s_sd"], numbers["n_workers"]) == (0.0, 0.0, 8.0)
    at_horizon = first.step + numbers["horizon_s"] / STEP_S
    assert numbers["loss"] == numbers["reference"] == pytest.approx(hyperbola(at_horizon), rel=1e-3)
    spent = first.time_s * PRICES.usd_s(8)
    now, then = ((first.time_s + numbers[f"{when}_s"]) * (spent + numbers[f"{when}_usd"]) for when in ("rest", "then"))
    assert numbers["saving"] == pytest.approx(1 - then / now, rel=1e-6)
    assert numbers["saving"] > 0.01


def test_losses_of_any_magnitude_are_tuned_alike() -> None:
    seen = []
    for unit in (1e-3, 1.0, 1e3):
        run = Run({"target": 0.53 * unit})
        seen.append(live(lambda step, _, unit=unit: unit * hyperbola(step), 300, 8, run))
    assert seen[0][-1] == seen[1][-1] == seen[2][-1] < 8


def test_nobody_goes_where_it_is_off_or_paused() -> None:
    off = Run({"target": 0.53}, scale_in=ScaleIn.off())
    assert live(lambda step, _: hyperbola(step), 300, 8, off)[-1] == 8
    paused = Run({"target": 0.53})
    paused.tuner.pause()
    assert live(lambda step, _: hyperbola(step), 300, 8, paused)[-1] == 8
    paused.tuner.pause(on=True)
    assert paused.tuner.is_on
    off.tuner.pause(on=True)
    assert not off.tuner.is_on


def two_descents(step: int, _: int) -> float:
    """A plateau near step 100, the steepest second descent at step 200."""
    return 0.85 + 0.1 * math.exp(-step / 30) + 0.06 / (1 + math.exp((200 - step) / -25))


def test_no_curve_is_read_further_ahead_than_it_is_relied_on() -> None:
    run = Run({"target": 0.86})
    workers = live(two_descents, 350, 8, run)
    assert workers[-1] < 8
    looked = [decision for decision in run.decisions if "horizon_s" in decision.numbers]
    shortened = 0
    for decision in looked:
        horizon_s, wanted_s, horizon = (decision.numbers[name] or 0.0 for name in ("horizon_s", "wanted_s", "horizon"))
        assert horizon_s <= horizon * STEP_S + 1e-9
        assert horizon <= decision.step
        shortened += horizon_s < wanted_s
    assert shortened


def test_where_too_little_lies_within_reach_nobody_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    left = {}
    for ahead in (12, 25):
        monkeypatch.setattr(projection, "horizon", lambda steps, losses, ahead=ahead: float(ahead))
        run = Run({"target": 0.53})
        left[ahead] = live(lambda step, _: hyperbola(step), 250, 8, run)[-1]
        assert any("loss curve is not reliable enough yet" in decision.text for decision in run.decisions)
    assert left[12] == 8
    # A quarter of the 50 steps that the horizon has is enough; of the more that quicker steps make of it, it is not.
    assert 1 < left[25] < 8


def test_nobody_goes_by_losses_that_are_not_closely_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projection, "SURE", 1e-7)
    run = Run({"target": 0.53})
    assert live(lambda step, _: hyperbola(step), 250, 8, run)[-1] == 8
    assert any("loss curve is not reliable enough yet" in decision.text for decision in run.decisions)


@pytest.mark.parametrize("noise", [0.001, 0.02, 0.1])
def test_what_is_relied_on_ends_where_the_curves_disagree(noise: float) -> None:
    rng, history = np.random.default_rng(1), History()
    for made in rows([hyperbola(step) * (1 + noise * rng.normal()) for step in range(1, 301)]):
        history.append(made)
    ahead = projection.Projection(history, {}, PRICES, projection.StepTimes(), StatisticalEfficiency(8))
    within = min(ahead.horizon, 200.0)
    seen = ahead.reliable_steps(200, 8)
    assert 0 <= seen <= within
    assert ahead.is_reliable(seen, 8)
    assert ahead.is_reliable(within, 8) == (noise < 0.01)
    if seen < within:
        assert not ahead.is_reliable(seen + within / 16, 8)
    assert ahead.reliable_steps(math.inf, 8) <= ahead.horizon


def test_a_quarter_of_the_workers_stays() -> None:
    run = Run({"target": 0.51})
    assert live(lambda step, _: hyperbola(step), 3000, 8, run)[-1] == 2
    assert any("a quarter of the workers always stays" in decision.text for decision in run.decisions)


def test_steps_that_move_the_model_less_keep_the_workers() -> None:
    moved = 0.0

    def as_far_as_workers(step: int, n_workers: int) -> float:
        nonlocal moved
        moved += n_workers / 8  # as where gradients are all noise
        return hyperbola(moved)

    run = Run({"target": 0.52})
    assert live(as_far_as_workers, 600, 8, run, is_quicker=False)[-1] >= 6


def test_a_run_about_to_end_and_a_short_one_are_left_alone() -> None:
    short = Run({"steps": 45})
    assert live(lambda step, _: hyperbola(step), 45, 8, short)[-1] == 8
    ending = Run({"steps": 70})
    assert live(lambda step, _: hyperbola(step), 70, 8, ending)[-1] == 8


def test_removals_that_cost_loss_come_to_an_end_before_the_target_is_lost() -> None:
    def noisy(step: int, n_workers: int) -> float:
        return hyperbola(step) + 0.04 * (1 / n_workers - 1 / 8)

    run = Run({"target": 0.52})
    workers = live(noisy, 3000, 8, run)
    assert 1 < workers[-1] <= 8
    assert noisy(100_000, workers[-1]) < 0.52
    assert any(decision.kind == "keep" for decision in run.decisions)


@pytest.mark.parametrize(
    "margin",
    [
        0.006,
        pytest.param(0.008, marks=pytest.mark.long),
        pytest.param(0.012, marks=pytest.mark.long),
        pytest.param(0.016, marks=pytest.mark.long),
    ],
)
def test_a_target_near_the_floor_is_kept_where_the_last_workers_keep_down_the_most_noise(margin: float) -> None:
    def noisy(step: int, n_workers: int) -> float:
        lost = 1 / n_workers - 1 / 8
        return hyperbola(step) + 0.02 * lost + 0.1 * lost**2

    run = Run({"target": 0.5 + margin})
    workers = live(noisy, 4000, 8, run)
    assert noisy(10_000_000, workers[-1]) < 0.5 + margin


def test_factors_that_have_not_grown_yet_keep_the_workers() -> None:
    """The loss rests on a plateau; that its main descent is still to come only the factors tell."""
    known: dict[bool, list[Decision]] = {}
    for tells in (True, False):
        run = Run({"target": 0.86})
        known[tells] = run.decisions
        for step in range(1, 200):
            factors = 1e-3 * math.exp(-step / 30) + 1e-5 * math.exp(step / 30)
            one = row_of(step, two_descents(step, 8), 8, step * STEP_S, 0.01 * step, None)
            if step % 10 == 0:
                one[COLUMNS.index("validation_loss")] = two_descents(step, 8)
                one[COLUMNS.index("interaction")] = factors if tells else math.nan
            run(one)
    knees = {tells: next(one.step for one in found if one.kind == "knee") for tells, found in known.items()}
    assert knees[False] <= 110
    assert 120 <= knees[True] <= 180


def test_a_machine_that_became_slower_is_not_the_removals_doing() -> None:
    times, history = projection.StepTimes(), History()
    for step in range(1, 101):
        time_s = 0.1 * min(step, 60) + 0.13 * max(step - 60, 0)
        history.append(row_of(step, 0.5, 8 if step <= 60 else 7, time_s, 0.0, None))
        if step in (60, 100):
            times.measure(history, history.since_change())
    assert times.at(7) == times.at(8) == pytest.approx(0.13)


def test_a_burst_that_is_over_makes_no_steps_quicker() -> None:
    times, history, time_s = projection.StepTimes(), History(), 0.0
    for step in range(1, 161):
        n_workers = 8 - (step - 1) // 40
        time_s += 0.13 if n_workers == 6 else 0.1
        history.append(row_of(step, 0.5, n_workers, time_s, 0.0, None))
        if step % 40 == 0:
            times.measure(history, history.since_change())
    assert times.at(5) == times.at(7) == times.at(8) == pytest.approx(0.1)


def test_of_what_lies_beyond_the_workers_that_left_less_is_known() -> None:
    before = StatisticalEfficiency(8, noise_sd=0.02, prior_sd=0.02)
    assert before.worse_by(4, 1.0) == pytest.approx(0.02 * before.lost(4))
    after = StatisticalEfficiency(8, noise=0.01, noise_sd=0.002, seen=before.lost(4), prior_sd=0.02, slower_sd=0.1)
    assert after.worse_by(4, 1.0) == pytest.approx((0.01 + 0.002) * after.lost(4))
    beyond = after.lost(2) - after.lost(4)
    wanted = 0.01 * after.lost(2) + 0.002 * after.lost(4) + math.sqrt(0.002 * 0.02) * beyond
    assert after.worse_by(2, 1.0) == pytest.approx(wanted)
    assert after.pace(2, 1.0) < 1 / (1 + 0.1 * after.lost(2))


def test_while_the_target_is_not_in_sight_removals_may_cost_little_of_the_way_to_it() -> None:
    def noisy(step: int, n_workers: int) -> float:
        return hyperbola(step) + 0.1 * (1 / n_workers - 1 / 8)

    said = []
    for target in (0.49, 0.495, 0.499):  # below the floor
        run = Run({"target": target})
        assert live(noisy, 600, 8, run)[-1] >= 4
        said += [decision.text for decision in run.decisions]
    assert any("fewer workers may put it out of reach" in text for text in said)


def test_short_runs_have_forecasts_too() -> None:
    advice = Policy(ScaleIn().to_json(), 8, {"target": 0.53}, PRICES)
    seen = []
    for step in range(1, 301):
        advice.append(row_of(step, hyperbola(step), 8, 0.5 + 0.002 * step, 1e-6 * step, hyperbola(step)))
        if (made := advice.forecast(None)) is not None:
            seen.append(made["step"])
    assert 2 <= len(seen) <= 8
    assert seen[-1] > 150


def test_a_removal_that_turned_out_worse_raises_the_bar() -> None:
    def worse(step: int, n_workers: int) -> float:
        return hyperbola(step) + (0.0 if n_workers == 8 else 0.01)

    run = Run({"target": 0.53})
    live(worse, 400, 8, run)
    outcome = next(decision for decision in run.decisions if decision.kind == "outcome")
    assert outcome.text.startswith("The loss with 7 workers is")
    assert outcome.numbers["worse_by"] == pytest.approx(0.01, rel=0.2)


def test_epochs_that_would_take_longer_keep_the_workers() -> None:
    # With fewer workers the same rows are more steps; where steps take as long, so is the run longer.
    run = Run({"epochs": 40})
    assert sum(run(row) for row in rows([hyperbola(step) for step in range(1, 500)])) == 0


NOISE = st.integers(0, 2**32 - 1)


@settings(deadline=None, max_examples=40)
@given(NOISE, st.sampled_from(["rising", "flat", "noise", "line up then flat", "diverging"]), st.floats(1e-3, 1e3))
def test_curves_without_a_fall_remove_nobody(seed: int, kind: str, unit: float) -> None:
    rng, steps = np.random.default_rng(seed), np.arange(1, 401)
    noise = rng.normal(0, 0.02, 400)
    losses = {
        "rising": 0.5 + steps / 800 + noise,
        "flat": np.full(400, 0.5),
        "noise": 0.7 + 5 * noise,
        "line up then flat": 0.5 + np.minimum(steps, 60) / 100 + noise / 10,
        "diverging": 0.5 + np.exp(steps / 100) / 50 + noise / 10,
    }[kind]
    for stop in ({}, {"target": 0.3 * unit}, {"steps": 2000}):
        assert removals(unit * losses, **stop) == 0


@settings(deadline=None, max_examples=40)
@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=3))
def test_three_points_remove_nobody(losses: list[float]) -> None:
    assert removals(losses, target=0.1) == 0


@settings(deadline=None, max_examples=25)
@given(NOISE, st.integers(1, 300), st.sampled_from([math.nan, math.inf, -math.inf]))
def test_from_a_loss_that_is_not_finite_on_nobody_goes(seed: int, at: int, value: float) -> None:
    losses = np.array([hyperbola(step) for step in range(1, 350)])
    losses[at] = value
    run = Run({"target": 0.52})
    made = rows(losses, eval_every=10)
    before = [run(row) for row in made[: at + 1]]
    assert before[-1] == 0
    assert sum(run(row) for row in made[at + 1 :]) == 0


@settings(deadline=None, max_examples=25)
@given(st.lists(st.floats(-1e6, 1e6), min_size=60, max_size=120), st.integers(2, 9))
def test_no_numbers_break_it(losses: list[float], eval_every: int) -> None:
    run = Run({"target": 0.5, "epochs": 30})
    for row in rows(losses, eval_every=eval_every):
        run(row)
