"""Model averaging and ADMM: what the workers compute is what a few lines of NumPy on the same minibatches compute."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression as SkLogistic

from mlless_nb import (
    ADMM,
    BSP,
    ISP,
    PMF,
    SGD,
    AdaGrad,
    Adam,
    GradientAveraging,
    LogisticRegression,
    ModelAveraging,
    ScaleIn,
    Stop,
    TrainingJob,
    datasets,
)
from mlless_nb.bus.messages import Command
from mlless_nb.driver.launch.data_preparation import JobData
from mlless_nb.simulate import TWO_CORES, SimulatedRun, simulate
from mlless_nb.storage.objects import MemoryObjects
from mlless_nb.worker.minibatch_loader import MinibatchFeed
from mlless_nb.worker.minibatch_schedule import WholeShards

Float64 = NDArray[np.float64]


def rows(n: int = 610, seed: int = 0) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Features and noisy labels."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4)).astype(np.float32)
    return X, (X @ [1.0, -2.0, 0.5, 0.0] + rng.normal(0, 1.0, n) > 0.3).astype(np.float32)


def job(**changes: Any) -> TrainingJob:
    """610 rows in 13 minibatches, the last one short: the first of three workers has one more than the others."""
    fields: dict[str, Any] = {
        "model": LogisticRegression(l2=0.01, scale=False),
        "optimizer": SGD(0.3, momentum=0.5),
        "data": datasets.csr(*rows()),
        "workers": 3,
        "minibatch": 50,
        "validation": None,
        "schedule": "constant",
        "stop": Stop(steps=6),
        "scale_in": ScaleIn.off(),
    }
    return TrainingJob(**(fields | changes))


def trained(job: TrainingJob, **how: Any) -> SimulatedRun:
    """The run of ``job``, on the simulator's clock."""
    run = simulate(job, TWO_CORES, **how)
    assert run.status == "finished", run.reason
    return run


def minibatches(job: TrainingJob) -> list[tuple[Float64, Float64]]:
    """Features (with a column of ones) and labels of each training minibatch of ``job``."""
    objects, found = MemoryObjects(), []
    packed = JobData(job).pack(objects, lambda: False)
    assert packed is not None
    feed = MinibatchFeed(objects, packed[0])
    for index in range(packed[0].n_minibatches):
        one = feed.get(index)
        X = np.zeros((one.n, 5))
        X[:, one.ids[one.columns]], X[:, -1] = one.dense.T, 1.0
        row = np.repeat(np.arange(one.n), np.diff(one.indptr))
        X[row, one.ids[one.indices]] = one.values if len(one.values) else 1.0
        found.append((X, one.labels.astype(np.float64)))
    feed.close()
    return found


def gradient(w: Float64, minibatch: tuple[Float64, Float64]) -> Float64:
    """The sum of the gradients of the rows' log losses."""
    X, y = minibatch
    return np.asarray(X.T @ (1.0 / (1.0 + np.exp(-X @ w)) - y))


PENALISED = np.array([1.0, 1.0, 1.0, 1.0, 0.0])


# -- model averaging


def test_model_averaging_is_the_mean_of_models_trained_apart() -> None:
    made = job(algorithm=ModelAveraging(), minibatch=51)  # 12 minibatches, the last one full but for two rows
    shards = np.array_split(np.arange(12), 3)
    data, w, velocity = minibatches(made), np.zeros(5), np.zeros((3, 5))
    for _ in range(6):
        models = []
        for slot, shard in enumerate(shards):
            own = w.copy()
            for index in shard:
                velocity[slot] = 0.5 * velocity[slot] + gradient(own, data[index]) / 51 + 0.01 * PENALISED * own
                own -= 0.3 * velocity[slot]
            models.append(own)
        w = np.mean(models, axis=0)
    run = trained(made)
    assert run.params is not None
    np.testing.assert_allclose(run.params[:, 0], w, atol=2e-6)
    assert run.history["epoch"][-1] == 6.0
    assert np.isnan(run.history["primal_residual"]).all()


@pytest.mark.parametrize("pattern", ["broadcast", "scatter-reduce"])
@pytest.mark.parametrize("sync", [BSP(), ISP(0.7)])
def test_averaging_models_is_averaging_the_changes_of_local_steps(pattern: str, sync: Any) -> None:
    fields = {"optimizer": Adam(0.05), "sync": sync, "pattern": pattern}
    averaged = trained(job(**fields, algorithm=ModelAveraging(2)))
    summed = trained(job(**fields, algorithm=GradientAveraging(), local_steps=2))
    np.testing.assert_array_equal(averaged.params, summed.params)


def test_model_averaging_of_factors() -> None:
    data = datasets.synthetic_ratings(60, 40, 1500, rank=2, seed=1)
    made = job(
        model=PMF(rank=2),
        data=data,
        optimizer=SGD(0.02, per_sample=True),
        algorithm=ModelAveraging(),
        validation=0.1,
        stop=Stop(steps=20),
    )
    losses = trained(made).history["validation_loss"]
    losses = losses[np.isfinite(losses)]
    assert losses[-1] < losses[0] - 0.02


# -- ADMM


def consensus(job: TrainingJob, n_rounds: int) -> tuple[Float64, list[tuple[float, float]]]:
    """z after ``n_rounds`` of consensus ADMM with local momentum SGD, and the residuals of each round."""
    spec, data, l2 = job.algorithm, minibatches(job), float(job.model.l2 or 0.0)
    assert isinstance(spec, ADMM)
    n_own = len(data) // 3
    shards = [list(range(slot * n_own, (slot + 1) * n_own)) for slot in range(3)]
    for rank, index in enumerate(range(3 * n_own, len(data))):
        shards[rank].append(index)
    z, u, velocity, residuals = np.zeros(5), np.zeros((3, 5)), np.zeros((3, 5)), []
    for _ in range(n_rounds):
        models = np.tile(z, (3, 1))
        for slot, shard in enumerate(shards):
            w = models[slot]
            for _ in range(spec.scans):
                for index in shard:
                    # Of the mean over this shard, counted as a third of all rows.
                    g = gradient(w, data[index]) * len(shard) * 3 / job.n_train
                    velocity[slot] = 0.5 * velocity[slot] + g + spec.rho * (w - z + u[slot])
                    w -= 0.3 * velocity[slot]
        before, mean = z, np.mean(models + u, axis=0)
        kept = np.sign(mean) * np.maximum(np.abs(mean) - spec.l1 / spec.rho, 0)
        z = np.where(PENALISED > 0, spec.rho / (l2 + spec.rho) * kept, mean)
        u += models - z
        primal = np.sqrt(np.square(models - z).sum())
        residuals.append((primal, spec.rho * np.sqrt(3) * np.linalg.norm(z - before)))
    return z, residuals


@pytest.mark.parametrize("l1", [0.0, 0.02])
@pytest.mark.parametrize("pattern", ["broadcast", "scatter-reduce"])
def test_admm_is_the_textbooks(pattern: str, l1: float) -> None:
    made = job(algorithm=ADMM(0.1, scans=3, l1=l1), pattern=pattern)
    z, residuals = consensus(made, 6)
    run = trained(made)
    assert run.params is not None
    np.testing.assert_allclose(run.params[:, 0], z, atol=5e-6)
    primal, dual = np.array(residuals[:-1]).T
    np.testing.assert_allclose(run.history["primal_residual"][:-1], primal, atol=5e-6)
    np.testing.assert_allclose(run.history["dual_residual"][:-1], dual, atol=5e-6)
    assert run.history["epoch"].tolist() == [3.0, 6.0, 9.0, 12.0, 15.0, 18.0]


def optimum(l2: float) -> Float64:
    """The minimum of the mean log loss plus the penalty."""
    X, y = rows()
    A = np.column_stack([X, np.ones(len(X))]).astype(np.float64)

    def objective(w: Float64) -> float:
        return float(np.logaddexp(0, A @ w).mean() - (A.T @ y @ w) / len(A) + l2 / 2 * np.square(w * PENALISED).sum())

    return np.asarray(minimize(objective, np.zeros(5), tol=1e-10).x)


@pytest.mark.parametrize("workers", [1, 3])
def test_admm_converges_to_the_optimum(workers: int) -> None:
    made = job(algorithm=ADMM(0.05), optimizer=SGD(0.5), workers=workers, minibatch=250, stop=Stop(steps=60))
    if workers == 3:
        made = dataclasses.replace(made, minibatch=200)
    run = trained(made)
    assert run.params is not None
    np.testing.assert_allclose(run.params[:, 0], optimum(0.01), atol=0.02)
    for name in ("primal_residual", "dual_residual"):
        assert run.history[name][-2] < 0.02 * run.history[name][0] or workers == 1


def test_admm_with_l1_finds_the_optimum_with_its_zeros() -> None:
    l1, l2 = 0.05, 0.01
    run = trained(job(algorithm=ADMM(0.05, l1=l1), optimizer=SGD(0.5), minibatch=200, stop=Stop(steps=80)))
    X, y = rows()
    penalty = {"C": 1 / (len(y) * (l1 + l2)), "l1_ratio": l1 / (l1 + l2)}
    best = SkLogistic(solver="saga", tol=1e-7, max_iter=20_000, **penalty).fit(X, y)
    assert run.params is not None
    np.testing.assert_allclose(run.params[:4, 0], best.coef_[0], atol=0.02)
    np.testing.assert_allclose(run.params[4, 0], best.intercept_, atol=0.02)
    assert best.coef_[0, 3] == run.params[3, 0] == 0.0


def test_workers_that_leave_hand_their_shards_over() -> None:
    made = job(algorithm=ADMM(0.05), optimizer=SGD(0.5), minibatch=200, stop=Stop(steps=120))
    whole = trained(made)
    run = trained(made, commands=[(float(whole.history["time_s"][30]), Command("a", "scale_in", count=2))])
    assert len(run.departures) == 2
    assert run.params is not None
    np.testing.assert_allclose(run.params[:, 0], optimum(0.01), atol=0.02)
    assert run.history["epoch"][-1] == 1200.0


@pytest.mark.parametrize("optimizer", [Adam(0.01), AdaGrad(0.1), SGD(0.2, momentum=0.9, nesterov=True)])
def test_admm_takes_the_jobs_optimiser(optimizer: Any) -> None:
    run = trained(job(algorithm=ADMM(0.1), optimizer=optimizer, validation=0.2, stop=Stop(steps=15)))
    losses = run.history["validation_loss"]
    losses = losses[np.isfinite(losses)]
    assert len(losses) == 15
    assert losses[-1] < 0.45 < losses[0] + 0.1


def test_whole_shards_are_the_same_in_every_step() -> None:
    packed = JobData(job()).pack(MemoryObjects(), lambda: False)
    assert packed is not None
    shares = [WholeShards(packed[0], slot, 3) for slot in range(3)]
    parts = [shards.take(4) for shards in shares]
    assert [len(part) for part in parts] == [5, 4, 4]
    assert sorted(index for part in parts for (index,) in part) == list(range(13))
    assert parts == [shards.take(4) for shards in shares]
    for shards in shares[:2]:
        shards.reassign([0, 1])
    assert sorted(index for shards in shares[:2] for (index,) in shards.take(4)) == list(range(13))
    assert shares[0].count(4) == 13
