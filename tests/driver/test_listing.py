"""`runs`, `spend`, `forget` and `compare` over the list and the records of earlier processes; one real run."""

from __future__ import annotations

import dataclasses
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlless_nb
from mlless_nb import PMF, SGD, CommandError, JobError, Stop, TrainingJob, datasets
from mlless_nb.driver import spending
from mlless_nb.money.owner import Owner
from mlless_nb.telemetry.live import COLUMNS, RunState
from mlless_nb.telemetry.record import Record, runs_folder
from mlless_nb.tracking import RunLedger, TrackedRun
from mlless_nb.tracking import ledger as ledgers

GONE = Owner(Owner.this().host, Owner.this().boot, 2**22 + 1, "1")
JOB = TrainingJob(
    PMF(2),
    SGD(0.5),
    datasets.synthetic_ratings(60, 40, 900, rank=2, seed=1),
    workers=1,
    minibatch=90,
    stop=Stop(steps=4),
)


@pytest.fixture(autouse=True)
def own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr(spending, "_in_force", {})


def recorded(run_id: str, name: str, status: str = "finished", cost: float = 0.5, **state: Any) -> None:
    """A record as an ended, or killed, run has left it."""
    fields = {"description": "PMF rank 2 · small · BSP", "metric": "RMSE", "best_loss": 0.8, "validation_loss": 0.9}
    record = Record(run_id)
    row = dict.fromkeys(COLUMNS, 0.0) | {"step": 1.0, "time_s": 2.0, "loss": 0.9, "spent_usd": cost}
    record.append([list(row.values()), [value + (name == "step") for name, value in row.items()]])
    whole = RunState(**{"run_id": run_id, "name": name, "status": status, "step": 2, **fields, **state})
    record.end({"state": whole.to_json(), "cost": {"workers": cost}, "job": {}, "resume": {"workers": 3}})


def test_a_run_is_listed_while_it_lives_and_afterwards() -> None:
    mlless_nb.project("thesis", budget=0.5)
    run = mlless_nb.train(dataclasses.replace(JOB, name="first"))
    listed = mlless_nb.runs()["first"]
    assert (listed.id, listed.project, listed.model) == (run.id, "thesis", "PMF rank 2")
    run.wait(180)
    listed = mlless_nb.runs(project="thesis")[-1]
    assert (listed.status, listed.steps, listed.reason) == ("finished", 4, run.reason)
    assert listed.usd == run.cost.total == mlless_nb.spend("thesis").total
    assert run.best is not None
    assert listed.best_loss == run.best.loss
    assert run in mlless_nb.runs()
    assert len(mlless_nb.runs(project="")) == 0
    RunLedger().change(run.id, best_loss=None)
    compared = mlless_nb.compare(run, run.id)
    assert compared.settings == {}
    np.testing.assert_array_equal(
        compared.runs[0].losses, run.history["validation_loss"][np.isfinite(run.history["validation_loss"])]
    )


@pytest.mark.long
def test_a_list_that_cannot_be_written_breaks_no_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(ledgers, "runs_path", lambda: tmp_path / "file" / "runs.sqlite")
    run = mlless_nb.train(JOB)
    assert run.wait(180) == "finished"
    told = [event.text for event in run.telemetry.state.events if "Not in mlless_nb.runs()" in event.text]
    assert len(told) == 1
    assert "\n" not in told[0]


def test_records_from_before_the_list_are_in_it() -> None:
    recorded("20261124-100000-aaaaaaaa", "old")
    recorded("20261123-100000-bbbbbbbb", "older", status="capped", cost=0.25)
    runs = mlless_nb.runs()
    assert [(run.name, run.status, run.usd, run.model, run.data) for run in runs] == [
        ("older", "capped", 0.25, "PMF rank 2", "small"),
        ("old", "finished", 0.5, "PMF rank 2", "small"),
    ]
    assert runs[-1].settings == {"workers": 3}
    assert runs.spend().total == 0.75
    assert "2 runs" in repr(runs)
    assert "<table" in runs._repr_html_()


def test_a_killed_notebooks_run_gets_its_end() -> None:
    for run_id, name in (("20261124-100000-aaaaaaaa", "killed"), ("20261124-110000-bbbbbbbb", "never began")):
        RunLedger().begin(TrackedRun(run_id, name, 1.0, status="starting"), GONE)
    recorded("20261124-100000-aaaaaaaa", "killed", status="running", cost=0.125)
    found = {run.name: run for run in mlless_nb.runs()}
    assert (found["killed"].status, found["killed"].usd, found["killed"].steps) == ("failed", 0.125, 2)
    assert found["never began"].status == "failed"
    assert "before it had begun" in found["never began"].reason


def test_forget_removes_the_record_and_keeps_the_dollars() -> None:
    for number in range(3):
        recorded(f"2026112{number}-100000-aaaaaaaa", f"run-{number}")
    assert [run.name for run in mlless_nb.forget("run-0")] == ["run-0"]
    assert [run.name for run in mlless_nb.runs()] == ["run-1", "run-2"]
    assert not (runs_folder() / "20261120-100000-aaaaaaaa").exists()
    assert mlless_nb.spend().total == 1.5
    RunLedger().begin(TrackedRun("live", "live", time.time(), status="running"), Owner.this())
    with pytest.raises(CommandError, match="'live' is live"):
        mlless_nb.forget("run-1", "live")
    with pytest.raises(CommandError, match="no run is called 'nobody'"):
        mlless_nb.forget("nobody")
    with pytest.raises(JobError, match="older_than_days"):
        mlless_nb.forget()
    assert [run.name for run in mlless_nb.forget(older_than_days=1e-6)] == ["run-1", "run-2"]
    assert [run.name for run in mlless_nb.runs()] == ["live"]


def test_forget_takes_a_sweep_by_its_name() -> None:
    for run_id, name, sweep, status in (
        ("id-0", "rates-1", "rates-aaaaaaaa", "finished"),
        ("id-1", "rates-1", "rates-bbbbbbbb", "pruned"),
        ("id-2", "rates-2", "rates-bbbbbbbb", "finished"),
        ("id-3", "other-1", "other-cccccccc", "finished"),
        ("id-4", "other-2", "other-cccccccc", "running"),
        ("id-5", "alone", "", "finished"),
    ):
        run = TrackedRun(run_id, name, 1e9 + int(run_id[-1]), sweep=sweep, status=status)
        RunLedger().begin(run, Owner.this())
    for wrong, says in (("other", "'other-2' is live"), ("", "no run is called ''")):
        with pytest.raises(CommandError, match=says):
            mlless_nb.forget("rates", wrong)
    assert [run.id for run in mlless_nb.forget("rates")] == ["id-1", "id-2"]
    assert [run.id for run in mlless_nb.forget("rates-aaaaaaaa", "rates-1")] == ["id-0"]
    assert [run.id for run in mlless_nb.runs()] == ["id-3", "id-4", "id-5"]


def test_tables_of_others_take_the_list() -> None:
    recorded("20261124-100000-aaaaaaaa", "old")
    assert len(mlless_nb.runs()[:0].to_pandas()) == 0
    RunLedger().begin(
        TrackedRun("new", "new", 2e9, settings={"workers": 4, "validation": 0.1, "optimizer": {"learning_rate": 1}})
    )
    RunLedger().begin(
        TrackedRun("newer", "newer", 3e9, settings={"validation": "rows", "optimizer": {"learning_rate": 0.5}})
    )
    frame = mlless_nb.runs().to_pandas()
    assert frame["workers"].tolist()[:2] == [3, 4]
    assert str(frame["began"].dtype).endswith("UTC]")
    import polars

    arrow = polars.DataFrame(mlless_nb.runs())
    assert arrow["name"].to_list() == ["old", "new", "newer"]
    assert arrow["optimizer.learning_rate"].to_list() == [None, 1.0, 0.5]
    assert arrow["validation"].to_list() == [None, "0.1", "rows"]


def test_compare_reads_curves_from_records() -> None:
    recorded("20261124-100000-aaaaaaaa", "old")
    recorded("20261124-110000-bbbbbbbb", "old", best_loss=0.7)
    compared = mlless_nb.compare("old", "20261124-100000-aaaaaaaa")
    assert [run.label for run in compared.runs] == ["old (20261124-110000-bbbbbbbb)", "old (20261124-100000-aaaaaaaa)"]
    figure = compared.plot()
    assert [axis.title.text for axis in figure.select_xaxes()] == ["seconds", "US dollars"]
    assert len(figure.data) == 4
    assert "their settings are the same" in repr(compared)
    assert "font-weight:600" in compared._repr_html_()
    with pytest.raises(CommandError, match="no run is called 'new'; the newest: old"):
        mlless_nb.compare("old", "new")
    for wrong in (("old",), ("old", 3)):
        with pytest.raises(JobError, match="runs="):
            mlless_nb.compare(*wrong)  # type: ignore[arg-type]


def test_compare_takes_a_run_that_ended_before_its_functions_were_invoked() -> None:
    recorded("20261124-100000-aaaaaaaa", "old")
    RunLedger().begin(TrackedRun("20261124-110000-bbbbbbbb", "never-began", 1.0, status="starting"), GONE)
    compared = mlless_nb.compare("old", "never-began")
    assert [len(run.losses) for run in compared.runs] == [2, 0]
    assert repr(compared).splitlines()[6].split() == ["status", "finished", "failed"]
    assert len(compared.plot().data) == 4
    RunLedger().begin(TrackedRun("20261124-120000-cccccccc", "elsewhere", 2.0, status="running"), Owner.this())
    with pytest.raises(CommandError):
        mlless_nb.compare("old", "elsewhere")


def test_a_part_of_the_list_in_which_there_is_none_says_so() -> None:
    assert repr(mlless_nb.runs()) == "no run yet: a %%mlless cell starts one"
    RunLedger().begin(TrackedRun("20261124-100000-aaaaaaaa", "old", 1.0, status="finished"))
    for nothing in (mlless_nb.runs(project="thesis"), mlless_nb.forget(older_than_days=1e6)):
        assert (repr(nothing), nothing._repr_html_()) == ("none of 1 run", "<i>none of 1 run</i>")
    assert repr(mlless_nb.spend("thesis")) == "nothing was spent yet"


def test_a_diverged_run_leaves_the_axis_to_the_others() -> None:
    for run_id in ("20261124-100000-aaaaaaaa", "20261124-110000-bbbbbbbb"):
        recorded(run_id, "old")
    compared = mlless_nb.compare("20261124-100000-aaaaaaaa", "20261124-110000-bbbbbbbb")
    axis = np.arange(3.0)
    good, wild = (
        dataclasses.replace(run, seconds=axis, dollars=axis, losses=np.array(losses))
        for run, losses in zip(compared.runs, ([1.0, 0.8, 0.7], [0.9, 5.0, 2e23]), strict=True)
    )
    drawn = dataclasses.replace(compared, runs=(good, wild)).plot().layout.yaxis
    assert (drawn.type, drawn.range[1]) == ("log", pytest.approx(math.log10(30 * 0.7)))
    assert dataclasses.replace(compared, runs=(good, good)).plot().layout.yaxis.type is None


def test_a_sweep_s_name_stands_for_the_newest_one_and_its_id_for_any() -> None:
    for number, sweep in enumerate(["rates-aaaaaaaa", "rates-aaaaaaaa", "other-cccccccc", "rates-bbbbbbbb"]):
        project = "thesis" if number == 1 else ""
        name = f"{sweep[:5]}-{number}"
        RunLedger().begin(TrackedRun(f"id-{number}", name, 1e9 + number, project=project, sweep=sweep))
    for asked, ids in (
        ({"sweep": "rates"}, ["id-3"]),
        ({"sweep": "rates-aaaaaaaa"}, ["id-0", "id-1"]),
        ({"sweep": "rates", "project": "thesis"}, ["id-1"]),
        ({"sweep": "none"}, []),
        ({"sweep": ""}, []),
    ):
        assert [run.id for run in mlless_nb.runs(**asked)] == ids, asked


def test_the_trials_of_a_sweep_are_shown_with_their_settings_the_best_one_first() -> None:
    for number, (rate, loss) in enumerate([(0.5, 0.9), (2.0, 0.7), (8.0, None)], 1):
        settings = {"workers": 2, "optimizer": {"learning_rate": rate}}
        figures: dict[str, Any] = {"metric": "RMSE", "best_loss": loss, "status": "finished"}
        entry = TrackedRun(f"id-{number}", f"tuned-{number}", 1e9 + number, sweep="tuned-0a1b2c3d", settings=settings)
        RunLedger().begin(dataclasses.replace(entry, **figures))
    # of a live one the workers are not decided yet
    live = TrackedRun("id-4", "tuned-4", 2e9, sweep="tuned-0a1b2c3d", status="running")
    RunLedger().begin(live)
    settings = {"workers": 2, "optimizer": {"learning_rate": 4.0}}
    failed = dataclasses.replace(live, id="id-5", name="tuned-5", began_s=2e9 + 1, settings=settings, status="failed")
    RunLedger().begin(dataclasses.replace(failed, metric="RMSE", best_loss=0.6))  # it does not lead
    RunLedger().begin(TrackedRun("other", "other", 2e9, settings={"workers": 8}, status="finished"))
    trials = mlless_nb.runs(sweep="tuned")
    assert [run.name for run in trials] == ["tuned-1", "tuned-2", "tuned-3", "tuned-4", "tuned-5"]
    for shown in (trials, trials[:]):
        head, *rows = repr(shown).splitlines()
        assert head.split() == ["name", "began", "optimizer.learning_rate", "best", "last", "time", "cost", "status"]
        assert [row.split()[0] for row in rows[:5]] == ["tuned-2", "tuned-1", "tuned-5", "tuned-3", "tuned-4"]
        assert [row.split()[3] for row in rows[:5]] == ["2", "0.5", "4", "8", "\u2013"]
        html = shown._repr_html_()
        assert html.index("font-weight:600") < html.index("tuned-2") < html.index("tuned-1")
    assert repr(mlless_nb.runs()).splitlines()[1].startswith("tuned-1")
    for name in ("tuned", "tuned-0a1b2c3d"):
        with pytest.raises(CommandError, match=f"^'{name}' is a sweep: mlless_nb.runs.sweep='{name}'. lists"):
            mlless_nb.attach(name)
    for name in ("tuned-9", ""):
        with pytest.raises(CommandError, match="no ended run is called"):
            mlless_nb.attach(name)
