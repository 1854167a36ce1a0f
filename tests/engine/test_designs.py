"""Every allowed combination of model, algorithm, protocol and store, on real servers.

It trains; the model that it returns has the loss that it told, so that no update was lost and all replicas agreed; two
runs of which one goes on from the other are one, bit for bit; its bill is whole, and it leaves nothing. A combination
that makes no sense is refused when the job is made.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest
from engine.jobs import PATIENCE_S, finish, ratings, rmse_in_training

import mlless_nb
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
    TorchModel,
    TrainingJob,
    TrainingRun,
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


MODELS: dict[str, tuple[Any, Any]] = {
    "PMF": (PMF(rank=3, l2=0.02, init_scale=0.1), ratings()),
    "logistic": (LogisticRegression(l2=1e-3), datasets.csr(X, SIDE)),
    "svm": (LinearSVM(l2=1e-3), datasets.csr(X, 2 * SIDE - 1)),
    "linear": (LinearRegression(l2=1e-3), datasets.csr(X, SCORES[:, 0])),
    "softmax": (SoftmaxRegression(3, l2=1e-3), datasets.csr(X, SCORES.argmax(axis=1))),
    "k-means": (KMeans(3), datasets.csr(X)),
    "numpy": (NumpyModel(Ridge), datasets.csr(X, SCORES[:, 0])),
}
if importlib.util.find_spec("torch"):
    MODELS["torch"] = TorchModel(network), datasets.csr(X, SCORES.argmax(axis=1))
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
NEVER = {("PMF", "ADMM"), ("numpy", "ADMM"), ("torch", "ADMM"), ("k-means", "ADMM"), ("k-means", "model averaging")}


def fields_of(model: str, algorithm: str, sync: Any, workers: int, **changes: Any) -> dict[str, Any]:
    """The fields of a small job."""
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
    return fields | changes


def trained(model: str, algorithm: str, sync: Any, workers: int, **changes: Any) -> bool:
    """Train one combination and check the run; False if it is refused."""
    try:
        job = TrainingJob(**fields_of(model, algorithm, sync, workers, **changes))
    except JobError:
        return False
    run = finish(job)
    check(run, job)
    return True


def check(run: TrainingRun, job: TrainingJob) -> None:
    """Check that a run has trained, tells of its models, is billed, and has left nothing."""
    assert run.status == "finished", run.reason
    told = run.history["validation_loss"]
    losses = told[np.isfinite(told)]
    assert losses[-1] < losses[0]
    assert all(np.isfinite(np.asarray(array, np.float64)).all() for array in run.model.params.values())
    assert run.best is not None
    assert loss_of(run.model, job) == pytest.approx(run.best.loss, rel=1e-4)
    assert run.cost.total == pytest.approx(sum(run.cost.values()))
    assert run.cost.total == run.telemetry.state.spent_usd
    assert min(run.cost.workers, run.cost.storage) > 0
    assert (run.cost.redis > 0) == (job.store != "storage")  # that store needs no Redis
    assert "0 functions, 0 keys, 0 queues left" in run.telemetry.state.events[-1].text


def loss_of(model: Any, job: TrainingJob) -> float:
    """The loss of a returned model on the rows that the job holds out."""
    _, held_out = job.data.split(0.1, job.seed)
    if job.model.kind == "pmf":
        return rmse_in_training(model, held_out)
    params = job.model.table_of(model)
    losses = [job.model.evaluate(params, minibatch, 0.0) for minibatch in held_out.minibatches(60, None)]
    return float(job.model.metric_value(sum(losses), held_out.n))


def check_two_runs_are_one(fields: dict[str, Any]) -> None:
    """Check that eight steps are the bits of three and then five that go on from a stored state."""
    fields = fields | {"schedule": "constant", "partition": "rows"}
    whole, half = (finish(TrainingJob(**fields | {"stop": Stop(steps=steps)})) for steps in (8, 3))
    rest = mlless_nb.train(TrainingJob(**fields | {"stop": Stop(steps=5)}), resume=half)
    assert rest.wait(PATIENCE_S) == "finished", rest.reason
    for name in ("loss", "validation_loss"):
        both = np.concatenate([run.history[name] for run in (half, rest)])
        np.testing.assert_array_equal(both, whole.history[name])
    for name, array in whole.last_model.params.items():
        np.testing.assert_array_equal(rest.last_model.params[name], array)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("model", MODELS)
def test_models_and_algorithms_under_every_protocol(model: str, algorithm: str) -> None:
    done = [
        trained(model, algorithm, sync, workers) for sync in SYNCS for workers in (3, 1) if workers > 1 or sync == BSP()
    ]
    assert any(done) == ((model, algorithm) not in NEVER)
    if algorithm == "default" and model != "k-means":
        assert all(done)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("model", MODELS)
def test_two_runs_of_models_and_algorithms_are_one_bit_for_bit(model: str, algorithm: str) -> None:
    if (model, algorithm) in NEVER:
        with pytest.raises(JobError):
            TrainingJob(**fields_of(model, algorithm, BSP(), 3))
        return
    for workers in (3, 1):
        check_two_runs_are_one(fields_of(model, algorithm, BSP(), workers))


@pytest.mark.parametrize("store", ["storage", "memcached", "dynamodb", "server"])
@pytest.mark.parametrize("model", ["PMF", "logistic", "k-means"])
def test_stores_under_every_protocol_and_pattern(store: str, model: str, request: pytest.FixtureRequest) -> None:
    fixtures = {"memcached": "memcached_url", "dynamodb": "dynamodb", "server": "frame_server"}
    found = request.getfixturevalue(fixtures[store]) if store in fixtures else None
    url = {"memcached": found, "server": getattr(found, "url", None)}.get(store, store)
    done = [trained(model, "default", sync, 3, store=url) for sync in SYNCS]
    done += [trained(model, "default", BSP(), 3, store=url, pattern=how) for how in ("scatter-reduce", "allreduce")]
    assert done == [sync == BSP() or model != "k-means" for sync in SYNCS] + [True, True]
    assert trained(model, "default", BSP(), 1, store=url)
    check_two_runs_are_one(fields_of(model, "default", BSP(), 3, store=url))


@pytest.mark.parametrize("execution", ["map-reduce", "events"])
@pytest.mark.parametrize("model", [model for model in MODELS if model != "k-means"])
def test_stateless_runs_of_every_model(model: str, execution: str) -> None:
    for workers in (3, 1):
        assert trained(model, "default", BSP(), workers, execution=execution, stop=Stop(steps=3))
    assert not trained(model, "default", ISP(0.7), 3, execution=execution)
