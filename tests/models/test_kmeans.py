"""k-means and EM: assignments, statistics, first centroids, whole runs; against scikit-learn and plain NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from sklearn.cluster import KMeans as SkKMeans

from mlless_nb import (
    EM,
    ISP,
    SGD,
    SSP,
    Adam,
    DataError,
    GradientAveraging,
    JobError,
    KMeans,
    LogisticRegression,
    ScaleIn,
    Stop,
    TrainingJob,
    datasets,
)
from mlless_nb.bus.messages import Command
from mlless_nb.data.stream import CsrStream
from mlless_nb.driver.launch.data_preparation import JobData
from mlless_nb.models import KMeansModel, kmeans, load_model, model_from_json
from mlless_nb.simulate import TWO_CORES, simulate

RNG = np.random.default_rng(0)
CENTERS = RNG.normal(0, 6, (4, 5))
X = (CENTERS[RNG.integers(0, 4, 700)] + RNG.normal(size=(700, 5))).astype(np.float32)
SPARSE = scipy.sparse.random(500, 80, 0.05, random_state=1, dtype=np.float32, format="csr")


def job(rows: Any = X, k: int = 4, **changes: Any) -> TrainingJob:
    """A job of three workers that stay."""
    fields = {"workers": 3, "scale_in": ScaleIn.off(), "validation": None, "stop": Stop(steps=15)} | changes
    return TrainingJob(KMeans(k), data=datasets.csr(rows), **fields)


def lloyd(rows: Any, centers: Any, steps: int) -> tuple[Any, list[float]]:
    """Centroids after so many steps of plain NumPy, and the mean squared distance before each."""
    rows, centers, losses = np.asarray(rows, np.float64), np.array(centers, np.float64), []
    for _ in range(steps):
        squares = np.square(rows[:, None] - centers[None]).sum(2)
        nearest = squares.argmin(1)
        losses.append(float(squares.min(1).mean()))
        for c in set(nearest.tolist()):
            centers[c] = rows[nearest == c].mean(0)
    return centers, losses


# -- runs


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("rows", [X, SPARSE], ids=["dense", "sparse"])
def test_each_step_is_one_of_lloyd_s_over_all_rows(rows: Any, workers: int) -> None:
    small = job(rows, workers=workers, stop=Stop(steps=6))
    assert small.n_minibatches == small.workers * small.local_steps
    first = JobData(small).first[:-1].T
    run = simulate(small, TWO_CORES)
    assert run.status == "finished", run.reason
    centers, losses = lloyd(rows.toarray() if rows is SPARSE else rows, first, 6)
    assert run.params is not None
    np.testing.assert_allclose(run.params[:-1].T, centers, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(run.history["loss"], losses, rtol=1e-5)
    np.testing.assert_allclose(run.history["epoch"], np.arange(1, 7))
    assert run.params[-1].sum() == (500 if rows is SPARSE else 700), "the last row has the counts"


def test_scatter_reduce_adds_the_same_statistics() -> None:
    one, other = (simulate(job(pattern=name), TWO_CORES) for name in ("broadcast", "scatter-reduce"))
    np.testing.assert_allclose(one.params, other.params, rtol=1e-5)  # type: ignore[arg-type]
    assert one.history["loss"][-1] == pytest.approx(other.history["loss"][-1], rel=1e-6)


def test_a_worker_that_leaves_takes_no_rows_along() -> None:
    command = Command("a", "scale_in", slots=[2])
    whole = simulate(job(), TWO_CORES)
    parted = simulate(job(), TWO_CORES, commands=[(float(whole.history["time_s"][4]), command)])
    assert parted.departures
    np.testing.assert_allclose(parted.history["loss"], whole.history["loss"], rtol=1e-5)
    np.testing.assert_allclose(parted.params, whole.params, rtol=1e-4)  # type: ignore[arg-type]


def test_the_inertia_is_that_of_scikit_learn() -> None:
    run = simulate(job(stop=Stop(), validation=0.1), TWO_CORES)
    assert run.status == "finished"
    assert "no better mean squared distance than" in run.reason
    model = KMeans(4).fitted(run.params, (5,), 0.0)  # type: ignore[arg-type]
    assert model.inertia(X) <= 1.02 * SkKMeans(4, n_init=10, random_state=0).fit(X).inertia_


# -- assignments and statistics


@pytest.mark.parametrize("most", [1 << 21, 8 * 7])
def test_statistics_are_sums_of_the_clusters(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kmeans, "MOST_DISTANCES", most)
    model, rows = KMeans(3), SPARSE[:40].toarray()
    rows[:, :2] += 1.0  # two columns that are stored dense
    params = np.zeros((81, 3), np.float32)
    params[:-1] = RNG.normal(0, 0.1, (80, 3))
    (minibatch,) = datasets.csr(rows).minibatches(40, None)
    assert len(minibatch.columns)
    sums = np.ones((81, 3))
    loss = model.gather(params, minibatch, sums)
    squares = np.square(rows[:, None] - params[:-1].T[None].astype(np.float64)).sum(2)
    nearest = squares.argmin(1)
    expected = np.array([rows[nearest == c].sum(0) for c in range(3)]).T
    np.testing.assert_allclose(sums[:-1], 1 + expected, rtol=1e-6)
    np.testing.assert_array_equal(sums[-1], 1 + np.bincount(nearest, minlength=3))
    assert loss == pytest.approx(squares.min(1).sum(), rel=1e-6)
    assert model.evaluate(params, minibatch, 0.0) == loss


def test_a_cluster_without_rows_keeps_its_centroid() -> None:
    params = np.array([[1.0, 7.0], [5.0, 5.0]], np.float32)
    KMeans(2).maximise(params, np.array([[6.0, 0.0], [3.0, 0.0]], np.float32))
    assert params.tolist() == [[2.0, 7.0], [3.0, 0.0]]


def test_rows_far_from_the_origin_have_their_distances() -> None:
    far = (X + np.float32(4096.0)).astype(np.float32)
    run = simulate(job(far, stop=Stop(steps=3)), TWO_CORES)
    _, losses = lloyd(far, JobData(job(far)).first[:-1].T, 3)
    np.testing.assert_allclose(run.history["loss"], losses, rtol=1e-3)


# -- the first centroids


@pytest.mark.parametrize("how", ["k-means++", "random"])
def test_first_centroids_are_rows_by_seed(how: str) -> None:
    data = datasets.csr(SPARSE)
    table = KMeans(6, how).start_of(data, 3)
    assert table is not None
    rows = {row.tobytes() for row in SPARSE.toarray()}
    assert all(np.ascontiguousarray(center).tobytes() in rows for center in table[:-1].T)
    np.testing.assert_array_equal(table, KMeans(6, how).start_of(data, 3))
    assert (table != KMeans(6, how).start_of(data, 4)).any()


def test_careful_seeding_finds_every_heap() -> None:
    table = KMeans(4).start_of(datasets.csr(X), 0)
    assert table is not None
    nearest = np.square(CENTERS[:, None] - table[:-1].T[None]).sum(2).argmin(1)
    assert sorted(nearest) == [0, 1, 2, 3]


def test_fewer_different_rows_than_clusters_leave_clusters_empty() -> None:
    rows = np.repeat(np.array([[1.0, 0.0], [0.0, 3.0]]), 30, 0)
    run = simulate(job(rows, k=5, stop=Stop(steps=3)), TWO_CORES)
    assert run.status == "finished", run.reason
    assert run.history["loss"][-1] == pytest.approx(0.0, abs=1e-6)
    assert (run.params[-1] > 0).sum() == 2  # type: ignore[index]


def test_rows_of_a_file_are_drawn_from_its_first() -> None:
    def read(keep: Any) -> Any:
        return iter([(SPARSE[:50], np.zeros(50)), (SPARSE[50:], np.zeros(450))])

    stream = CsrStream(read, 500, 80, SPARSE.nnz, "content", "rows", np.zeros(500, bool))
    table = KMeans(6).start_of(stream, 3)
    np.testing.assert_array_equal(table, KMeans(6).start_of(datasets.csr(SPARSE), 3))


# -- the job


def test_em_is_the_algorithm_and_has_no_optimiser() -> None:
    made = job()
    assert isinstance(made.algorithm, EM)
    assert (made.eval_every, made.schedule) == (1, "constant")
    assert isinstance(job(algorithm=EM()).algorithm, EM)
    assert JobData(made).job == made
    assert TrainingJob(LogisticRegression(), data=datasets.csr(X, X[:, 0] > 0)).algorithm == GradientAveraging()


@pytest.mark.parametrize("n", [9, 10, 61, 700, 1001])
@pytest.mark.parametrize("workers", [1, 2, 3, 7])
def test_by_default_every_worker_has_equally_many_minibatches(n: int, workers: int) -> None:
    made = job(np.ones((n, 2)) + np.arange(n)[:, None], k=2, workers=workers)
    assert made.local_steps == max(made.n_minibatches // workers, 1)
    if n > 10:
        assert made.n_minibatches == made.local_steps * workers


def test_minibatches_that_leave_a_rest_are_left_out_in_turn() -> None:
    """Seven minibatches, three workers: a step takes two of each, and seven steps are six passes."""
    made = job(minibatch=100, stop=Stop(steps=7))
    assert (made.n_minibatches, made.local_steps) == (7, 2)
    run = simulate(made, TWO_CORES)
    assert run.history["epoch"][-1] == pytest.approx(6.0)
    assert run.history["loss"][-1] < run.history["loss"][0]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: KMeans(0), "KMeans.k=0: must be an integer >= 1"),
        (
            lambda: KMeans(2**16),
            "KMeans.k=65536: must be so small that a row of the table has at most 65535 parameters",
        ),
        (lambda: KMeans(2, "best"), "KMeans.init='best': must be 'k-means++' or 'random'"),
        (lambda: job(k=701), "KMeans.k=701: must be at most 700, the number of rows"),
        (lambda: job(k=650, validation=0.1), "KMeans.k=650: must be at most 630, the number of training rows"),
        (lambda: job(algorithm=GradientAveraging()), "algorithm=GradientAveraging()"),
        (lambda: job(sync=ISP(0.7)), "sync=ISP(threshold=0.7"),
        (lambda: job(sync=SSP(3)), "sync=SSP(staleness=3): must be BSP() with EM"),
        (lambda: job(codec="int8"), "codec='int8': must be 'float32' with EM"),
        (lambda: job(optimizer=Adam(0.1)), "optimizer="),
        (lambda: job(optimizer=SGD(1.0, momentum=0.9)), "optimizer="),
        (lambda: job(scale_in=ScaleIn(global_minibatch="shrink")), "ScaleIn.global_minibatch='shrink'"),
        (lambda: TrainingJob(KMeans(2), data=datasets.synthetic_ratings(9, 8, 40)), "data="),
        (
            lambda: TrainingJob(LogisticRegression(), data=datasets.csr(X, X[:, 0] > 0), algorithm=EM()),
            "algorithm=EM(): must be left out with logistic regression, or another one",
        ),
        (lambda: TrainingJob(LogisticRegression(), data=datasets.csr(X)), "data.y=None: must be labels"),
    ],
)
def test_what_makes_no_sense_is_one_line(make: Any, says: str) -> None:
    with pytest.raises((JobError, DataError)) as caught:
        make()
    assert str(caught.value).startswith(says)
    assert "\n" not in str(caught.value)


def test_rows_without_labels_stay_without() -> None:
    data = datasets.csr(X)
    assert not any(part.has_labels for part in (data, *data.split(0.2, 0)))
    assert data.nothing_to_learn == ""
    assert datasets.csr(X, np.ones(700)).has_labels


def test_the_baseline_is_the_variance_about_the_training_mean() -> None:
    train, held = datasets.csr(X[:500]), datasets.csr(X[500:])
    expected = np.square(X[500:] - X[:500].mean(0)).sum(1).mean()
    assert KMeans(2).baseline_loss(train, held) == pytest.approx(expected, rel=1e-4)


# -- the fitted model


def test_the_fitted_model_assigns_and_is_read_back(tmp_path: Path) -> None:
    assert model_from_json(KMeans(3, "random").to_json()) == KMeans(3, "random")
    centers = RNG.normal(size=(3, 80)).astype(np.float32)
    model = KMeansModel({"centers": centers, "counts": np.array([1, 2, 0])})
    model.save(tmp_path / "model.npz")
    again = load_model(tmp_path / "model.npz")
    assert isinstance(again, KMeansModel)
    squares = np.square(SPARSE.toarray()[:, None] - centers[None]).sum(2)
    np.testing.assert_array_equal(again.predict(SPARSE), squares.argmin(1))
    np.testing.assert_allclose(again.transform(SPARSE.toarray()), squares, rtol=1e-4)
    assert again.inertia(SPARSE) == pytest.approx(squares.min(1).sum(), rel=1e-5)
    np.testing.assert_array_equal(again.cluster_centers_, centers)
    np.testing.assert_array_equal(KMeans(3).table_of(again)[:-1].T, centers)
    with pytest.raises(ValueError, match=r"^X='shape \(3, 3\)': must be rows of 80 columns$"):
        again.predict(np.eye(3))
    with pytest.raises(ValueError, match="centers and counts have shapes"):
        KMeansModel({"centers": centers, "counts": np.ones(2)})
