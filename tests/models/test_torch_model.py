"""A model that a user wrote with PyTorch: step by step it is PyTorch's own training loop."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is missing: pip install 'mlless_nb[torch]'")

from mlless_nb import (  # noqa: E402 - torch may be missing
    ISP,
    SGD,
    Adam,
    JobError,
    ModelAveraging,
    ScaleIn,
    Stop,
    TorchModel,
    TrainingJob,
    datasets,
)
from mlless_nb.driver.launch.data_preparation import JobData  # noqa: E402
from mlless_nb.models import FittedTorch, load_model, model_from_json  # noqa: E402
from mlless_nb.models.written import dense_rows  # noqa: E402
from mlless_nb.simulate import TWO_CORES, SimulatedRun, simulate  # noqa: E402
from mlless_nb.storage.objects import MemoryObjects  # noqa: E402
from mlless_nb.worker.minibatch_loader import MinibatchFeed  # noqa: E402

pytestmark = pytest.mark.torch
MNIST = Path(os.environ.get("MLLESS_DATA_HOME", "")) / "mnist"


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """PyTorch computes as in a function, with one thread: bits do not depend on the machine's cores."""
    torch.set_num_threads(1)


class Net(torch.nn.Module):
    """A network with one hidden layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(7, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))

    def forward(self, X: Any, y: Any) -> Any:
        """Mean cross entropy."""
        return torch.nn.functional.cross_entropy(self.layers(X), y.long())


def made_by_a_function() -> Any:
    """A linear regression."""

    class Line(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.line = torch.nn.Linear(7, 1)

        def forward(self, X: Any, y: Any) -> Any:
            return torch.nn.functional.mse_loss(self.line(X)[:, 0], y)

    return Line()


def job(model: Any = None, **changes: Any) -> TrainingJob:
    """600 rows of three classes."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(600, 7)).astype(np.float32)
    y = np.argmax(X[:, :3] + 0.3 * rng.normal(size=(600, 3)), axis=1)
    fields: dict[str, Any] = {
        "optimizer": SGD(0.2),
        "data": datasets.csr(X, y),
        "workers": 1,
        "minibatch": 50,
        "validation": None,
        "schedule": "constant",
        "stop": Stop(steps=36),
        "scale_in": ScaleIn.off(),
    }
    return TrainingJob(model or TorchModel(Net), **(fields | changes))


def trained(job: TrainingJob) -> SimulatedRun:
    """The run of ``job``, on the simulator's clock."""
    run = simulate(job, TWO_CORES)
    assert run.status == "finished", run.reason
    return run


def state_of(job: TrainingJob, run: SimulatedRun) -> dict[str, Any]:
    """The ``state_dict`` of the trained model."""
    assert run.params is not None
    fitted = job.model.fitted(run.params, job.data.shape, 0.0)
    assert isinstance(fitted, FittedTorch)
    return fitted.state_dict()


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (SGD(0.2), lambda params: torch.optim.SGD(params, 0.2)),
        (SGD(0.05, momentum=0.9), lambda params: torch.optim.SGD(params, 0.05, momentum=0.9)),
        (Adam(0.01), lambda params: torch.optim.Adam(params, 0.01)),
    ],
    ids=["SGD", "momentum", "Adam"],
)
def test_step_by_step_it_is_torchs_own_loop(ours: Any, theirs: Any) -> None:
    made = job(optimizer=ours)
    objects = MemoryObjects()
    packed = JobData(made).pack(objects, lambda: False)
    assert packed is not None
    feed = MinibatchFeed(objects, packed[0])
    torch.manual_seed(0)
    net, losses = Net(), []
    optimizer = theirs(net.parameters())
    for step in range(36):
        X, y = dense_rows(feed.get(step % 12), 7)
        optimizer.zero_grad()
        loss = net(torch.tensor(X), torch.tensor(y))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    feed.close()
    run = trained(made)
    np.testing.assert_allclose(run.history["loss"], losses, rtol=2e-5)
    state = state_of(made, run)
    for name, tensor in net.state_dict().items():
        np.testing.assert_allclose(state[name], tensor, atol=2e-5)
    net.load_state_dict(state)


@pytest.mark.parametrize("fields", [{"sync": ISP(0.7)}, {"codec": "int8"}, {"algorithm": ModelAveraging()}])
def test_protocols_codecs_and_algorithms_apply(fields: dict[str, Any]) -> None:
    run = trained(job(optimizer=Adam(0.02), workers=3, validation=0.2, stop=Stop(epochs=12), **fields))
    losses = run.history["validation_loss"]
    assert losses[np.isfinite(losses)][-1] < 0.65


def test_a_function_may_make_it_and_it_is_saved(tmp_path: Path) -> None:
    model = TorchModel(made_by_a_function)
    assert model_from_json(model.to_json()) == model
    assert "line" in str(state_of(job(model), trained(job(model, optimizer=SGD(0.1)))))
    fitted = model.fitted(model.init((7,), 0.0, 3), (7,), 0.0)
    fitted.save(tmp_path / "model.npz")
    np.testing.assert_array_equal(model.table_of(load_model(tmp_path / "model.npz")), model.init((7,), 0.0, 3))


class Buffered(Net):
    """It has a base that its source does not define."""


class Rows(torch.nn.Module):
    """Returns a loss for each row."""

    def __init__(self) -> None:
        super().__init__()
        self.line = torch.nn.Linear(7, 1)

    def forward(self, X: Any, y: Any) -> Any:
        """No scalar."""
        return (self.line(X)[:, 0] - y) ** 2


class Infinite(torch.nn.Module):
    """Its loss is not finite."""

    def __init__(self) -> None:
        super().__init__()
        self.line = torch.nn.Linear(7, 1)

    def forward(self, X: Any, y: Any) -> Any:
        """NaN."""
        return self.line(X).sum() * float("nan")


class Number(torch.nn.Module):
    """Its loss is no tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.line = torch.nn.Linear(7, 1)

    def forward(self, X: Any, y: Any) -> Any:
        """A float."""
        return self.line(X).sum().item()


class Constant(torch.nn.Module):
    """Its loss has nothing to do with its parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.line = torch.nn.Linear(7, 1)

    def forward(self, X: Any, y: Any) -> Any:
        """A scalar."""
        return y.mean()


def no_module() -> int:
    """Makes something else."""
    return 3


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (Buffered, "a class with methods of its own; it has none"),
        (Number, "loss is a tensor; on the first rows it is "),
        (Constant, "loss depends on its parameters"),
        (Rows, r"loss is a scalar; on the first rows it has shape \(32,\)"),
        (Infinite, "finite on the first rows"),
        (no_module, "a function that returns one"),
    ],
)
def test_what_cannot_run_is_refused_in_one_line(wrong: Any, message: str) -> None:
    with pytest.raises(JobError, match=message) as refused:
        job(TorchModel(wrong))
    assert "\n" not in str(refused.value)


class Wide(torch.nn.Module):
    """A network with one hidden layer, for digits."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(784, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))

    def scores(self, X: Any) -> Any:
        """Of the ten digits."""
        return self.layers(X)

    def forward(self, X: Any, y: Any) -> Any:
        """Mean cross entropy."""
        return torch.nn.functional.cross_entropy(self.scores(X), y.long())


class Convolutional(torch.nn.Module):
    """A small convolutional network."""

    def __init__(self) -> None:
        super().__init__()
        nn = torch.nn
        self.layers = nn.Sequential(
            nn.Conv2d(1, 8, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Conv2d(8, 16, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(16 * 49, 10),
        )

    def scores(self, X: Any) -> Any:
        """Of the ten digits."""
        return self.layers(X.reshape(-1, 1, 28, 28))

    def forward(self, X: Any, y: Any) -> Any:
        """Mean cross entropy."""
        return torch.nn.functional.cross_entropy(self.scores(X), y.long())


class Mobile(torch.nn.Module):
    """MobileNet's blocks: a depthwise convolution, then one of single pixels; with GroupNorm."""

    def __init__(self) -> None:
        super().__init__()
        nn = torch.nn

        def block(n_in: int, n_out: int, stride: int) -> Any:
            return nn.Sequential(
                nn.Conv2d(n_in, n_in, 3, stride=stride, padding=1, groups=n_in, bias=False),
                nn.GroupNorm(4, n_in),
                nn.ReLU(),
                nn.Conv2d(n_in, n_out, 1, bias=False),
                nn.GroupNorm(4, n_out),
                nn.ReLU(),
            )

        self.layers = nn.Sequential(
            nn.Conv2d(1, 8, 3, stride=2, padding=1, bias=False),
            nn.GroupNorm(4, 8),
            nn.ReLU(),
            block(8, 16, 1),
            block(16, 32, 2),
            block(32, 32, 1),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            nn.Linear(128, 10),
        )

    def scores(self, X: Any) -> Any:
        """Of the ten digits."""
        return self.layers(X.reshape(-1, 1, 28, 28))

    def forward(self, X: Any, y: Any) -> Any:
        """Mean cross entropy."""
        return torch.nn.functional.cross_entropy(self.scores(X), y.long())


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::mlless_nb.DataWarning")
@pytest.mark.skipif(not (MNIST / "mnist.npz").is_file(), reason="MLLESS_DATA_HOME holds no mnist; put it there")
@pytest.mark.parametrize(("kind", "epochs"), [(Wide, 12), (Convolutional, 8), (Mobile, 12)])
def test_digits_are_read(kind: Any, epochs: int) -> None:
    """At least 97.5 % of MNIST's test set, with four workers."""
    digits = np.load(MNIST / "mnist.npz")
    X, test = (digits[name].reshape(-1, 784).astype(np.float32) / 255 for name in ("x_train", "x_test"))
    data = datasets.csr(X, digits["y_train"])
    made = job(TorchModel(kind), optimizer=Adam(0.003), data=data, workers=4, minibatch=64, stop=Stop(epochs=epochs))
    net = kind()
    net.load_state_dict(state_of(made, trained(made)))
    net.eval()
    with torch.no_grad():
        guessed = net.scores(torch.tensor(test)).argmax(dim=1).numpy()
    assert (guessed == digits["y_test"]).mean() >= 0.975
