"""Fifty steps of PyTorch on small generated problems: what one worker must reproduce.

Run with PyTorch installed to write ``trajectories.json`` anew; the tests read it everywhere, and run the same cases
live where PyTorch is installed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

RECORDED = Path(__file__).parent / "trajectories.json"
N_STEPS = 50
#: Nominal minibatch; the last of the eight of an epoch has 30 rows. And where laziness is to be seen: about half of the
#: table's rows are not touched by so few ratings.
SIZE, LAZY_SIZE = 50, 6
N = 380
N_USERS, N_ITEMS, RANK = 12, 9, 3
N_FEATURES = 15
#: Steps whose parameters are recorded; the losses are of every step.
RECORDED_STEPS = (1, 2, 10, 25, 50)


class Case(NamedTuple):
    """A model, its l2, PyTorch's optimiser and its arguments."""

    model: str
    l2: float
    optimizer: str
    arguments: dict[str, Any]
    #: Rows of the table that a minibatch does not touch stay as they are, and so does their state: in PyTorch each row
    #: is then a parameter of its own, without a gradient in such a step; Adam is `SparseAdam`, whose steps are counted
    #: for all rows together. It adds eps to a root that is not corrected yet: a small eps keeps the two alike.
    is_lazy: bool = False

    @property
    def size(self) -> int:
        """Rows in a minibatch."""
        return LAZY_SIZE if self.is_lazy else SIZE


CASES: dict[str, Case] = {
    "logistic SGD": Case("logistic", 0.0, "SGD", {"lr": 0.5}),
    "logistic SGD l2": Case("logistic", 0.05, "SGD", {"lr": 0.5}),
    "logistic momentum l2": Case("logistic", 0.05, "SGD", {"lr": 0.2, "momentum": 0.9}),
    "logistic Adam": Case("logistic", 0.0, "Adam", {"lr": 0.05}),
    "logistic Adam l2": Case("logistic", 0.05, "Adam", {"lr": 0.05}),
    "logistic AdaGrad l2": Case("logistic", 0.05, "Adagrad", {"lr": 0.1}),
    "PMF SGD": Case("pmf", 0.0, "SGD", {"lr": 1.0}),
    "PMF SGD l2": Case("pmf", 0.1, "SGD", {"lr": 1.0}),
    "PMF momentum l2": Case("pmf", 0.1, "SGD", {"lr": 0.4, "momentum": 0.8}),
    "PMF Nesterov": Case("pmf", 0.0, "SGD", {"lr": 0.4, "momentum": 0.8, "nesterov": True}),
    "PMF Nesterov l2": Case("pmf", 0.1, "SGD", {"lr": 0.4, "momentum": 0.8, "nesterov": True}),
    "PMF Adam": Case("pmf", 0.0, "Adam", {"lr": 0.02}),
    "PMF AdaGrad": Case("pmf", 0.0, "Adagrad", {"lr": 0.1}),
    "logistic lazy SGD l2": Case("logistic", 0.05, "SGD", {"lr": 0.5}, is_lazy=True),
    "logistic lazy momentum l2": Case("logistic", 0.05, "SGD", {"lr": 0.2, "momentum": 0.9}, is_lazy=True),
    "logistic lazy AdaGrad l2": Case("logistic", 0.05, "Adagrad", {"lr": 0.1}, is_lazy=True),
    "logistic lazy Adam": Case("logistic", 0.0, "Adam", {"lr": 0.05, "eps": 1e-12}, is_lazy=True),
    "PMF lazy momentum l2": Case("pmf", 0.1, "SGD", {"lr": 0.2, "momentum": 0.8}, is_lazy=True),
    "PMF lazy Nesterov": Case("pmf", 0.0, "SGD", {"lr": 0.2, "momentum": 0.8, "nesterov": True}, is_lazy=True),
    "PMF lazy Adam": Case("pmf", 0.0, "Adam", {"lr": 0.02, "eps": 1e-12}, is_lazy=True),
}


class Problem(NamedTuple):
    """A dataset and where training starts."""

    user: NDArray[np.int64]
    item: NDArray[np.int64]
    rating: NDArray[np.float32]
    mean: float
    factors: NDArray[np.float32]
    X: NDArray[np.float32]
    y: NDArray[np.float32]
    weights: NDArray[np.float32]


def problem() -> Problem:
    """Always the same; RandomState, as its stream is frozen for good."""
    rng = np.random.RandomState(7)
    user, item = rng.randint(0, N_USERS, N), rng.randint(0, N_ITEMS, N)
    taste, kind = rng.normal(0, 0.8, (N_USERS, RANK)), rng.normal(0, 0.8, (N_ITEMS, RANK))
    rating = np.clip(np.round(3.5 + (taste[user] * kind[item]).sum(1) + rng.normal(0, 0.3, N)), 1, 5)
    factors = rng.normal(0, 0.3, (N_USERS + N_ITEMS, RANK + 1))
    factors[:, -1] = 0
    X = rng.normal(0, 1, (N, N_FEATURES)) * (rng.uniform(size=(N, N_FEATURES)) < 0.2)
    y = rng.uniform(size=N) < 1 / (1 + np.exp(-(X @ rng.normal(0, 2, N_FEATURES) - 0.5)))
    return Problem(
        user,
        item,
        rating.astype(np.float32),
        float(np.float32(rating.mean())),
        factors.astype(np.float32),
        X.astype(np.float32),
        y.astype(np.float32),
        np.zeros((N_FEATURES + 1, 1), np.float32),
    )


def rows_at(step: int, size: int) -> NDArray[np.int64]:
    """Rows of the minibatch of a 1-based step: in order, over and over."""
    n_minibatches = -(-N // size)
    start = (step - 1) % n_minibatches * size
    return np.arange(start, min(start + size, N))


def torch_trajectory(name: str) -> tuple[list[float], list[NDArray[np.float32]]]:
    """Per step: the sum of losses before it, the parameters after it, by PyTorch."""
    import torch

    case, data = CASES[name], problem()
    start = data.factors if case.model == "pmf" else data.weights
    table = [torch.nn.Parameter(torch.tensor(row)) for row in start]
    penalty = 0.0 if case.model == "pmf" else case.l2  # of PMF it is a part of the loss, of each rating's two rows
    groups = [{"params": table[:-1], "weight_decay": penalty}, {"params": table[-1:]}]  # the intercept has none
    if case.is_lazy and case.optimizer == "Adam":
        # One parameter of sparse gradients: steps are counted, and moments corrected, for all of its rows together.
        table = [torch.nn.Parameter(torch.tensor(start))]
        optimizer = torch.optim.SparseAdam(table, **case.arguments)
    else:
        optimizer = getattr(torch.optim, case.optimizer)(groups, **case.arguments)
    losses, tables = [], []
    for step in range(1, N_STEPS + 1):
        rows = rows_at(step, case.size)
        optimizer.zero_grad()
        now = table[0] if len(table) == 1 else torch.stack(tuple(table))
        if case.model == "pmf":
            user, item = data.user[rows], N_USERS + data.item[rows]
            p, q = now[user], now[item]
            score = data.mean + p[:, -1] + q[:, -1] + (p[:, :-1] * q[:, :-1]).sum(1)
            squared = (torch.tensor(data.rating[rows]) - score) ** 2
            losses.append(squared.sum().item())
            loss = 0.5 * squared.sum() + 0.5 * case.l2 * ((p**2).sum() + (q**2).sum())
            touched = np.union1d(user, item)
        else:
            margins = torch.tensor(data.X[rows]) @ now[:-1] + now[-1]
            loss = torch.nn.functional.binary_cross_entropy_with_logits(
                margins[:, 0], torch.tensor(data.y[rows]), reduction="sum"
            )
            losses.append(loss.item())
            touched = np.append(np.flatnonzero(data.X[rows].any(0)), N_FEATURES)
        (loss / case.size).backward()
        if case.is_lazy:
            _leave_out(table, touched)
        optimizer.step()
        tables.append(torch.cat([parameter.detach().reshape(-1, start.shape[1]) for parameter in table]).numpy())
    return losses, tables


def _leave_out(table: list[Any], touched: NDArray[np.int64]) -> None:
    """Leave the optimiser the gradients of the ``touched`` rows only; ``table`` is a parameter a row, or one of all."""
    import torch

    if len(table) == 1:
        grad = table[0].grad[touched]
        at = torch.tensor(touched)[None]
        table[0].grad = torch.sparse_coo_tensor(at, grad, table[0].shape, check_invariants=True)
        return
    for row in set(range(len(table))) - set(touched.tolist()):
        table[row].grad = None


def record() -> None:
    """Write every case to ``trajectories.json``."""
    import torch

    recorded: dict[str, Any] = {"torch": torch.__version__.split("+")[0], "cases": {}}
    for name in CASES:
        losses, tables = torch_trajectory(name)
        recorded["cases"][name] = {
            "losses": [float(f"{loss:.7g}") for loss in losses],
            "params": {
                str(step): [float(f"{x:.7g}") for x in tables[step - 1].ravel().tolist()] for step in RECORDED_STEPS
            },
        }
    lines = [f"  {json.dumps(name)}: {json.dumps(case)}" for name, case in recorded["cases"].items()]
    head = f'{{"torch": {json.dumps(recorded["torch"])}, "cases": {{\n'
    RECORDED.write_text(head + ",\n".join(lines) + "\n}}\n", encoding="utf-8")


if __name__ == "__main__":
    record()
