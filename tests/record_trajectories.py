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
#: Nominal minibatch; the last of the eight of an epoch has 30 rows.
SIZE = 50
N = 380
N_USERS, N_ITEMS, RANK = 12, 9, 3
N_FEATURES = 15
#: Steps whose parameters are recorded; the losses are of every step.
RECORDED_STEPS = (1, 2, 10, 25, 50)

#: Name -> (model, its l2, PyTorch optimiser, its arguments).
CASES: dict[str, tuple[str, float, str, dict[str, Any]]] = {
    "logistic SGD": ("logistic", 0.0, "SGD", {"lr": 0.5}),
    "logistic SGD l2": ("logistic", 0.05, "SGD", {"lr": 0.5}),
    "logistic momentum l2": ("logistic", 0.05, "SGD", {"lr": 0.2, "momentum": 0.9}),
    "logistic Adam": ("logistic", 0.0, "Adam", {"lr": 0.05}),
    "logistic Adam l2": ("logistic", 0.05, "Adam", {"lr": 0.05}),
    "logistic AdaGrad l2": ("logistic", 0.05, "Adagrad", {"lr": 0.1}),
    "PMF SGD": ("pmf", 0.0, "SGD", {"lr": 1.0}),
    "PMF SGD l2": ("pmf", 0.1, "SGD", {"lr": 1.0}),
    "PMF momentum l2": ("pmf", 0.1, "SGD", {"lr": 0.4, "momentum": 0.8}),
    "PMF Nesterov": ("pmf", 0.0, "SGD", {"lr": 0.4, "momentum": 0.8, "nesterov": True}),
    "PMF Nesterov l2": ("pmf", 0.1, "SGD", {"lr": 0.4, "momentum": 0.8, "nesterov": True}),
    "PMF Adam": ("pmf", 0.0, "Adam", {"lr": 0.02}),
    "PMF AdaGrad": ("pmf", 0.0, "Adagrad", {"lr": 0.1}),
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


def rows_at(step: int) -> NDArray[np.int64]:
    """Rows of the minibatch of a 1-based step: in order, over and over."""
    n_minibatches = -(-N // SIZE)
    start = (step - 1) % n_minibatches * SIZE
    return np.arange(start, min(start + SIZE, N))


def torch_trajectory(name: str) -> tuple[list[float], list[NDArray[np.float32]]]:
    """Per step: the sum of losses before it, the parameters after it, by PyTorch."""
    import torch

    kind, l2, optimizer_name, arguments = CASES[name]
    data = problem()
    is_pmf = kind == "pmf"
    if is_pmf:
        table = torch.nn.Parameter(torch.tensor(data.factors))
        groups = [{"params": [table]}]
    else:
        weights = torch.nn.Parameter(torch.tensor(data.weights[:-1]))
        intercept = torch.nn.Parameter(torch.tensor(data.weights[-1:]))
        groups = [{"params": [weights], "weight_decay": l2}, {"params": [intercept]}]
    optimizer = getattr(torch.optim, optimizer_name)(groups, **arguments)
    losses, tables = [], []
    for step in range(1, N_STEPS + 1):
        rows = rows_at(step)
        optimizer.zero_grad()
        if is_pmf:
            p, q = table[data.user[rows]], table[N_USERS + data.item[rows]]
            score = data.mean + p[:, -1] + q[:, -1] + (p[:, :-1] * q[:, :-1]).sum(1)
            squared = (torch.tensor(data.rating[rows]) - score) ** 2
            penalty = 0.5 * l2 * ((p**2).sum() + (q**2).sum())
            losses.append(squared.sum().item())
            loss = 0.5 * squared.sum() + penalty
        else:
            margins = torch.tensor(data.X[rows]) @ weights + intercept
            loss = torch.nn.functional.binary_cross_entropy_with_logits(
                margins[:, 0], torch.tensor(data.y[rows]), reduction="sum"
            )
            losses.append(loss.item())
        (loss / SIZE).backward()
        optimizer.step()
        now = table if is_pmf else torch.cat([weights, intercept])
        tables.append(now.detach().numpy().copy())
    return losses, tables


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
