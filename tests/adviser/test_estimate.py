"""What a job will take, in one line, and the warnings: sentences from given figures."""

from __future__ import annotations

import dataclasses
import math
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlless_nb
from mlless_nb import PMF, JobWarning, LogisticRegression, Stop, TrainingJob, TrainingRun, datasets
from mlless_nb.adviser import foresight
from mlless_nb.adviser.descent import Descent, planned
from mlless_nb.adviser.estimate import LinearEstimate, count, estimate, seconds, usd
from mlless_nb.data import numbers
from mlless_nb.data.stream import CsrStream
from mlless_nb.driver import runs

RATINGS = datasets.synthetic_ratings(200, 150, 20_000, rank=3, seed=0)
JOB = TrainingJob(model=PMF(rank=4), data=RATINGS, workers=2, minibatch=500, stop=Stop(epochs=10))
#: 2 workers: $0.003 and 15 s for 10 epochs; 8: $0.011 and 9 s; 4: in between.
ESTIMATES = {
    2: LinearEstimate(2, 1.0, 0.0004, 1.4, 0.00026),
    4: LinearEstimate(4, 1.0, 0.0010, 1.1, 0.00050),
    8: LinearEstimate(8, 1.0, 0.0020, 0.8, 0.00090),
}


def said(job: TrainingJob, descent: Descent | None = None) -> str:
    return estimate(job, ESTIMATES, planned(job, job.n_minibatches), descent).line


def warned(job: TrainingJob, descent: Descent | None = None) -> tuple[str, ...]:
    return estimate(job, ESTIMATES, planned(job, job.n_minibatches), descent).warnings


def with_(**changes: object) -> TrainingJob:
    return dataclasses.replace(JOB, **changes)  # type: ignore[arg-type]


def test_the_jobs_own_figures_come_first_and_the_best_numbers_of_workers_after_them() -> None:
    assert said(JOB) == "about $0.003 and 15 s; 2 workers are cheapest, 8 quickest ($0.011, 9.0 s)"
    assert said(with_(workers=8)) == "about $0.011 and 9.0 s; 8 workers are quickest, 2 cheapest ($0.003, 15 s)"
    assert said(with_(workers=4)) == (
        "about $0.006 and 12 s with 4 workers; 2 workers are cheapest ($0.003, 15 s), 8 quickest ($0.011, 9.0 s)"
    )
    assert warned(JOB) == ()


@pytest.mark.parametrize(
    ("changes", "begins"),
    [
        ({"stop": Stop(steps=180)}, "about $0.003 and 15 s;"),
        ({"stop": Stop(epochs=10, time_s=8.0)}, "about $0.0017 and 8.0 s;"),
        ({"stop": Stop()}, "about $0.03 and 3 min (112 epochs, or until the loss has settled);"),
        ({"stop": Stop(target=0.8)}, "about $0.00026 and 1.4 s an epoch, until the target 0.8 is reached;"),
        ({"stop": Stop(target=0.8, epochs=10)}, "about $0.003 and 15 s (10 epochs, or until the target 0.8 is"),
        ({"stop": Stop(patience=3)}, "about $0.00026 and 1.4 s an epoch, until 3 evaluations in a row are no better;"),
        (
            {"stop": Stop(), "budget": 0.0134},
            "the budget of $0.013 lasts about 71 s, 50 epochs, all of which a run without a stop rule spends; 2 ",
        ),
        ({"budget": 0.00298}, "about $0.003 and 15 s: the budget ends it in epoch 10 of 10;"),
        ({"budget": 0.0017}, "about $0.0017 and 8.0 s: the budget ends it in epoch 6 of 10;"),
    ],
    ids=["steps", "time", "settles", "target", "target or epochs", "patience", "budget", "near the end", "capped"],
)
def test_every_way_to_end_has_its_words(changes: dict[str, object], begins: str) -> None:
    assert said(with_(**changes)).startswith(begins), said(with_(**changes))


def test_a_target_that_a_sample_has_reached_is_the_end() -> None:
    job = with_(stop=Stop(target=0.8))
    assert said(job, Descent(20.0, 0.79, 20.0, 1.0, False)).startswith(
        "about $0.0056 and 29 s to the target 0.8 (20 epochs);"
    )
    assert warned(job, Descent(20.0, 0.79, 20.0, 1.0, False)) == ()


def test_wrong_budgets_are_told() -> None:
    (little,) = warned(with_(budget=0.0005))
    assert little == "budget=0.0005: buys about 0.4 epochs with 2 workers; one epoch is about $0.00066"
    (short,) = warned(with_(budget=0.0017))
    assert short == "budget=0.0017: buys about 5 of 10 epochs; all of them are about $0.003"
    (much,) = warned(with_(budget=3.0))
    assert much == "budget=3: about 1,000 times what the run needs ($0.003)"
    (endless,) = warned(with_(budget=3.0, stop=Stop()))
    assert endless.startswith("budget=3: buys about 11,500 epochs, and without a stop rule the run spends all of it")
    assert warned(with_(budget=0.01)) == ()


def test_too_many_workers_are_told_and_others_are_not() -> None:
    crowded = {**ESTIMATES, 8: LinearEstimate(8, 1.0, 0.0020, 1.5, 0.00090)}
    (told,) = estimate(with_(workers=8), crowded, 10.0, None).warnings
    assert told.startswith("workers=8: 2 workers would be quicker and cheaper (about $0.003 and 15 s for 10 epochs; 8")
    assert warned(with_(workers=8)) == ()


def test_far_too_many_workers_are_told_before_they_are_started(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []
    monkeypatch.setattr(runs, "train", lambda job, resume: started.append(job.workers))
    with pytest.warns(JobWarning, match=r"^workers=20: \d workers? would be quicker and cheaper") as caught:
        mlless_nb.train(with_(workers=20))
    assert [each.filename for each in caught] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mlless_nb.train(with_(workers=2))
        with pytest.raises(JobWarning):
            mlless_nb.train(with_(workers=20))  # nothing is started if the user's filter makes it an error
        monkeypatch.setattr(foresight, "QUICK_ROWS", 1000)
        mlless_nb.train(with_(workers=20))  # takes too long to be measured
    assert started == [20, 2, 20]


def test_far_too_many_workers_are_told_before_a_run_is_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "train", lambda job, resume: TrainingRun(job, "0002", "again"))
    first = TrainingRun(JOB, "0001", "first")
    with pytest.warns(JobWarning, match=r"^workers=20: ") as caught:
        again = first.resume(workers=20)
    assert [each.filename for each in caught] == [__file__]
    assert [event.text for event in again.telemetry.state.events] == [str(each.message) for each in caught]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not first.resume(workers=3).telemetry.state.events


def test_a_hopeless_target_is_told_with_what_was_seen() -> None:
    job = with_(stop=Stop(target=0.5))
    (sure,) = warned(job, Descent(None, 0.8123, 60.0, 1.0, True))
    assert sure == (
        "stop.target=0.5: out of reach; RMSE 0.8123 was the lowest in 60 epochs of all rows here, and it had settled"
    )
    (perhaps,) = warned(job, Descent(None, 0.8123, 12.0, 0.25, False))
    assert perhaps == (
        "stop.target=0.5: it may be out of reach; RMSE 0.8123 was the lowest in 12 epochs of 25 % of the rows here, "
        "and it was still falling"
    )


def test_one_worker_alone_is_not_compared() -> None:
    alone = {1: LinearEstimate(1, 1.0, 0.0004, 1.4, 0.00026)}
    assert estimate(with_(workers=1), alone, 10.0, None).line == "about $0.003 and 15 s"


@given(st.floats(1e-12, 1e9), st.floats(1e-6, 1e7), st.floats(1e-3, 1e12))
def test_figures_of_any_size_are_short(amount: float, length_s: float, epochs: float) -> None:
    assert usd(amount).startswith("$")
    assert math.isclose(float(usd(amount)[1:].replace(",", "")), amount, rel_tol=0.06 if amount < 10 else 0.51)
    assert len(seconds(length_s)) < 12
    assert "epoch" in count(epochs)


@pytest.mark.parametrize("validation", [0.1, None], ids=["held out", "all"])
def test_the_first_rows_of_a_file_are_enough_for_the_quick_estimate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, validation: float | None
) -> None:
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.random((4000, 5)), rng.integers(0, 2, 4000)])
    path = tmp_path / "rows.csv"
    np.savetxt(path, rows, delimiter=",", header="a,b,c,d,e,label", comments="", fmt="%.5f")
    monkeypatch.setattr(numbers, "BLOCK_BYTES", 1 << 14)
    fields = {"workers": 2, "minibatch": 100, "validation": validation, "stop": Stop(epochs=10)}
    job = TrainingJob(model=LogisticRegression(), data=datasets.csv(path), **fields)
    found = foresight.quick(job)
    in_memory = foresight.quick(dataclasses.replace(job, data=job.data.load()))
    assert found is not None
    assert in_memory is not None
    assert found.line.startswith("about $")
    assert found.epochs == in_memory.epochs == 10
    n_read: list[int] = []
    blocks = CsrStream.blocks
    monkeypatch.setattr(CsrStream, "blocks", lambda rows: (n_read.append(1) or block for block in blocks(rows)))
    assert foresight.quick(job) is not None
    assert len(n_read) <= 2  # of some ten
    assert foresight.quick(dataclasses.replace(job, minibatch=2500)) is None  # these blocks are too few for its step


def test_the_quick_estimate_leaves_out_what_cannot_be_measured_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    assert foresight.quick(JOB) is not None
    monkeypatch.setattr(foresight, "QUICK_ROWS", 1000)
    assert foresight.quick(JOB) is None


def test_a_target_is_sought_on_all_rows_if_there_is_time() -> None:
    ahead, advice = foresight.thorough(with_(stop=Stop(target=0.75)))
    assert "to the target 0.75" in ahead.line
    assert advice.sizes.epochs == ahead.epochs
    (told,) = [each for each in foresight.thorough(with_(stop=Stop(target=0.1)))[0].warnings if "target" in each]
    assert told.startswith("stop.target=0.1: out of reach; RMSE 0.")
