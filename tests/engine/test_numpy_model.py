"""A model that a user wrote, in real functions: the source goes with the invocation."""

from __future__ import annotations

from typing import Any

import numpy as np
from engine.jobs import finish, job

import mlless_nb
from mlless_nb import BSP, SGD, NumpyModel, Stop, datasets


class Line:
    """A linear regression."""

    def parameters(self, n_features: int, seed: int) -> dict[str, Any]:
        """Zeros."""
        return {"w": np.zeros(n_features), "b": np.zeros(())}

    def loss(self, params: Any, X: Any, y: Any) -> float:
        """Half of the mean squared error."""
        return float(np.mean((X @ params["w"] + params["b"] - y) ** 2) / 2)

    def gradients(self, params: Any, X: Any, y: Any) -> dict[str, Any]:
        """Its gradients."""
        error = (X @ params["w"] + params["b"] - y) / len(y)
        return {"w": X.T @ error, "b": error.sum()}


def test_it_trains_in_functions_and_is_found_again() -> None:
    X = np.random.default_rng(0).normal(size=(900, 3))
    data = datasets.csr(X, X @ [1.0, -2.0, 0.5] + 1.0)
    fields = {"model": NumpyModel(Line), "data": data, "optimizer": SGD(0.2), "sync": BSP(), "workers": 2}
    run = finish(job(**fields, minibatch=100, stop=Stop(steps=40)))
    assert run.status == "finished", run.reason
    for model in (run.model, mlless_nb.attach(run.id).model):
        np.testing.assert_allclose(model.params["w"], [1.0, -2.0, 0.5], atol=0.01)
        assert model.params["b"].shape == ()
