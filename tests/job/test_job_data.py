"""A job and its data: what must fit, what is held out, and what follows from the rows where a job leaves it open."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from job.test_job import RATINGS, make, nothing_is_launched  # noqa: F401 - used by every test

from mlless_nb import (
    PMF,
    SGD,
    AdaGrad,
    Adam,
    DataError,
    JobError,
    LogisticRegression,
    SoftmaxRegression,
    Stop,
    TrainingJob,
    datasets,
)
from mlless_nb.job.job import held_out

CLICKS = datasets.synthetic_clicks(200, n_features=40, seed=1)


def test_the_data_must_fit_the_model() -> None:
    with pytest.raises(JobError, match=r"data=.*must be ratings"):
        make(data=CLICKS)
    with pytest.raises(JobError, match="data=") as caught:
        make(model=LogisticRegression())
    assert caught.value.value is RATINGS


def test_a_validation_set_must_be_of_the_data_s_kind_and_shape() -> None:
    other = datasets.synthetic_ratings(31, 20, 50, rank=2)
    for wrong in (other, CLICKS):
        with pytest.raises(JobError, match="same kind and shape as data") as caught:
            make(validation=wrong)
        assert caught.value.field == "validation"
        assert caught.value.value is wrong
    assert make(validation=datasets.synthetic_ratings(30, 20, 50, rank=2)).n_train == 300


def test_more_workers_than_minibatches_are_refused_with_the_most_there_can_be() -> None:
    assert make(workers=9).n_minibatches == 9  # 270 training rows
    with pytest.raises(JobError, match=r"workers=10: must be at most 9, for 9 minibatches \(270 training"):
        make(workers=10)
    assert make(workers=10, validation=None).n_minibatches == 10
    with pytest.raises(JobError, match="workers=4: must be at most 1"):
        make(workers=4, minibatch=10**9)
    assert make(minibatch=10**9).workers == 1


@pytest.mark.parametrize("n", [2, 15, 150, 569])
def test_small_data_train_with_what_is_left_open(n: int) -> None:
    job = TrainingJob(LogisticRegression(), data=datasets.synthetic_clicks(n, n_features=40, seed=1))
    assert job.workers == 1
    assert 1 <= job.minibatch <= max(16, n)
    for workers in range(1, max(min(n - 1, 9), 1)):
        assert dataclasses.replace(job, workers=workers, minibatch=None).n_minibatches >= workers


def test_what_is_left_open_follows_from_the_rows() -> None:
    ratings = datasets.synthetic_ratings(300, 200, 50_000, rank=2, seed=1)
    job = TrainingJob(PMF(), data=ratings)
    assert (job.workers, job.minibatch) == (4, 312)  # 45,000 rows in 36 steps
    assert job.optimizer == SGD(momentum=0.9, nesterov=True)
    assert TrainingJob(PMF(), data=ratings, workers=2).minibatch == 625
    assert TrainingJob(PMF(), data=ratings, minibatch=10_000).workers == 4
    assert TrainingJob(PMF(), data=ratings, minibatch=40_000).workers == 2
    assert TrainingJob(PMF(), data=ratings, stop=Stop(epochs=2)).minibatch == 56  # 400 steps in two epochs
    wide, dense = datasets.csr(np.eye(50), np.arange(50) % 2), datasets.csr(np.ones((50, 3)), np.arange(50) % 2)
    assert isinstance(TrainingJob(LogisticRegression(), data=wide).optimizer, AdaGrad)
    assert isinstance(TrainingJob(LogisticRegression(), data=dense).optimizer, Adam)


@pytest.mark.parametrize(
    ("n", "fraction", "held"), [(300, 0.1, 30), (5, 0.01, 1), (5, 0.99, 4), (2, 0.5, 1), (1, 0.5, 0)]
)
def test_held_out_rows_are_at_least_one_and_never_all(n: int, fraction: float, held: int) -> None:
    assert held_out(n, fraction) == held


def test_the_split_holds_out_as_many_as_the_job_counts_on() -> None:
    for fraction in (0.001, 0.1, 0.35, 0.999):
        job = make(validation=fraction, minibatch=1, workers=1)
        training, validation = job.data.split(fraction, 0)
        assert training.n == job.n_train
        assert validation.n == held_out(300, fraction)


def test_tables_that_no_function_can_hold_are_refused() -> None:
    huge = datasets.ratings([0, 400_000_000], [0, 1], [1.0, 2.0], n_users=400_000_001)
    with pytest.raises(JobError, match=r"memory_mb=1769: must be at least \d+ \(MB\): .* numbered from 0"):
        TrainingJob(PMF(rank=4), SGD(1.0), huge, workers=1, minibatch=1)


@pytest.mark.parametrize(
    ("y", "words"),
    [
        (
            [0, 1, 2, 0],
            r"y\[2\]=2.0: must be 0 or 1 for LogisticRegression \(SoftmaxRegression\(n_classes\) takes more\)$",
        ),
        ([0, 1, 0.5, 0], r"y\[2\]=0.5: must be 0 or 1 for LogisticRegression$"),
        ([1, -1, 1, -1], r"y\[1\]=-1.0: must be 0 or 1 for LogisticRegression \(for labels -1 and 1 hand in"),
    ],
)
def test_labels_that_a_model_cannot_take_are_named(y: list[float], words: str) -> None:
    wrong, right = datasets.csr(np.eye(4), y), datasets.csr(np.eye(4), [0, 1, 0, 1])
    with pytest.raises(DataError, match=rf"^data\.{words}"):
        TrainingJob(LogisticRegression(), Adam(), wrong, workers=1)
    with pytest.raises(DataError, match=rf"^validation\.{words}"):
        TrainingJob(LogisticRegression(), Adam(), right, workers=1, validation=wrong)


@pytest.mark.parametrize(
    ("model", "make", "words"),
    [
        (PMF(), lambda: datasets.ratings([0, 1, 2], [0, 1, 0], [3, 3, 3]), "all 3 ratings are 3: nothing can be"),
        (LogisticRegression(), lambda: datasets.csr(np.eye(3), [0, 0, 0]), "all 3 labels are 0: nothing can be"),
        (LogisticRegression(), lambda: datasets.csr(np.zeros((3, 2)), [0, 1, 0]), "all features of the 3 rows are 0"),
    ],
)
@pytest.mark.filterwarnings("ignore::mlless_nb.DataWarning")
def test_data_of_which_nothing_can_be_learnt_starts_nothing(model: Any, make: Any, words: str) -> None:
    with pytest.raises(DataError, match=f"data=.*: must be rows that differ; {words}"):
        TrainingJob(model, Adam(), make(), workers=1)


@pytest.mark.parametrize("model", [LogisticRegression(), SoftmaxRegression(3)])
@pytest.mark.parametrize("bits", [0x7F800001, 0x7FC00000, 0x7F800000, 0xFF800000])
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_labels_that_are_not_finite_are_refused_before_anything_is_computed_with_them(model: Any, bits: int) -> None:
    """A damaged job that is handed over may have any: NumPy warned of some NaN, and infinite ones were counted."""
    data = datasets.csr(np.eye(4), [0, 1, 0, 1])
    vars(data)["y"] = np.full(4, bits, np.uint32).view(np.float32)
    with pytest.raises(DataError, match=r"^data\.y\[0\]=(nan|-?inf): must be .*Regression(\(n_classes=3\))?$"):
        model.check_data(data)
