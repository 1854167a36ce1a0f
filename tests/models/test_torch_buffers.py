"""Buffers of a module that a user wrote, and parameters with two names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is missing: pip install 'mlless_nb[torch]'")

from models.test_torch_model import job, state_of, trained  # noqa: E402 - torch may be missing

from mlless_nb import SGD, JobError, TorchModel  # noqa: E402
from mlless_nb.models import FittedTorch, load_model  # noqa: E402

pytestmark = pytest.mark.torch


class Centred(torch.nn.Module):
    """It has buffers that stay as they are made: one of the state, and one that is not."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("order", torch.arange(6, -1, -1))
        self.register_buffer("centre", torch.full((7,), 0.25), persistent=False)
        self.norm = torch.nn.BatchNorm1d(7, track_running_stats=False)
        self.line = torch.nn.Linear(7, 1)

    def forward(self, X: Any, y: Any) -> Any:
        """A scalar."""
        return ((self.line(self.norm(X[:, self.order] - self.centre))[:, 0] - y) ** 2).mean()


def test_buffers_that_stay_as_they_are_made_are_those_of_the_state(tmp_path: Path) -> None:
    made = job(TorchModel(Centred), optimizer=SGD(0.05), workers=2)
    state = state_of(made, trained(made))
    np.testing.assert_array_equal(state["order"], np.arange(6, -1, -1))
    assert state["order"].dtype == torch.int64
    Centred().load_state_dict(state)
    fitted = made.model.fitted(made.model.init((7,), 0.0, 3), (7,), 0.0)
    fitted.save(tmp_path / "model.npz")
    again = load_model(tmp_path / "model.npz")
    assert isinstance(again, FittedTorch)
    assert again.state_dict().keys() == state.keys() == Centred().state_dict().keys()
    assert again.params.keys() == dict(Centred().named_parameters()).keys()
    np.testing.assert_array_equal(again.buffers["order"], state["order"])


class Tied(torch.nn.Module):
    """Two of its layers have one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = torch.nn.Linear(7, 7), torch.nn.Linear(7, 7)
        self.other.weight = self.one.weight

    def forward(self, X: Any, y: Any) -> Any:
        """A scalar."""
        return ((self.other(torch.tanh(self.one(X)))[:, 0] - y) ** 2).mean()


def test_a_weight_with_two_names_is_the_trained_one_under_both() -> None:
    made = job(TorchModel(Tied), optimizer=SGD(0.05))
    state = state_of(made, trained(made))
    assert state.keys() == Tied().state_dict().keys()
    np.testing.assert_array_equal(state["one.weight"], state["other.weight"])
    net = Tied()
    before = net.one.weight.detach().numpy().copy()
    net.load_state_dict(state)
    np.testing.assert_array_equal(net.one.weight.detach(), state["one.weight"])
    assert not np.array_equal(net.one.weight.detach(), before)


class Normed(torch.nn.Module):
    """Its forward changes buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(7)

    def forward(self, X: Any, y: Any) -> Any:
        """A scalar."""
        return self.norm(X).sum()


class Drawn(torch.nn.Module):
    """Its buffer is another one each time."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("directions", torch.tensor(np.random.default_rng().normal(size=7).astype(np.float32)))
        self.line = torch.nn.Linear(7, 1)

    def forward(self, X: Any, y: Any) -> Any:
        """A scalar."""
        return (self.line(X * self.directions)[:, 0] - y).abs().mean()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (Normed, r"buffers stay as they are made .*; its forward changes norm\.running_mean"),
        (Drawn, "buffers are the same each time it is made; directions is not"),
    ],
)
def test_what_cannot_be_equal_in_all_functions_is_refused(wrong: Any, message: str) -> None:
    with pytest.raises(JobError, match=message):
        job(TorchModel(wrong))
