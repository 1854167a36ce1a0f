"""The policy around the tuner: its advice and forecasts, switching it, its failure, and the replay of a record."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from supervisor.policy.curves import PRICES, hyperbola, live, rows
from supervisor.policy.test_scale_in import NOISE, SHRINK, Run

from mlless_nb import CommandError, ScaleIn
from mlless_nb.exchange.step_report import Report
from mlless_nb.supervisor.policy.decision import Decision
from mlless_nb.supervisor.policy.policy import Policy
from mlless_nb.supervisor.policy.replay import replay
from mlless_nb.supervisor.policy.scale_in import ScaleInTuner
from mlless_nb.telemetry.live import COLUMNS


@settings(deadline=None, max_examples=5)
@given(NOISE)
def test_a_replay_decides_what_was_decided_while_the_rows_came(seed: int) -> None:
    noise, kept = np.random.default_rng(seed).normal(0, 0.002, 251), []
    run = Run({"target": 0.53})

    def decide(row: list[float | None]) -> int:
        kept.append([math.nan if value is None else value for value in row])
        return run(row)

    live(lambda step, _: hyperbola(step) + noise[step], 250, 8, decide)
    job = {"n_workers": 8, "stop": {"target": 0.53}, "worker_usd_s": PRICES.worker_usd_s}
    again = replay((job | {"fixed_usd_s": PRICES.fixed_usd_s}, np.array(kept)), SHRINK)
    assert again == [decision.about(None) for decision in run.decisions]
    assert any(decision.kind == "knee" for decision in again)
    assert all("{worker}" not in decision.text for decision in again)
    assert replay((job | {"fixed_usd_s": PRICES.fixed_usd_s}, np.array(kept)), ScaleIn.off()) == []


def test_a_record_without_its_job_is_refused_in_one_line() -> None:
    with pytest.raises(CommandError, match="cannot be replayed"):
        replay(({"stop": {}}, np.empty((0, len(COLUMNS)))), ScaleIn())


def test_advice_names_the_worker_and_forecasts() -> None:
    advice = Policy(SHRINK.to_json(), 8, {"target": 0.53}, PRICES)
    assert advice.tuner == "on"
    found: list[tuple[Decision, int | None]] = []
    reports = {
        slot: Report(quality_sum=0.5 + slot % 2, quality_count=1.0, compute_s=0.1, exchange_s=0.1) for slot in range(8)
    }
    forecasts, kept = [], []

    def step(row: list[float | None]) -> int:
        kept.append(dict(zip(COLUMNS, row, strict=True)))
        advice.append(row)
        decided = advice.decide(reports, set())
        found.extend(decided)
        if (made := advice.forecast(1.0)) is not None:
            forecasts.append(made)
        return sum(worker is not None for _, worker in decided)

    live(lambda step, _: hyperbola(step), 300, 8, step)
    assert next(worker for _, worker in found if worker is not None) % 2 == 1
    made = forecasts[-1]
    at, before = kept[made["step"] - 1], kept[made["step"] - 2]
    step_s = at["time_s"] - before["time_s"]
    step_usd = step_s * PRICES.usd_s(int(at["n_workers"]))

    def steps_to(loss: float) -> float:
        return (1 / (loss - 0.5) - 5.2) / 0.06 - made["step"]

    # The target is met at step 469, and told by the evaluation at step 470.
    left = 470 - made["step"]
    for name, done, unit in (("s_to_target", at["time_s"], step_s), ("usd_to_target", at["spent_usd"], step_usd)):
        low, expected, high = made[name]
        assert low <= expected <= high
        assert expected - done == pytest.approx(left * unit, rel=0.15)
    assert made["usd_per_percent"] == pytest.approx(steps_to(0.99 * at["loss"]) * step_usd, rel=0.1)
    assert 0.5 < made["loss_at_cap"] < 0.53  # the floor, and the target


def test_the_tuner_is_switched_where_there_is_one() -> None:
    advice = Policy(ScaleIn().to_json(), 8, {}, PRICES)
    assert advice.switch(False) == ""
    assert advice.tuner == "paused"
    assert advice.switch(True) == ""
    assert advice.tuner == "on"
    off = Policy(ScaleIn.off().to_json(), 8, {}, PRICES)
    assert "no auto-tuner" in off.switch(True)
    assert off.tuner == "off"


def test_a_tuner_that_fails_costs_its_advice_and_not_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    advice = Policy(SHRINK.to_json(), 8, {}, PRICES)

    def fail(_: ScaleInTuner) -> list[Decision]:
        raise FloatingPointError("overflow")

    monkeypatch.setattr(ScaleInTuner, "decide", fail)
    advice.append(rows([1.0])[0])
    ((decision, worker),) = advice.decide({}, ())
    assert worker is None
    assert decision.text == "The auto-tuner is off: FloatingPointError: overflow"
    assert advice.tuner == "off"
