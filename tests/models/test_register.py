"""A model is one file: a ridge regression in 30 lines is checked by jobs, trained, and read again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from mlless_nb import BSP, SGD, Adam, JobError, LinearRegression, ScaleIn, Stop, TrainingJob, datasets
from mlless_nb.job.defaults import resolved
from mlless_nb.models import LogisticModel, Model, base, load_model, model_from_json, register_model
from mlless_nb.simulate import TWO_CORES, simulate
from mlless_nb.validation import specification


@pytest.fixture
def ridge(monkeypatch: pytest.MonkeyPatch) -> type[Model]:
    """The toy, registered for one test."""
    monkeypatch.setattr(base, "_registered", dict(base._registered))

    @register_model
    @specification
    @dataclass(frozen=True)
    class Ridge(Model):
        l2: float | None = 0.0
        kind: ClassVar[str] = "ridge"
        metric: ClassVar[str] = "MSE"
        data_kind: ClassVar[str] = "csr"
        fitted_type: ClassVar[Any] = LogisticModel

        def table_shape(self, shape: tuple[int, ...]) -> tuple[int, int]:
            return shape[0] + 1, 1

        def rows(self, minibatch: Any, shape: tuple[int, ...]) -> Any:
            return np.append(minibatch.ids, np.int32(shape[0]))

        def init(self, shape: tuple[int, ...], mean: float, seed: int) -> Any:
            return np.zeros(self.table_shape(shape), np.float32)

        def errors(self, params: Any, minibatch: Any) -> tuple[Any, Any]:
            X = np.zeros((minibatch.n, len(minibatch.ids) + 1))
            row = np.repeat(np.arange(minibatch.n), np.diff(minibatch.indptr))
            X[row, minibatch.indices] = minibatch.values if len(minibatch.values) else 1.0
            X[:, minibatch.columns], X[:, -1] = minibatch.dense.T, 1.0
            return X, X @ params[np.append(minibatch.ids, -1), 0] - minibatch.labels

        def gradient(self, params: Any, minibatch: Any, mean: float, divisor: float, grad: Any) -> float:
            X, e = self.errors(params, minibatch)
            grad[:, 0] = X.T @ e / divisor
            return float(e @ e)

        def evaluate(self, params: Any, minibatch: Any, mean: float) -> float:
            return float(np.square(self.errors(params, minibatch)[1]).sum())

        def fitted(self, params: Any, shape: tuple[int, ...], mean: float) -> LogisticModel:
            return LogisticModel({"weights": params[:-1, 0].copy(), "intercept": params[-1].copy()})

        def table_of(self, model: Any) -> Any:
            return np.append(model.params["weights"], model.params["intercept"])[:, None]

    return Ridge


def test_a_registered_model_trains(ridge: type[Model]) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 4)).astype(np.float32)
    y = X @ np.array([1.0, -2.0, 0.5, 0.0]) + rng.normal(0, 0.3, 600) + 0.2
    job = TrainingJob(
        ridge(),
        SGD(0.2),
        datasets.csr(X, y),
        sync=BSP(),
        workers=3,
        minibatch=50,
        validation=datasets.csr(X, y),
        stop=Stop(steps=200),
        scale_in=ScaleIn.off(),
    )
    run = simulate(job, TWO_CORES)
    assert run.status == "finished", run.reason
    A = np.column_stack([X, np.ones(600)])
    best = np.square(A @ np.linalg.lstsq(A, y, rcond=None)[0] - y).mean()
    losses = run.history["validation_loss"]
    assert losses[np.isfinite(losses)][-1] == pytest.approx(best, rel=0.02)


def test_a_row_of_more_parameters_than_frames_can_have_is_refused(
    ridge: type[Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ridge, "table_shape", lambda self, shape: (shape[0] + 1, 2**16))
    with pytest.raises(JobError, match="so small that a row of the table has at most 65535 parameters"):
        TrainingJob(ridge(), SGD(0.1), datasets.csr(np.eye(3), [0, 1, 2]))


def test_a_registered_model_is_known_everywhere(ridge: type[Model], tmp_path: Path) -> None:
    model = ridge(0.5)  # type: ignore[call-arg]
    assert model_from_json(model.to_json()) == model
    fitted = model.fitted(np.ones((3, 1), np.float32), (2,), 0.0)
    fitted.kind = "ridge"
    fitted.save(tmp_path / "model.npz")
    assert load_model(tmp_path / "model.npz").params["weights"].tolist() == [1.0, 1.0]
    with pytest.raises(JobError, match="feature rows with labels for Ridge"):
        TrainingJob(model, SGD(0.1), datasets.synthetic_ratings(9, 8, 40))


def test_a_registered_model_says_that_its_loss_is_squared(ridge: type[Model], monkeypatch: pytest.MonkeyPatch) -> None:
    """Learning rates are then chosen as for `LinearRegression`: others would diverge."""
    monkeypatch.setattr(ridge, "has_squared_loss", True)
    rng = np.random.default_rng(0)
    data = datasets.csr(rng.normal(size=(600, 4)).astype(np.float32), rng.normal(0, 30, 600))
    for optimizer in (SGD(), Adam()):
        jobs = [TrainingJob(model, optimizer, data) for model in (ridge(), LinearRegression(l2=0.0, scale=False))]
        rates = [resolved(job, data).optimizer.learning_rate for job in jobs]
        assert rates[0] == rates[1]


def test_what_is_not_registered_is_refused_by_name() -> None:
    with pytest.raises(JobError, match=r"must be PMF\(\.\.\.\) or .*LogisticRegression\(\.\.\.\)"):
        TrainingJob("ridge", SGD(0.1), datasets.synthetic_ratings(9, 8, 40))  # type: ignore[arg-type]
