"""A linear model is its loss: a line for the table and the kernel, and it trains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from mlless_nb import BSP, SGD, AdaGrad, ScaleIn, Stop, TrainingJob, datasets
from mlless_nb.data.csr import Csr
from mlless_nb.models import FittedLinearModel, LinearModel, base, register_model
from mlless_nb.simulate import TWO_CORES, simulate
from mlless_nb.validation import specification

RNG = np.random.default_rng(0)
X = RNG.normal(size=(600, 4)).astype(np.float32)
SCORES = X @ np.array([1.0, -2.0, 0.5, 0.0]) + 0.2


@pytest.fixture
def model_of(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a registered linear model of a loss, for one test."""
    monkeypatch.setattr(base, "_registered", dict(base._registered))

    def make(name: str) -> LinearModel:
        class Fitted(FittedLinearModel):
            kind: ClassVar[str] = f"test {name}"

        @register_model
        @specification
        @dataclass(frozen=True)
        class Tested(LinearModel):
            l2: float | None = 0.0
            kind: ClassVar[str] = f"test {name}"
            metric: ClassVar[str] = f"{name} loss"
            loss: ClassVar[str] = name
            fitted_type: ClassVar[Any] = Fitted

        return Tested()

    return make


def trained(model: LinearModel, optimizer: Any, data: Csr) -> float:
    """The loss on ``data`` after 200 steps of three workers on it."""
    run = simulate(
        TrainingJob(
            model,
            optimizer,
            data,
            sync=BSP(),
            workers=3,
            minibatch=50,
            validation=data,
            stop=Stop(steps=200),
            scale_in=ScaleIn.off(),
        ),
        TWO_CORES,
    )
    assert run.status == "finished", run.reason
    losses = run.history["validation_loss"]
    return float(losses[np.isfinite(losses)][-1])


def test_squared_loss_finds_the_least_squares(model_of: Any) -> None:
    y = (SCORES + RNG.normal(0, 0.3, 600)).astype(np.float32)
    loss = trained(model_of("squared"), SGD(0.2), datasets.csr(X, y))
    A = np.column_stack([X, np.ones(600)])
    assert loss == pytest.approx(np.square(A @ np.linalg.lstsq(A, y, rcond=None)[0] - y).mean(), rel=0.01)


def test_hinge_loss_parts_what_can_be_parted(model_of: Any) -> None:
    is_far = np.abs(SCORES) > 0.3
    loss = trained(model_of("hinge"), AdaGrad(0.5), datasets.csr(X[is_far], np.sign(SCORES[is_far])))
    assert loss < 0.02


def test_the_intercept_is_a_row_of_the_model_and_not_of_the_data(model_of: Any) -> None:
    model = model_of("squared")
    (minibatch,) = datasets.csr(np.eye(5)[[0, 3]], [0.5, 2.0]).minibatches(2, None)
    assert minibatch.ids.tolist() == [0, 3]
    assert model.rows(minibatch, (5,)).tolist() == [0, 3, 5]
    assert model.rows(minibatch, (5,)).dtype == np.int32
    assert model.n_touched(len(minibatch.ids)) == 3
    assert model.dense_l2_rows((5,)) == 5
