"""What a forecast says of a run: when its target ends it, how sure that is, and what is too far ahead to tell."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from supervisor.policy.curves import STEP_S, hyperbola, rows

from mlless_nb import ScaleIn
from mlless_nb.supervisor.policy.hindcast import lateness
from mlless_nb.supervisor.policy.loss_history import History, Judged
from mlless_nb.supervisor.policy.policy import Policy
from mlless_nb.supervisor.policy.projection import Prices


def forecast(made: list[list[float | None]], *, has_held_out: bool = False, **stop: float) -> dict[str, Any]:
    """The forecast after the rows ``made``."""
    advice = Policy(ScaleIn.off().to_json(), 8, stop, Prices(3e-5, 7e-5), has_held_out)
    for row in made:
        advice.append(row)
    found = advice.forecast(None)
    assert found is not None
    return found


def evaluated(n_steps: int) -> list[list[float | None]]:
    """Rows of a run whose held-out loss is known every 10 steps."""
    return rows([hyperbola(step) for step in range(1, n_steps + 1)], eval_every=10)


def test_the_loss_at_an_end_far_ahead_is_said_to_be_rough() -> None:
    assert not forecast(evaluated(300), steps=500)["is_rough"]
    assert forecast(evaluated(300), steps=1000)["is_rough"]


def test_a_loss_that_noise_hides_is_said_to_be_rough() -> None:
    rng = np.random.default_rng(0)
    for noise, is_rough in ((0.001, False), (0.1, True)):
        losses = [hyperbola(step) * (1 + noise * rng.normal()) for step in range(1, 301)]
        assert forecast(rows(losses), steps=500)["is_rough"] == is_rough


def test_a_lower_loss_has_a_price_only_where_the_curve_can_be_relied_on() -> None:
    falling = forecast(evaluated(300))
    assert falling["usd_per_percent"] > 0
    flat = rows([0.5 + 0.2 * 0.97**step for step in range(1, 301)], eval_every=10)
    assert forecast(flat)["usd_per_percent"] is None


def test_a_target_ends_the_run_with_the_evaluation_that_confirms_it() -> None:
    made = evaluated(304)
    time_s = made[-1][2]
    assert time_s is not None
    once = forecast(made, target=hyperbola(600))["s_to_target"]
    # Evaluations are at steps 310, 320 and so on.
    n_steps = (once[1] - time_s) / STEP_S
    assert (n_steps + 4) / 10 == pytest.approx(round((n_steps + 4) / 10))
    assert n_steps == pytest.approx(296, rel=0.2)
    confirmed = forecast(made, target=hyperbola(600), confirmations=5)["s_to_target"]
    assert confirmed[1] - once[1] == pytest.approx(40 * STEP_S)


def test_steps_of_uneven_length_widen_the_interval() -> None:
    spreads, variations = [], []
    for slower in (1.0, 3.0):
        history, made, time_s = History(), evaluated(400), 1.0
        for row in made:
            time_s += STEP_S * (slower if int(row[0] or 0) % 100 < 50 else 1.0)
            row[2] = time_s
            history.append(row)
        low, expected, _ = forecast(made, target=0.51)["s_to_target"]
        variations.append(history.step_variation())
        spreads.append((expected - low) / (expected - time_s))
    assert variations[0] == pytest.approx(0, abs=1e-9)
    assert variations[1] > 0.2
    assert spreads[1] > spreads[0]


def test_the_path_to_the_target_has_a_band_that_widens_up_to_the_rule_that_ends_the_run() -> None:
    found = forecast(evaluated(300), target=hyperbola(600), steps=500)["path"]
    steps, seconds, dollars, losses, low, high = (np.array(part) for part in zip(*found, strict=True))
    assert (steps[0], steps[-1]) == (300, pytest.approx(500))
    assert (np.diff(seconds) > 0).all()
    assert (np.diff(dollars) > 0).all()
    assert (low <= losses).all()
    assert (losses <= high).all()
    assert losses[-1] == pytest.approx(hyperbola(500), rel=0.01)
    assert high[-1] - low[-1] >= high[0] - low[0]
    assert forecast(evaluated(300), steps=500)["path"] == []  # nobody asked for a loss
    assert forecast(evaluated(100), target=0.01, steps=5000)["path"][-1][0] <= 200  # no farther than it has come


def test_a_target_for_held_out_rows_has_no_time_before_these_were_evaluated_often_enough() -> None:
    made = rows([hyperbola(step) for step in range(1, 41)], eval_every=10)
    assert forecast(made, target=0.6)["s_to_target"] is not None  # a job without held-out rows
    assert forecast(made, target=0.6, has_held_out=True)["s_to_target"] is None
    assert forecast(evaluated(300), target=hyperbola(600), has_held_out=True)["s_to_target"] is not None


def test_a_loss_that_has_stalled_above_the_target_is_told_with_its_best_step() -> None:
    losses = [max(hyperbola(step), 0.53) + 1e-5 * abs(step - 480) for step in range(1, 801)]
    made = rows(losses, eval_every=10)
    assert forecast(made[:600], target=0.52)["stalled_since"] is None  # it may still be noise
    found = forecast(made, target=0.52)
    assert (found["stalled_since"], found["s_to_target"], found["usd_to_target"]) == (480, None, None)
    assert forecast(made, target=0.531)["stalled_since"] is None  # reached before, and to be confirmed
    assert forecast(made)["stalled_since"] is None


def test_how_much_later_than_foretold_the_loss_came_so_far() -> None:
    steps = np.arange(10.0, 401.0, 10.0)

    def late(pace: float) -> float:
        """Where after step 200 a step is worth so many of those before."""
        reached = np.where(steps > 200, 200 + pace * (steps - 200), steps)
        losses = np.array([hyperbola(step) for step in reached])
        return lateness(Judged(steps, losses, True), float(losses[-1]))

    assert late(1.0) == pytest.approx(1, abs=0.2)
    assert late(1 / 3) == pytest.approx(3, rel=0.2)
    assert late(3.0) == 1  # sooner than foretold
    assert late(0.0) == math.inf  # no better since
    few = np.arange(1.0, 11.0)
    assert lateness(Judged(few, 1 / few, True), 0.1) == 1


def test_an_end_later_than_the_curves_say_is_in_the_interval_where_they_were_too_early_before() -> None:
    losses = [0.4 + 0.3 * np.exp(-step / 100) + 0.2 * (1 + step) ** -0.3 for step in range(1, 401)]
    low, expected, high = forecast(rows(losses[:200], eval_every=10), target=losses[-1])["s_to_target"]
    assert low < expected < 1 + 400 * STEP_S <= high < 1 + 500 * STEP_S


def test_a_curve_that_flattens_suddenly_has_no_time_for_a_target_below_its_floor() -> None:
    made = rows([max(hyperbola(step), hyperbola(400)) for step in range(1, 601)], eval_every=5)
    target = hyperbola(500)
    before = forecast(made[:395], target=target)["s_to_target"]
    assert before[1] == pytest.approx(1 + 500 * STEP_S, rel=0.05)
    assert [forecast(made[:n], target=target)["s_to_target"] for n in (480, 520, 600)] == [None] * 3
