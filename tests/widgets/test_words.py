"""Figures as people read them, and what a run's state says."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest

from mlless_nb.telemetry.live import COLUMNS, RunState
from mlless_nb.widgets.format import duration, metric, passes, percent, short_time, size, usd
from mlless_nb.widgets.view_model import exchange_of, is_base_in_range, line_of, view_of

NO_ROWS = np.empty((0, len(COLUMNS)))


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0.0, "$0.00"),
        (0.014238, "$0.01424"),
        (0.0000012344, "$0.000001234"),
        (1.5, "$1.500"),
        (12.3, "$12.30"),
        (12345.678, "$12,345.68"),
        (-0.02, "−$0.02000"),
        (None, "–"),
        (math.nan, "–"),
    ],
)
def test_dollars_have_four_digits_and_cents(amount: float | None, text: str) -> None:
    assert usd(amount) == text


def test_chosen_dollars_lose_their_trailing_zeros() -> None:
    assert [usd(a, trim=True) for a in (0.025, 0.4, 2, 100)] == ["$0.025", "$0.40", "$2.00", "$100.00"]


def test_durations_sizes_and_shares() -> None:
    assert [duration(s) for s in (0.94, 9.96, 38.4, 125, 3840, 7300)] == [
        *("0.9 s", "10 s", "38 s", "2 min 05 s", "64 min 00 s", "2 h 01 min")
    ]
    assert [short_time(s) for s in (0.00014, 0.0042, 0.027, 3.21)] == ["140 µs", "4.2 ms", "27 ms", "3.2 s"]
    assert [size(b) for b in (0, 812, 96_000, 1_440_000)] == ["0 B", "812 B", "96 kB", "1.4 MB"]
    assert [percent(s) for s in (0, 0.042, 0.213, 1)] == ["0 %", "4.2 %", "21 %", "100 %"]
    assert [metric(m) for m in (0.86784, 0.00123456, 12345.6, None)] == ["0.8678", "0.001235", "1.235e+04", "–"]


def test_view_is_plain_json_in_every_state() -> None:
    for status in ("starting", "running", "finished", "stopped", "capped", "failed"):
        view = view_of(RunState(status=status), NO_ROWS)
        assert json.loads(json.dumps(view)) == view
        assert view["is_live"] == (status in ("starting", "running"))


def test_money_is_called_simulated_unless_it_is_not() -> None:
    state = RunState(price_profile="AWS Lambda x86", budget_usd=0.025, spent_usd=0.01)
    assert view_of(state, NO_ROWS)["spent_label"] == "Spent (simulated, priced as AWS Lambda x86)"
    assert "simulated" in line_of(state)
    real = RunState(price_profile="AWS Lambda x86", is_simulated_price=False)
    assert view_of(real, NO_ROWS)["spent_label"] == "Spent (estimated, priced as AWS Lambda x86)"
    assert "simulated" not in line_of(real)


def test_controls_say_why_they_do_nothing() -> None:
    running = RunState(status="running", n_workers=3)
    assert set(view_of(running, NO_ROWS)["cannot"].values()) == {""}
    assert view_of(RunState(status="running", n_workers=1), NO_ROWS)["cannot"]["scale_in"] == "One worker is left."
    assert "starting" in view_of(RunState(), NO_ROWS)["cannot"]["scale_in"]
    assert view_of(RunState(), NO_ROWS)["cannot"]["stop"] == ""
    stopping = view_of(running, NO_ROWS, stop_asked=True)
    assert stopping["word"] == "Stopping"
    assert all("stopping" in why for why in stopping["cannot"].values())
    assert all("ended" in why for why in view_of(RunState(status="capped"), NO_ROWS)["cannot"].values())


def test_figures_without_validation_are_called_training() -> None:
    assert view_of(RunState(metric="RMSE", loss=0.9), NO_ROWS)["metric_label"] == "Training RMSE"
    view = view_of(RunState(metric="RMSE", loss=0.9, validation_loss=0.91), NO_ROWS)
    assert (view["metric_label"], view["metric_text"]) == ("Validation RMSE", "0.910")


def test_a_run_that_has_ended_shows_its_last_workers() -> None:
    row = np.zeros((1, len(COLUMNS)))
    row[0, COLUMNS.index("n_workers")] = 5
    assert view_of(RunState(status="finished", n_workers_started=8), row)["workers_text"] == "5"


def test_shares_of_the_budget_stay_within_it() -> None:
    view = view_of(RunState(budget_usd=0.02, spent_usd=0.01, committed_usd=0.015), NO_ROWS)
    assert (view["spent_share"], view["committed_share"]) == (0.5, 0.75)
    over = view_of(RunState(budget_usd=0.02, spent_usd=0.03), NO_ROWS)
    assert (over["spent_share"], over["committed_share"]) == (1.0, 1.0)
    assert view_of(RunState(spent_usd=0.03), NO_ROWS)["spent_share"] is None


def test_what_the_budget_bar_means_is_said() -> None:
    view = view_of(RunState(budget_usd=0.1, spent_usd=0.0011, committed_usd=0.02), NO_ROWS)
    assert view["cap_text"] == "1.1 % of the budget is spent, 20 % with what is committed"
    assert view_of(RunState(spent_usd=0.1), NO_ROWS)["cap_text"] == ""


def test_a_loss_has_its_unit_once() -> None:
    titles = [view_of(RunState(metric=name), NO_ROWS)["loss_title"] for name in ("RMSE", "log loss")]
    assert titles == ["Loss (RMSE)", "Log loss"]


def test_exchange_is_told_per_worker_and_its_times_add_up() -> None:
    row = dict.fromkeys(COLUMNS, 0.0) | {
        "n_workers": 4,
        "sent_bytes": 4 * 96e3,
        "received_bytes": 4 * 288e3,
        "sent_fraction": 0.21,
        "compute_s": 0.015,
        "exchange_s": 0.009,
        "wait_s": 0.003,
    }
    exchange = exchange_of(np.array([[row[c] for c in COLUMNS]] * 3))
    assert exchange is not None
    assert exchange["text"] == "96 kB out, 288 kB in per worker and step · 21 % of parameters sent"
    assert exchange["step_text"] == "27 ms"
    assert sum(share for _, share, _ in exchange["parts"]) == pytest.approx(1)
    assert exchange_of(NO_ROWS) is None


def test_one_worker_alone_is_said_to_exchange_with_nobody() -> None:
    row = dict.fromkeys(COLUMNS, 0.0) | {"n_workers": 1, "compute_s": 0.0001, "exchange_s": 0.0003}
    exchange = exchange_of(np.array([[row[c] for c in COLUMNS]] * 3))
    assert exchange is not None
    assert exchange["is_alone"]
    assert exchange["text"] == "one worker alone has nobody to exchange updates with"


BEST = RunState(
    status="running",
    step=2900,
    epoch=80.4,
    metric="RMSE",
    validation_loss=0.8512,
    best_loss=0.84702,
    best_step=2310,
    best_epoch=64.1,
    baseline_loss=1.1263,
)


def test_the_best_evaluation_is_told() -> None:
    view = view_of(BEST, NO_ROWS)
    assert view["best_text"] == "best 0.8470 at epoch 64 (step 2,310)"
    assert (view["metric_text"], view["best_step"]) == ("0.851", 2310)
    assert "validation RMSE 0.8512 · best 0.8470 at epoch 64 (step 2,310)" in line_of(BEST)
    assert view_of(RunState(), NO_ROWS)["best_text"] == ""
    assert [passes(epoch) for epoch in (0.5, 3.44, 9.97, 64.1)] == ["0.5", "3.4", "10", "64"]


def test_an_ended_run_shows_the_figure_of_the_model_that_it_returns() -> None:
    view = view_of(dataclasses.replace(BEST, status="capped", target=0.84), NO_ROWS)
    assert (view["metric_text"], view["metric_note"]) == ("0.8470", "target 0.8400, last 0.8512")
    assert "validation RMSE 0.8512 · best 0.8470 at" in line_of(dataclasses.replace(BEST, status="capped"))
    at_last = dataclasses.replace(BEST, status="finished", validation_loss=BEST.best_loss)
    assert view_of(at_last, NO_ROWS)["metric_note"] == ""


def test_a_model_no_better_than_a_constant_is_told_at_the_end() -> None:
    assert view_of(BEST, NO_ROWS)["base_text"] == "predicting the mean: 1.1263"
    assert view_of(dataclasses.replace(BEST, metric="log loss"), NO_ROWS)["base_text"].startswith(
        "predicting the base rate"
    )
    bad = dataclasses.replace(BEST, best_loss=1.2)
    assert view_of(bad, NO_ROWS)["shortfall"] == ""
    ended = dataclasses.replace(bad, status="finished")
    assert view_of(ended, NO_ROWS)["shortfall"] == "No better than predicting the mean (1.126)"
    assert line_of(ended).endswith(" · no better than predicting the mean (1.126)")
    assert "no better" not in line_of(dataclasses.replace(BEST, status="finished"))


def test_a_base_line_far_above_the_losses_would_flatten_them() -> None:
    assert [is_base_in_range(0.8, 1.0, base) for base in (0.5, 0.9, 1.04, 1.06, None)] == [
        True,
        True,
        True,
        False,
        False,
    ]
