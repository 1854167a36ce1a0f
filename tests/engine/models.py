"""A small model of every kind, each with data that it is trained on."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
from engine.jobs import ratings

from mlless_nb import (
    PMF,
    ImplicitMF,
    KMeans,
    LinearRegression,
    LinearSVM,
    LogisticRegression,
    NumpyModel,
    SoftmaxRegression,
    TorchModel,
    datasets,
)
from mlless_nb.models import Model

HAS_TORCH = importlib.util.find_spec("torch") is not None

RNG = np.random.default_rng(7)
X = RNG.normal(size=(2400, 6)).astype(np.float32)
SCORES = X @ RNG.normal(size=(6, 3)) + RNG.normal(size=(2400, 3))
SIDE = (SCORES[:, 0] > 0).astype(float)


class Ridge:
    """A least-squares model as a user writes it."""

    def parameters(self, n_features: int, seed: int) -> dict[str, Any]:
        return {"w": np.zeros(n_features)}

    def loss(self, params: dict[str, Any], X: Any, y: Any) -> Any:
        return 0.5 * np.mean((X @ params["w"] - y) ** 2)

    def gradients(self, params: dict[str, Any], X: Any, y: Any) -> dict[str, Any]:
        return {"w": X.T @ (X @ params["w"] - y) / len(y)}


def network() -> Any:
    """A network with one hidden layer."""

    class Net(torch.nn.Module):  # noqa: F821 - it is there
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.Sequential(  # noqa: F821
                torch.nn.Linear(6, 8),  # noqa: F821
                torch.nn.ReLU(),  # noqa: F821
                torch.nn.Linear(8, 3),  # noqa: F821
            )

        def forward(self, X: Any, y: Any) -> Any:
            return torch.nn.functional.cross_entropy(self.layers(X), y.long())  # noqa: F821

    return Net()


#: Models and their data by kind; that of PyTorch only where PyTorch is.
MODELS: dict[str, tuple[Model, Any]] = {
    model.kind: (model, data)
    for model, data in (
        (PMF(rank=3, l2=0.02, init_scale=0.1), ratings()),
        (ImplicitMF(rank=3), ratings()),
        (LogisticRegression(l2=1e-3), datasets.csr(X, SIDE)),
        (SoftmaxRegression(3, l2=1e-3), datasets.csr(X, SCORES.argmax(axis=1))),
        (LinearSVM(l2=1e-3), datasets.csr(X, 2 * SIDE - 1)),
        (LinearRegression(l2=1e-3), datasets.csr(X, SCORES[:, 0])),
        (KMeans(3), datasets.csr(X)),
        (NumpyModel(Ridge), datasets.csr(X, SCORES[:, 0])),
        *([(TorchModel(network), datasets.csr(X, SCORES.argmax(axis=1)))] if HAS_TORCH else []),
    )
}
