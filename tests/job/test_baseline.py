"""The loss of predicting one number for every row, and what is said of a model that is no better."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mlless_nb import PMF, SGD, Adam, LogisticRegression, TrainingJob, datasets
from mlless_nb.data import libsvm
from mlless_nb.data.stream import CsrStream
from mlless_nb.driver.launch.data_preparation import JobData
from mlless_nb.job.baseline import baseline_loss, shortfall
from mlless_nb.telemetry.live import RunState


def test_of_ratings_it_is_the_error_of_the_training_mean() -> None:
    train = datasets.ratings([0, 1, 0, 1], [0, 1, 1, 0], [1, 2, 3, 6])
    held_out = datasets.ratings([0, 1], [0, 1], [3, 5], n_users=2, n_items=2)
    assert baseline_loss(PMF(), train, held_out) == pytest.approx(np.sqrt((0 + 2**2) / 2))
    assert baseline_loss(PMF(), train, None) is None


def test_of_labels_it_is_the_log_loss_of_the_training_share_of_ones() -> None:
    train, held_out = datasets.csr(np.eye(4), [1, 0, 0, 0]), datasets.csr(np.eye(4)[:2], [1, 0])
    model = LogisticRegression()
    assert baseline_loss(model, train, held_out) == pytest.approx(-(np.log(0.25) + np.log(0.75)) / 2)
    assert baseline_loss(model, datasets.csr(np.eye(2), [1, 1]), held_out) is None


def test_a_file_that_is_read_in_blocks_has_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    labels = np.random.default_rng(0).integers(0, 2, 200)
    path = tmp_path / "rows"
    path.write_text("".join(f"{2 * label - 1} {1 + row % 7}:1\n" for row, label in enumerate(labels)))
    job = {"model": LogisticRegression(), "optimizer": Adam(), "workers": 1, "validation": 0.25}
    in_memory = JobData(TrainingJob(**job, data=datasets.libsvm(path)))  # type: ignore[arg-type]
    monkeypatch.setattr(libsvm, "IN_MEMORY_BYTES", 0)
    streamed = datasets.libsvm(path)
    assert isinstance(streamed, CsrStream)
    assert streamed.y.tolist() == (labels == 1).tolist()
    from_file = JobData(TrainingJob(**job, data=streamed))  # type: ignore[arg-type]
    assert from_file.baseline_loss == pytest.approx(in_memory.baseline_loss, rel=1e-6)
    assert 0.6 < (from_file.baseline_loss or 0) < 0.8


def test_without_held_out_rows_there_is_none() -> None:
    data = datasets.synthetic_ratings(30, 20, 300)
    assert JobData(TrainingJob(PMF(), SGD(0.1), data, workers=1, validation=None)).baseline_loss is None
    assert JobData(TrainingJob(PMF(), SGD(0.1), data, workers=1)).baseline_loss == pytest.approx(1, abs=0.3)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (RunState(validation_loss=0.6, best_loss=0.55), "no better than predicting the base rate (0.55)"),
        (RunState(validation_loss=0.6), "no better than predicting the base rate (0.55)"),
        (RunState(validation_loss=0.6, metric="MSE"), "no better than predicting the mean (0.55)"),
        (RunState(validation_loss=0.6, metric="RMSE"), "no better than predicting the mean (0.55)"),
        (RunState(validation_loss=0.6, best_loss=0.5499), ""),
        (RunState(), ""),
    ],
)
def test_an_ended_run_that_is_no_better_says_so(state: RunState, words: str) -> None:
    live = {**state.to_json(), "baseline_loss": 0.55, "metric": "log loss" if state.metric == "loss" else state.metric}
    assert shortfall(RunState(**live)) == ""
    assert shortfall(RunState(**{**live, "status": "finished"})) == words
    assert shortfall(RunState(**{**live, "status": "finished", "baseline_loss": None})) == ""
