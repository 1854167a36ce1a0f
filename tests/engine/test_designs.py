"""Every allowed combination of model, algorithm, protocol and store trains, is billed whole and leaves nothing.

A combination that makes no sense is refused when the job is made.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from engine.jobs import finish, ratings

from mlless_nb import (
    ADMM,
    ASP,
    BSP,
    DBW,
    ISP,
    PMF,
    SGD,
    SSP,
    AdaSync,
    BackupWorkers,
    JobError,
    KMeans,
    LinearRegression,
    LinearSVM,
    LogisticRegression,
    ModelAveraging,
    NumpyModel,
    ScaleIn,
    SoftmaxRegression,
    Stop,
    TrainingJob,
    datasets,
)

pytestmark = pytest.mark.long

RNG = np.random.default_rng(7)
X = RNG.normal(size=(1200, 6)).astype(np.float32)
SCORES = X @ RNG.normal(size=(6, 3))
SIDE = (SCORES[:, 0] > 0).astype(float)


class Ridge:
    """A least-squares model as a user writes it."""

    def parameters(self, n_features: int, seed: int) -> dict[str, Any]:
        return {"w": np.zeros(n_features)}

    def loss(self, params: dict[str, Any], X: Any, y: Any) -> Any:
        return 0.5 * np.mean((X @ params["w"] - y) ** 2)

    def gradients(self, params: dict[str, Any], X: Any, y: Any) -> dict[str, Any]:
        return {"w": X.T @ (X @ params["w"] - y) / len(y)}


MODELS: dict[str, tuple[Any, Any]] = {
    "PMF": (PMF(rank=3, l2=0.02, init_scale=0.1), ratings()),
    "logistic": (LogisticRegression(l2=1e-3), datasets.csr(X, SIDE)),
    "svm": (LinearSVM(l2=1e-3), datasets.csr(X, 2 * SIDE - 1)),
    "linear": (LinearRegression(l2=1e-3), datasets.csr(X, SCORES[:, 0])),
    "softmax": (SoftmaxRegression(3, l2=1e-3), datasets.csr(X, SCORES.argmax(axis=1))),
    "k-means": (KMeans(3), datasets.csr(X)),
    "numpy": (NumpyModel(Ridge), datasets.csr(X, SCORES[:, 0])),
}
ALGORITHMS: dict[str, Any] = {"default": None, "model averaging": ModelAveraging(every=2), "ADMM": ADMM(scans=2)}
SYNCS = (
    BSP(),
    ISP(0.7),
    SSP(2),
    ASP(),
    ASP(shared=True),
    BackupWorkers(2),
    DBW(),
    DBW(gain="blind"),
    AdaSync(2),
)
#: Those of a model and an algorithm that are refused with every protocol.
NEVER = {("PMF", "ADMM"), ("numpy", "ADMM"), ("k-means", "ADMM"), ("k-means", "model averaging")}


def trained(model: str, algorithm: str, sync: Any, workers: int, **changes: Any) -> bool:
    """Train one combination and check the run; False if it is refused."""
    kind, data = MODELS[model]
    fields: dict[str, Any] = {
        "model": kind,
        "data": data,
        "algorithm": ALGORITHMS[algorithm],
        "sync": sync,
        "workers": workers,
        "stop": Stop(steps=8),
        "scale_in": ScaleIn.off(),
        "eval_every": 1 if sync.counts_all else 4,  # a step after an evaluation waits for all
    }
    if model != "k-means":
        fields |= {"minibatch": 60, "optimizer": SGD(1.0 if model == "PMF" else 0.05)}
    try:
        job = TrainingJob(**(fields | changes))
    except JobError:
        return False
    run = finish(job)
    assert run.status == "finished", run.reason
    losses = run.history["validation_loss"]
    losses = losses[np.isfinite(losses)]
    assert losses[-1] < losses[0]
    assert all(np.isfinite(np.asarray(array, np.float64)).all() for array in run.model.params.values())
    assert run.cost.total == pytest.approx(sum(run.cost.values()))
    assert run.cost.workers > 0
    assert "0 functions, 0 keys, 0 queues left" in run.telemetry.state.events[-1].text
    return True


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("model", MODELS)
def test_models_and_algorithms_under_every_protocol(model: str, algorithm: str) -> None:
    done = [
        trained(model, algorithm, sync, workers) for sync in SYNCS for workers in (3, 1) if workers > 1 or sync == BSP()
    ]
    assert any(done) == ((model, algorithm) not in NEVER)
    if algorithm == "default" and model != "k-means":
        assert all(done)


@pytest.mark.parametrize("store", ["storage", "memcached", "dynamodb", "server"])
@pytest.mark.parametrize("model", ["PMF", "logistic", "k-means"])
def test_stores_under_every_protocol_and_pattern(store: str, model: str, request: pytest.FixtureRequest) -> None:
    fixtures = {"memcached": "memcached_url", "dynamodb": "dynamodb", "server": "frame_server"}
    found = request.getfixturevalue(fixtures[store]) if store in fixtures else None
    url = {"memcached": found, "server": getattr(found, "url", None)}.get(store, store)
    done = [trained(model, "default", sync, 3, store=url) for sync in SYNCS]
    done += [trained(model, "default", BSP(), 3, store=url, pattern=how) for how in ("scatter-reduce", "allreduce")]
    assert done == [sync == BSP() or model != "k-means" for sync in SYNCS] + [True, True]


@pytest.mark.parametrize("execution", ["map-reduce", "events"])
@pytest.mark.parametrize("model", [model for model in MODELS if model != "k-means"])
def test_stateless_runs_of_every_model(model: str, execution: str) -> None:
    for workers in (3, 1):
        assert trained(model, "default", BSP(), workers, execution=execution, stop=Stop(steps=3))
    assert not trained(model, "default", ISP(0.7), 3, execution=execution)
