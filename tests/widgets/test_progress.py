"""How far a run is, what is ahead of it, where its workers' time goes, and what its end says."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest

from mlless_nb.job.stop_rules import StopRules
from mlless_nb.money import Cost, StoreUse
from mlless_nb.telemetry.live import COLUMNS, RunState
from mlless_nb.widgets.forecast import forecast_lines, loss_text, progress_of, target_text
from mlless_nb.widgets.format import rough_metric, rounded
from mlless_nb.widgets.loss_range import loss_range
from mlless_nb.widgets.strip import note_of, strip_of
from mlless_nb.widgets.view_model import cost_text, view_of

RUNNING = RunState(
    status="running",
    name="first",
    step=364,
    epoch=10.1,
    time_s=36.4,
    spent_usd=0.014,
    rate_usd_s=0.0004,
    stop_rules={"epochs": 25.0, "may_settle": False},
)


def rows(n: int = 40, step_s: float = 0.1) -> np.ndarray:
    """The newest rows of a run at step 364, with 36 steps an epoch."""
    found = np.zeros((n, len(COLUMNS)))
    steps = np.arange(364 - n + 1, 365)
    found[:, COLUMNS.index("step")] = steps
    found[:, COLUMNS.index("epoch")] = steps / 36
    found[:, COLUMNS.index("time_s")] = steps * step_s
    return found


def changed(**fields: Any) -> RunState:
    return dataclasses.replace(RUNNING, **fields)


def test_the_bar_says_how_far_how_long_and_how_much() -> None:
    progress = progress_of(RUNNING, rows())
    assert progress["share"] == pytest.approx(10.1 / 25)
    assert progress["text"] == "epoch 10.1 of 25 · about 54 s left · about $0.0355 at the end"


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"stop_rules": {"steps": 400}}, "step 364 of 400 · about 3.6 s left · about $0.0154 at the end"),
        ({"stop_rules": {"time_s": 60.0}}, "36 s of 60 s · about 24 s left · about $0.0234 at the end"),
        ({"budget_usd": 0.02}, "epoch 10.1 · $0.0140 of $0.02 · about 15 s left · about $0.0200 at the end"),
        ({"budget_usd": 0.5}, "epoch 10.1 of 25 · about 54 s left · about $0.0355 at the end"),
        (
            {"stop_rules": {"epochs": 50.0, "may_settle": True}},
            "epoch 10.1 of at most 50 · at most 2 min 24 s left · at most",
        ),
        ({"target": 0.868}, "epoch 10.1 of 25 · at most 54 s left"),
        ({"stop_rules": {}}, "epoch 10.1 · ends when you stop it"),
    ],
)
def test_the_end_that_comes_first_is_told(fields: dict[str, Any], says: str) -> None:
    assert progress_of(changed(**fields), rows())["text"].startswith(says)


@pytest.mark.parametrize(
    ("epoch", "epochs", "says"),
    [
        (24.96, 25, "epoch 24.9 of 25"),
        (25 - 1e-9, 25, "epoch 25.0 of 25"),
        (0.04, 25, "epoch 0.0 of 25"),
        (2.3, 25, "epoch 2.3 of 25"),
        (999.99, 2000, "epoch 999.9 of 2000"),
        (1234.9, 2000, "epoch 1234 of 2000"),
    ],
)
def test_an_epoch_is_told_once_it_is_over(epoch: float, epochs: float, says: str) -> None:
    state = changed(epoch=epoch, stop_rules={"epochs": epochs})
    assert progress_of(state, rows(3))["text"] == says
    assert f"epoch {says.split()[1]}" in view_of(state, rows())["about"].split(" · ")


def test_a_run_that_has_just_begun_has_no_time_left() -> None:
    assert progress_of(RUNNING, rows(3))["text"] == "epoch 10.1 of 25"
    assert progress_of(RUNNING, rows(0)) == {"share": None, "text": ""}
    assert progress_of(changed(status="capped"), rows()) == {"share": 1.0, "text": ""}
    came = progress_of(changed(), rows())["share"]
    assert progress_of(changed(status="stopped"), rows()) == {"share": came, "text": ""}
    assert progress_of(changed(status="failed"), rows()[:0]) == {"share": None, "text": ""}


FORECAST = {
    "loss_at_end": 0.8655,
    "loss_at_cap": None,
    "is_rough": False,
    "usd_to_target": [0.0155, 0.0161, 0.018],
    "s_to_target": [40.4, 42.4, 47.4],
    "usd_per_percent": None,
    "path": [[364, 36.4, 0.014, 0.872, 0.872, 0.872], [400, 40.0, 0.0154, 0.87, 0.868, 0.872]],
}


def test_the_target_is_forecast_with_its_band() -> None:
    state = changed(target=0.868, forecast=FORECAST)
    assert target_text(state) == "target 0.8680 in about 6.0 s (4.0 s to 11 s), at about $0.0161"
    assert view_of(state, rows())["forecast_path"] == FORECAST["path"]
    assert "beyond the budget" in target_text(changed(target=0.868, forecast=FORECAST, budget_usd=0.015))
    early = changed(target=0.868, forecast={**FORECAST, "usd_to_target": None, "s_to_target": None})
    assert target_text(early) == "target 0.8680: too early to say when"
    assert forecast_lines(early)[0] == "target 0.8680: too early to say when"
    stalled = {**FORECAST, "usd_to_target": None, "s_to_target": None, "stalled_since": 1992, "stalled_at": 0.8703}
    # The best of a resumed run may be the earlier run's.
    hopeless = changed(target=0.868, metric="RMSE", best_loss=0.85, forecast=stalled)
    assert target_text(hopeless) == "target 0.8680: not in sight, RMSE no better than 0.8703 since step 1,992"
    assert forecast_lines(hopeless)[0] == target_text(hopeless)
    ended = dataclasses.replace(state, status="finished")
    assert (target_text(ended), view_of(ended, rows())["forecast_path"]) == ("", [])


def test_a_rough_forecast_of_the_loss_is_not_told() -> None:
    assert loss_text(changed(forecast=FORECAST)) == "loss 0.8655 at the end"
    rough = changed(forecast={**FORECAST, "is_rough": True})
    assert loss_text(rough) == ""
    assert not any("0.8655" in line for line in forecast_lines(rough))


def test_figures_that_still_change_have_three_digits() -> None:
    assert [rounded(usd) for usd in (0.014238, 12.345, 123.4, 1e-7, 0, None)] == [
        *("$0.0142", "$12.3", "$123", "$0.000000100", "$0.00", "–")
    ]
    assert [rough_metric(loss) for loss in (0.86784, 0.0123456, 12.345, 123.4, 1.2e6, None)] == [
        *("0.868", "0.0123", "12.3", "123", "1.2e+06", "–")
    ]
    view = view_of(changed(metric="RMSE", validation_loss=0.86784), rows())
    assert (view["metric_text"], view["spent_text"]) == ("0.868", "$0.0140")
    view = view_of(changed(metric="RMSE", validation_loss=0.86784, status="capped"), rows())
    assert (view["metric_text"], view["spent_text"]) == ("0.8678", "$0.01400")


# ------------------------------------------------------------------------------------------------------- the workers


def entry(slot: int, compute_s: float = 0.015, left: int = 0, leaving: int = 0, replaced: int = 0) -> list[Any]:
    return [slot, 1, compute_s, 0.008, 0.004, left, 231 if left else 0, leaving, replaced]


def test_each_worker_is_shown_with_what_is_special_about_it() -> None:
    times = [entry(0), entry(1, 0.027), entry(2, left=1), entry(3, leaving=1), entry(4, replaced=2), entry(5)]
    strip = strip_of(times)
    assert json.loads(json.dumps(strip)) == strip
    assert [worker["kind"] for worker in strip] == ["", "slow", "left", "leaving", "replaced", ""]
    assert strip[0]["shares"] == [0.385, 0.205, 0.103]
    assert sum(strip[1]["shares"]) == pytest.approx(1)
    assert strip[0]["text"] == "Worker 0 computes 15 ms, exchanges 8.0 ms, waits 4.0 ms"
    assert strip[2]["text"] == "Worker 2 left after step 231"
    assert strip[4]["text"] == "Worker 4 was replaced 2 times"
    assert note_of(times, strip) == "Worker 1 computes 1.8x as long as the median · 1 leaving · 1 removed · 2 replaced"
    assert (strip_of([]), note_of([], [])) == ([], "")


def test_groups_of_workers_are_named_as_such() -> None:
    (group,) = strip_of([[4, 4, 0.015, 0.008, 0.004, 1, 99, 0, 0]])
    assert (group["label"], group["kind"]) == ("4-7", "")
    assert group["text"] == "Workers 4 to 7 computes 15 ms, exchanges 8.0 ms, waits 4.0 ms; 1 of them have left"


# ----------------------------------------------------------------------------------------------------- the loss axis


def test_the_first_steps_do_not_stretch_the_axis() -> None:
    steps = np.arange(1.0, 101.0)
    losses = np.where(steps <= 3, 2.0, 0.9 - steps * 1e-4)
    assert loss_range([(steps, losses)], 104.0, []).high < 0.9
    assert loss_range([(steps[:10], losses[:10])], 10.0, []).high == 2.0  # too few to leave any out
    assert loss_range([], 1.0, []) == (0.0, 1.0, False, None)


def test_a_run_that_diverges_has_a_logarithmic_axis_that_is_clipped() -> None:
    steps = np.arange(1.0, 101.0)
    assert not loss_range([(steps, 1 + steps / 10)], 100.0, []).is_log
    rising = loss_range([(steps, 10.0 ** (steps / 25))], 100.0, [])
    assert (rising.is_log, rising.clipped) == (True, None)
    wild = loss_range([(steps, np.where(steps == 100, np.inf, 10.0 ** (steps / 5)))], 100.0, [0.5])
    assert wild.is_log
    assert wild.high == pytest.approx(0.5e6)
    assert wild.clipped == pytest.approx(10.0 ** (99 / 5))


# ----------------------------------------------------------------------------------------------------------- the end


def test_the_end_says_what_is_next_and_what_it_cost() -> None:
    ended = view_of(changed(status="capped"), rows())
    assert ended["next_text"] == (
        'first.model.save("first.npz") keeps the model; %%mlless --resume first --budget 0.02 goes on from it.'
    )
    assert view_of(RUNNING, rows())["next_text"] == ""
    spoilt = changed(status="failed", validation_loss=2e19, loss=6e5, baseline_loss=0.99)
    assert view_of(spoilt, rows())["next_text"] == ""  # no model worth keeping
    assert cost_text(Cost(workers=0.01214, supervisor=0.001, redis=0.0009)) == (
        "Cost: workers $0.0121 · supervisor $0.00100 · redis $0.000900"
    )
    assert cost_text(Cost()) == ""
    store = StoreUse("memcached", 1200, 1, 1_400_000, 999, start_s=132, start_usd=0.00572)
    assert cost_text(Cost(store, memcached=0.00601)) == (
        "Cost: memcached $0.00601; frames in memcached: 1,200 puts (1.4 MB), 1 get (999 B), 132 s of start-up $0.00572"
    )
    assert cost_text(Cost(StoreUse("dynamodb", 2, 2, 10, 20, 0.0012), dynamodb=0.0012)) == (
        "Cost: dynamodb $0.00120; frames in dynamodb: 2 puts (10 B), 2 gets (20 B), requests $0.00120"
    )
    assert view_of(RUNNING, rows())["left_text"] == ""
    counted = view_of(changed(status="stopped", left={"processes": 0, "keys": 0, "files": 1}), rows())
    assert counted["left_text"] == "Left of the run: 0 processes, 0 keys and 1 temporary file"


@pytest.mark.parametrize(
    ("spent", "least", "more"),
    [
        (0.0009803, 0.0002, "0.001"),
        (0.0002, 0.00034, "0.0004"),  # a short run costs less than its start may
        (0.07, 0.0, "0.07"),
        (1234.5, 1.8, "2000.00"),
        (0.0, 0.0, "0.05"),
    ],
)
def test_as_much_again_is_what_goes_on(spent: float, least: float, more: str) -> None:
    ended = view_of(changed(status="stopped", spent_usd=spent, least_usd=least), rows())
    assert ended["more_value"] == more
    assert f"--budget {more} goes on" in ended["next_text"]


def test_nothing_goes_on_once_the_loss_has_settled() -> None:
    rules, verdict = StopRules({"patience": 2}, "RMSE"), None
    for step in (1, 2, 3):
        verdict = rules.observe(step, 1.0, 0.9, 0.9, True)
    assert verdict is not None
    settled = "the validation loss has settled: no better RMSE than 0.9000"  # without rules
    for reason in (verdict.reason, settled):
        ended = view_of(changed(status="finished", metric="RMSE", reason=reason), rows())
        assert ended["next_text"] == 'first.model.save("first.npz") keeps the model.'
        assert ended["more_value"] == ""


def test_a_browser_knows_what_to_say_when_the_kernel_is_gone() -> None:
    gone = view_of(RUNNING, rows())["if_restarted"]
    assert gone["reason"] == "The kernel was restarted; the run was stopped and saved: mlless_nb.attach('first')"
    assert not gone["is_live"]
    assert all(gone["cannot"].values())
    gone = view_of(changed(is_detached=True), rows())["if_restarted"]
    assert gone["reason"] == "The kernel was restarted; the run goes on: %mlless attach first shows it"
    assert gone["next_text"] == ""
    early = changed(status="starting", step=0)  # attach and --resume would take an older run of this name
    gone = view_of(early, rows(0))["if_restarted"]
    assert gone["reason"] == "The kernel was restarted before the first step; nothing was trained"
    assert gone["next_text"] == ""
    gone = view_of(dataclasses.replace(early, is_detached=True), rows(0))["if_restarted"]
    assert gone["reason"] == "The kernel was restarted; the run goes on: %mlless attach first shows it"
    gone = view_of(changed(status="capped"), rows())["if_restarted"]
    assert list(gone) == ["cannot"]  # of a run that had ended all else stays true
    assert gone["cannot"]["resume"] == "The kernel was restarted."
