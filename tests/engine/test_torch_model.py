"""A PyTorch module in real functions: its source goes along, and a state_dict comes back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is missing: pip install 'mlless_nb[torch]'")

from engine.jobs import finish, job  # noqa: E402 - torch may be missing

from mlless_nb import ISP, SGD, Stop, TorchModel, datasets  # noqa: E402
from mlless_nb.models import FittedTorch  # noqa: E402

pytestmark = pytest.mark.torch


class Net(torch.nn.Module):
    """A network with one hidden layer, for three classes."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(7, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))

    def scores(self, X: Any) -> Any:
        """Of the classes."""
        return self.layers(X)

    def forward(self, X: Any, y: Any) -> Any:
        """Mean cross entropy."""
        return torch.nn.functional.cross_entropy(self.scores(X), y.long())


def test_it_trains_in_functions_and_returns_a_state_dict() -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(900, 7)).astype(np.float32)
    y = np.argmax(X[:, :3], axis=1)
    fields = {"model": TorchModel(Net), "data": datasets.csr(X, y), "optimizer": SGD(0.5), "sync": ISP(0.5)}
    run = finish(job(**fields, codec="int8", workers=2, minibatch=50, stop=Stop(epochs=15)))
    assert run.status == "finished", run.reason
    assert isinstance(run.model, FittedTorch)
    net = Net()
    net.load_state_dict(run.model.state_dict())
    with torch.no_grad():
        assert (net.scores(torch.tensor(X)).argmax(dim=1).numpy() == y).mean() > 0.9
    assert "Everything is shut down" in run.telemetry.state.events[-1].text
