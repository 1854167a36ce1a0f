"""A run's entry in the list of all runs: at its start, at its end, and if the list cannot be written."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlless_nb import PMF, SGD, TrainingJob, datasets
from mlless_nb.telemetry.live import Telemetry
from mlless_nb.tracking import RunLedger, Tracker
from mlless_nb.tracking import ledger as ledgers

JOB = TrainingJob(PMF(2), SGD(0.5), datasets.synthetic_ratings(30, 20, 300, rank=2, seed=1), minibatch=30)
STATE = {"step": 3, "time_s": 1.5, "status": "capped", "reason": "the budget is used up", "loss": 0.9, "best_loss": 0.7}


@pytest.fixture(autouse=True)
def own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


def test_a_run_is_entered_at_its_start_and_at_its_end() -> None:
    tracker = Tracker("run-1", "first", JOB, {"project": "thesis"}, Telemetry())
    (run,) = RunLedger().read()
    assert (run.name, run.project, run.session, run.status, run.usd) == ("first", "thesis", "", "starting", 0.0)
    tracker.end(JOB, STATE, 0.25)
    (run,) = RunLedger().read()
    assert (run.status, run.steps, run.seconds, run.usd) == ("capped", 3, 1.5, 0.25)
    assert (run.best_loss, run.last_loss) == (0.7, 0.9)
    Tracker("run-2", "second", JOB, {}, Telemetry()).discard()
    assert len(RunLedger().read()) == 1


@pytest.mark.parametrize("fault", ["no folder", "anything"])
def test_a_list_that_cannot_be_written_is_one_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    if fault == "no folder":
        (tmp_path / "file").touch()
        monkeypatch.setattr(ledgers, "runs_path", lambda: tmp_path / "file" / "runs.sqlite")
    else:
        monkeypatch.setattr(RunLedger, "begin", lambda *_: 1 / 0)
    telemetry = Telemetry()
    tracker = Tracker("run-1", "first", JOB, {}, telemetry)
    tracker.end(JOB, STATE, 0.25)
    (event,) = telemetry.state.events
    assert event.text.startswith("Not in mlless_nb.runs(): ")
    assert "\n" not in event.text
