"""A model that a user wrote with NumPy: it trains as a plain loop does, and what cannot run is refused."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import linecache
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlless_nb import (
    BSP,
    ISP,
    SGD,
    Adam,
    JobError,
    ModelAveraging,
    NumpyModel,
    ScaleIn,
    Stop,
    TorchModel,
    TrainingJob,
    datasets,
)
from mlless_nb.data.minibatches import CsrMinibatch
from mlless_nb.driver.launch.data_preparation import JobData
from mlless_nb.models import load_model, model_from_json
from mlless_nb.models.written import dense_rows
from mlless_nb.simulate import TWO_CORES, SimulatedRun, simulate
from mlless_nb.storage.objects import MemoryObjects
from mlless_nb.worker.minibatch_loader import MinibatchFeed

MNIST = Path(os.environ.get("MLLESS_DATA_HOME", "")) / "mnist"


class Perceptron:
    """A network with one hidden layer, for classes."""

    hidden, n_classes = 16, 3

    def parameters(self, n_features: int, seed: int) -> dict[str, Any]:
        """Random weights."""
        draw = np.random.default_rng(seed).normal
        return {
            "W1": draw(0, n_features**-0.5, (n_features, self.hidden)),
            "b1": np.zeros(self.hidden),
            "W2": draw(0, self.hidden**-0.5, (self.hidden, self.n_classes)),
            "b2": np.zeros(self.n_classes),
        }

    def forward(self, params: Any, X: Any) -> tuple[Any, Any]:
        """Hidden layer, and logarithms of the probabilities."""
        hidden = np.maximum(X @ params["W1"] + params["b1"], 0)
        scores = hidden @ params["W2"] + params["b2"]
        scores -= scores.max(axis=1, keepdims=True)
        return hidden, scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))

    def loss(self, params: Any, X: Any, y: Any) -> float:
        """Mean cross entropy."""
        return float(-self.forward(params, X)[1][np.arange(len(y)), y.astype(int)].mean())

    def gradients(self, params: Any, X: Any, y: Any) -> dict[str, Any]:
        """By back-propagation."""
        hidden, logs = self.forward(params, X)
        out = np.exp(logs)
        out[np.arange(len(y)), y.astype(int)] -= 1
        out /= len(y)
        back = (out @ params["W2"].T) * (hidden > 0)
        return {"W1": X.T @ back, "b1": back.sum(0), "W2": hidden.T @ out, "b2": out.sum(0)}


def rows(n: int = 600) -> tuple[Any, Any]:
    """Rows of three classes."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n, 7)).astype(np.float32)
    X[:, 5] *= rng.random(n) < 0.05  # a sparse column
    return X, np.argmax(X[:, :3] + 0.3 * rng.normal(size=(n, 3)), axis=1)


def job(model: Any = None, **changes: Any) -> TrainingJob:
    """600 rows, some of them to evaluate on."""
    fields: dict[str, Any] = {
        "optimizer": SGD(0.2),
        "data": datasets.csr(*rows()),
        "workers": 1,
        "minibatch": 50,
        "validation": None,
        "schedule": "constant",
        "stop": Stop(steps=24),
        "scale_in": ScaleIn.off(),
    }
    return TrainingJob(model or NumpyModel(Perceptron), **(fields | changes))


def trained(job: TrainingJob) -> SimulatedRun:
    """The run of ``job``, on the simulator's clock."""
    run = simulate(job, TWO_CORES)
    assert run.status == "finished", run.reason
    return run


def minibatches(job: TrainingJob) -> list[tuple[Any, Any]]:
    """The training minibatches of ``job``, as the user's class gets them."""
    objects = MemoryObjects()
    packed = JobData(job).pack(objects, lambda: False)
    assert packed is not None
    feed = MinibatchFeed(objects, packed[0])
    found = [dense_rows(feed.get(index), 7) for index in range(packed[0].n_minibatches)]
    feed.close()
    return found


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_it_trains_as_a_plain_loop_does(momentum: float) -> None:
    made, user = job(optimizer=SGD(0.1, momentum=momentum)), Perceptron()
    params = {name: np.asarray(array, np.float32) for name, array in user.parameters(7, 0).items()}
    velocity = {name: np.zeros_like(array) for name, array in params.items()}
    losses = []
    for X, y in minibatches(made) * 2:
        losses.append(user.loss(params, X, y))
        for name, grad in user.gradients(params, X, y).items():
            velocity[name] = momentum * velocity[name] + grad
            params[name] = params[name] - np.float32(0.1) * velocity[name]
    run = trained(made)
    np.testing.assert_allclose(run.history["loss"], losses, rtol=1e-5)
    assert run.params is not None
    fitted = made.model.fitted(run.params, (7,), 0.0)
    for name, array in params.items():
        np.testing.assert_allclose(fitted.params[name], array, atol=2e-6)


@pytest.mark.parametrize("fields", [{"sync": ISP(0.7)}, {"codec": "bf16"}, {"algorithm": ModelAveraging()}])
def test_protocols_codecs_and_algorithms_apply(fields: dict[str, Any]) -> None:
    run = trained(job(optimizer=Adam(0.02), workers=3, validation=0.2, stop=Stop(epochs=12), **fields))
    losses = run.history["validation_loss"]
    assert losses[np.isfinite(losses)][-1] < 0.65
    assert run.history["sent_fraction"][0] < 1.0 or "sync" not in fields


def test_it_is_known_to_functions_and_saved(tmp_path: Path) -> None:
    model = NumpyModel(Perceptron, l2=0.01)
    spec = model.to_json()
    assert model_from_json(spec) == model
    assert spec["definition"]["sha256"] == hashlib.sha256(spec["definition"]["source"].encode()).hexdigest()
    fitted = model.fitted(model.init((7,), 0.0, 3), (7,), 0.0)
    fitted.save(tmp_path / "model.npz")
    again = load_model(tmp_path / "model.npz")
    np.testing.assert_array_equal(model.table_of(again), model.init((7,), 0.0, 3))
    changed = {**spec, "definition": {**spec["definition"], "source": "class Perceptron: pass"}}
    with pytest.raises(JobError, match=r"definition\.sha256"):
        model_from_json(changed)


@pytest.mark.filterwarnings("ignore::mlless_nb.DataWarning")
def test_rows_are_handed_over_dense() -> None:
    X = np.zeros((5, 7), np.float32)
    X[:, 1], X[2, 4], X[3, 6] = np.arange(1, 6), 2.0, -1.0
    one = next(iter(datasets.csr(X, np.arange(5)).minibatches(5, None)))
    assert isinstance(one, CsrMinibatch)
    dense, labels = dense_rows(one, 7)
    np.testing.assert_array_equal(dense, X)
    assert labels.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_a_class_of_a_cell_with_a_magic_is_found() -> None:
    text = "%%mlless --workers 2\nimport numpy as np\n\nclass Line:\n" + BODY
    linecache.cache["<a cell>"] = (len(text), None, text.splitlines(keepends=True), "<a cell>")
    scope: dict[str, Any] = {}
    exec(compile("\n" + text.partition("\n")[2], "<a cell>", "exec"), scope)
    assert NumpyModel(scope["Line"]).definition.source == "class Line:\n" + BODY


BODY = """    def parameters(self, n_features, seed):
        return {"w": np.zeros(n_features)}
    def loss(self, params, X, y):
        return float(np.mean((X @ params["w"] - y) ** 2) / 2)
    def gradients(self, params, X, y):
        return {"w": X.T @ (X @ params["w"] - y) / len(y)}
"""


def defined(body: str) -> Any:
    """The class ``Line`` with this body, as if it were written in a cell."""
    text = "class Line:\n" + body
    filename = f"<cell {hash(body)}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    scope: dict[str, Any] = {"np": np, "os": os, "datasets": datasets}
    exec(compile(text, filename, "exec"), scope)
    return scope["Line"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('float(np.mean((X @ params["w"] - y) ** 2) / 2)', "float('nan')", "loss is a finite number"),
        ('X.T @ (X @ params["w"] - y) / len(y)', "np.zeros(3)", r"gradient of w is of shape \(7,\)"),
        ('X.T @ (X @ params["w"] - y) / len(y)', 'params["w"] + np.inf', "gradient of w is finite"),
        ('{"w": X.T', '{"v": X.T', "gradients are a dict of w"),
        ("return float(", "return os.getpid(", "NameError: name 'os' is not defined"),
        ("np.zeros(n_features)", "np.full(n_features, np.nan)", "arrays of finite numbers"),
        (
            "def parameters(self, n_features, seed)",
            "def parameters(self)",
            "parameters are a dict of arrays; TypeError",
        ),
        ("    def parameters", "    here = os.getcwd()\n    def parameters", "imports what it uses; its source raises"),
        ("    def parameters", "    def __init__(self, n): ...\n    def parameters", "made without arguments"),
        ('return {"w": X.T', 'params["w"] += 1\n        return {"w": X.T', "raises ValueError"),
        ("def loss", "def losses", "methods parameters, loss, gradients; it has no loss$"),
        ("def gradients", "def gradient", "methods parameters, loss, gradients; it has no gradients$"),
        ("def parameters", "gradients = parameters = 3\n    def start", "it has no parameters$"),
    ],
)
def test_what_cannot_run_is_refused_in_one_line(old: str, new: str, message: str) -> None:
    assert old in BODY
    with pytest.raises(JobError, match=message) as refused:
        job(NumpyModel(defined(BODY.replace(old, new))))
    assert "\n" not in str(refused.value)


def test_a_sound_class_is_taken() -> None:
    made = job(NumpyModel(defined(BODY)))
    assert dataclasses.replace(made, sync=BSP()).model == made.model
    assert "Line" in made.describe()


def test_what_has_no_source_is_refused() -> None:
    changed = defined(BODY)
    changed.loss = lambda self, params, X, y: 0.0
    with pytest.raises(JobError, match="without changes afterwards"):
        NumpyModel(changed)
    with pytest.raises(JobError, match="whose source is at hand"):
        NumpyModel(type("Line", (), {"loss": changed.loss}))
    for wrong in (type("Line", (), {}), type("Line", (defined(BODY),), {"gradients": 3}), int):
        with pytest.raises(JobError, match="a class with methods of its own; it has none"):
            NumpyModel(wrong)
    with pytest.raises(
        JobError, match=r"NumpyModel\.definition=<function .*: must be a class, or a function with a name"
    ):
        NumpyModel(lambda: None)
    with pytest.raises(JobError, match=r"NumpyModel\.definition=.*: must be a class"):
        NumpyModel("Line")


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::mlless_nb.DataWarning")
@pytest.mark.skipif(not (MNIST / "mnist.npz").is_file(), reason="MLLESS_DATA_HOME holds no mnist; put it there")
def test_digits_are_read() -> None:
    """At least 97.5 % of MNIST's test set, with four workers."""
    digits = np.load(MNIST / "mnist.npz")
    X, test = (digits[name].reshape(-1, 784).astype(np.float32) / 255 for name in ("x_train", "x_test"))
    wide = dataclasses.replace(NumpyModel(Perceptron).definition)
    source = wide.source.replace("hidden, n_classes = 16, 3", "hidden, n_classes = 128, 10")
    wide = dataclasses.replace(wide, source=source, sha256=hashlib.sha256(source.encode()).hexdigest())
    made = TrainingJob(
        NumpyModel(wide),
        Adam(0.002),
        datasets.csr(X, digits["y_train"]),
        workers=4,
        minibatch=64,
        validation=None,
        stop=Stop(epochs=10),
        scale_in=ScaleIn.off(),
    )
    run = trained(made)
    assert run.params is not None
    user, fitted = wide.load("model")(), made.model.fitted(run.params, (784,), 0.0)
    guessed = user.forward(fitted.params, test)[1].argmax(axis=1)
    assert (guessed == digits["y_test"]).mean() >= 0.975


def test_a_torch_model_without_torch_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(JobError, match=r"pip install 'mlless_nb\[torch\]'"):
        TorchModel(Perceptron)
