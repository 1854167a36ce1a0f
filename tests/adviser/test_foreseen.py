"""Stored files before functions have counted their rows, and functions that live for a part of a step."""

from __future__ import annotations

import dataclasses
import io
from typing import Any

import numpy as np
import pytest
from preparation.in_process import InProcess

from mlless_nb import (
    PMF,
    DataError,
    JobError,
    LogisticRegression,
    Stop,
    StoredFiles,
    TrainingJob,
    TrainingRun,
    datasets,
)
from mlless_nb.adviser import foresight
from mlless_nb.adviser import stored as stored_job
from mlless_nb.adviser.descent import Descent
from mlless_nb.adviser.estimate import usd
from mlless_nb.adviser.stateless_estimate import UNKNOWN, stateless_estimate
from mlless_nb.data import format as format_module
from mlless_nb.data.foreseen import ForeseenRows, foreseen
from mlless_nb.money import Rates, price_profile
from mlless_nb.money.meter import NUSD

RNG = np.random.default_rng(0)


def csv_text(n: int) -> bytes:
    rows = [f"{a:.4f},{b:.4f},{int(a + b > 1)}\n" for a, b in RNG.random((n, 2))]
    return ("a,b,label\n" + "".join(rows)).encode()


def seen(texts: list[bytes], format: str = "csv", **more: Any) -> ForeseenRows:
    stored = InProcess(texts)
    return foreseen(StoredFiles("bucket/data/", format, **more), lambda _: stored.files)


def test_the_number_of_rows_is_estimated_from_the_first_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [csv_text(3000), csv_text(5000)]
    assert (seen(texts[:1]).n, seen(texts[:1]).sentence) == (3000, "1 file of 0.1 MB, 3,000 rows")
    monkeypatch.setattr(format_module, "HEAD_BYTES", 5000)
    rows = seen(texts)
    assert rows.n_head < 400
    assert rows.n == pytest.approx(8000, rel=0.05)
    assert rows.shape == (2,)
    assert rows.sentence == "2 files of 0.128 MB, about 8,000 rows by the first 310"


def test_the_first_row_group_of_parquet_stands_for_all() -> None:
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    file = io.BytesIO()
    pd.DataFrame({"a": RNG.random(1000), "label": RNG.integers(0, 2, 1000)}).to_parquet(file, row_group_size=200)
    rows = seen([file.getvalue()] * 2, "parquet")
    assert (rows.n_head, rows.n, rows.n_files) == (200, 2000, 2)


def test_a_wrong_line_at_the_begin_is_named() -> None:
    with pytest.raises(DataError, match=r"bucket/data/part-00000, line 3='what'"):
        seen([b"a,b,label\n1,2,0\nwhat\n"])


@pytest.mark.parametrize("validation", [0.1, None, "stored"])
def test_stored_files_have_the_figures_of_so_many_rows(validation: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_job, "STEPS_S", 0.05)
    rows, spec = seen([csv_text(4000)]), StoredFiles("bucket/data/", "csv")
    how = {"model": LogisticRegression(), "stop": Stop(epochs=10)}
    job = TrainingJob(data=spec, validation=spec if validation == "stored" else validation, **how)
    standing, ahead, advice = foresight.of_stored(job, rows)
    assert ahead.line.startswith("about $")
    assert ahead.epochs == advice.sizes.epochs == 10
    assert standing.n_train == (3600 if validation == 0.1 else 4000)
    with pytest.raises(JobError, match=r"minibatch=4500: must be at most"):
        foresight.of_stored(dataclasses.replace(job, minibatch=4500), ForeseenRows(rows.head(4000, 1), 90_000, 1, 1))


RATINGS = datasets.synthetic_ratings(200, 150, 20_000, rank=3, seed=0)
JOB = TrainingJob(
    model=PMF(rank=4), data=RATINGS, workers=4, minibatch=500, stop=Stop(epochs=10), execution="map-reduce"
)


def said(**changes: Any) -> str:
    job = dataclasses.replace(JOB, **changes)
    ahead = foresight.quick(job)
    assert ahead is not None
    line, _, why = ahead.line.partition("; ")
    assert why == UNKNOWN
    return line


def test_functions_that_live_for_a_part_of_a_step_have_their_steps_and_least_bill() -> None:
    least = 90 * 5 * Rates(price_profile(JOB.prices), JOB.memory_mb).function_nusd(0.0) / NUSD
    assert said() == f"10 epochs, 90 steps of 4 + 1 functions, at least {usd(least)}"
    assert said(execution="events", reducers=2).startswith("10 epochs, 90 steps of 4 + 4 functions, at least $")
    assert said(budget=0.0001).endswith("of which the budget of $0.0001 pays for 12 steps at most")
    assert said(stop=Stop(target=0.8)).endswith(
        f"an epoch, at least {usd(least / 10)}, until the target 0.8 is reached"
    )
    both = said(stop=Stop(target=0.8, epochs=10))
    assert both.startswith("at most 10 epochs, 90 steps of 4 + 1 functions, at least $")
    assert both.endswith(", or until the target 0.8 is reached")


def test_a_target_that_a_sample_did_not_reach_is_told_there_too() -> None:
    job = dataclasses.replace(JOB, stop=Stop(target=0.5))
    (told,) = stateless_estimate(job, None, Descent(None, 0.8123, 60.0, 1.0, True)).warnings
    assert told.startswith("stop.target=0.5: out of reach")


def test_why_there_are_no_figures_is_said_of_files_that_are_not_counted_yet() -> None:
    job = TrainingJob(model=LogisticRegression(), data=StoredFiles("bucket/data/", "csv"))
    run = TrainingRun(job, "run-1", "run")
    announced = foresight.announce(run)
    assert announced is not None
    announced.join(30)
    assert run.telemetry.state.estimate == foresight.UNCOUNTED


def test_a_run_is_estimated_once_however_often_it_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[TrainingJob] = []
    monkeypatch.setattr(foresight, "quick", asked.append)
    run = TrainingRun(JOB, "run-1", "run")
    announced = [foresight.announce(run) for _ in range(3)]
    assert announced[1:] == [None, None]
    assert announced[0] is not None
    announced[0].join(30)
    assert asked == [JOB]
    ended = TrainingRun(JOB, "run-2", "run")
    ended.telemetry.update(status="finished")
    assert foresight.announce(ended) is None


def test_an_estimate_does_not_fetch_the_job_of_a_run_that_was_attached_to() -> None:
    fetched: list[bool] = []
    run = TrainingRun(None, "run-1", "run")
    run._find_job = lambda: fetched.append(True)
    announced = foresight.announce(run)
    assert announced is not None
    announced.join(30)
    assert (fetched, run.telemetry.state.estimate) == ([], "")
