"""Who is compared on the time to a held-out quality: our jobs, and the tasks of PyTorch DDP with rates of its own."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

from mlless_nb import ISP, PMF, SGD, AdaGrad, Adam, LogisticRegression

#: Held-out RMSE and log loss to reach, and the mean squared error on training minibatches.
TARGETS = {"ml1m": (0.87, 0.86, 0.855), "criteo": (0.51, 0.50, 0.497)}
TRAINING_MSE = 0.74
#: Ours: fields of `TrainingJob`, `workers` and `epochs` among them.
OURS: dict[str, dict[str, dict[str, Any]]] = {
    "ml1m": {
        "ours, P=2, rating by rating, by user, ISP(0.7)": {
            "model": PMF(rank=20, l2=0.04, init_scale=0.02),
            "optimizer": SGD(0.08, decay=0.016, per_sample=True),
            "schedule": "constant",
            "sync": ISP(0.7),
            "minibatch": 2500,
            "local_steps": 18,
            "aggregate": "sum",
            "partition": "user",
            "workers": 2,
            "epochs": 20,
            "eval_every": 10,
        },
        "ours, P=1, rating by rating": {
            "model": PMF(rank=20, l2=0.04, init_scale=0.02),
            "optimizer": SGD(0.08, decay=0.008, per_sample=True),
            "schedule": "constant",
            "minibatch": 2500,
            "local_steps": 36,
            "workers": 1,
            "epochs": 20,
            "eval_every": 10,
        },
        "ours, P=4, minibatches, lazy momentum, ISP(0.7)": {
            "model": PMF(rank=20, l2=0.05),
            "optimizer": SGD(30.0, 0.9, nesterov=True, lazy=True),
            "sync": ISP(0.7),
            "minibatch": 6250,
            "workers": 4,
            "epochs": 25,
            "eval_every": 6,
        },
    },
    "criteo": {
        "ours, P=2, AdaGrad, 10 local steps, ISP(0.7)": {
            "model": LogisticRegression(),
            "optimizer": AdaGrad(0.1),
            "sync": ISP(0.7),
            "minibatch": 500,
            "local_steps": 10,
            "workers": 2,
            "epochs": 3,
            "eval_every": 3,
        },
        "ours, P=4, lazy Adam, ISP(0.7)": {
            "model": LogisticRegression(),
            "optimizer": Adam(0.01, lazy=True),
            "sync": ISP(0.7),
            "minibatch": 1250,
            "workers": 4,
            "epochs": 6,
            "eval_every": 4,
        },
    },
}
#: Processes of PyTorch DDP, and kinds of its gradients.
DDP_WORKERS, DDP_KINDS = (1, 2, 4), ("dense", "sparse")
#: Learning rates to choose from with one process. With P, minibatches are P times as large: SGD's rates are P times
#: these, Adam's sqrt(P) times.
GRID: dict[str, dict[str, tuple[float, ...]]] = {
    "ml1m": {"dense": (5.0, 10.0, 20.0), "sparse": (0.0015, 0.003, 0.006)},
    "criteo": {"dense": (0.003, 0.006, 0.012), "sparse": (0.003, 0.006, 0.012)},
}
#: Which of them `rates.py` chose, by data, kind of gradients, processes and target, with the epochs that they need; it
#: writes them.
CHOSEN = Path(__file__).resolve().parent / "rates.json"
#: As many epochs as ours at most.
_TASK: dict[str, dict[str, Any]] = {
    "ml1m": {"rank": 20, "l2": 0.05, "minibatch": 6250, "epochs": 25, "eval_every": 12},
    "criteo": {"minibatch": 1250, "epochs": 6, "eval_every": 8},
}
MOMENTUM = 0.9
#: At a rate that is the best for easier targets only, so many times the epochs are trained that these need: in
#: `rates.py` one process stands for all.
ENOUGH = 1.5


def grid(name: str, kind: str, workers: int) -> list[float]:
    """The learning rates to choose from with ``workers`` processes."""
    scale = workers if is_sgd(name, kind) else math.sqrt(workers)
    return [float(f"{rate * scale:.3g}") for rate in GRID[name][kind]]


def chosen_rates(name: str, kind: str, workers: int) -> dict[float, float]:
    """By rate, the epochs to train with it.

    First is the best one for the hardest target that any reaches, with all epochs; then those that are better for
    easier targets.
    """
    chosen = json.loads(CHOSEN.read_text(encoding="utf-8"))[name][kind][str(workers)]
    *easier, hardest = (chosen[target] for target in sorted(chosen, key=float, reverse=True))
    most = float(_TASK[name]["epochs"])
    epochs = {float(hardest["rate"]): most}
    for one in easier:
        epochs[one["rate"]] = max(epochs.get(one["rate"], 0.0), min(ENOUGH * one["epochs"], most))
    return epochs


def is_sgd(name: str, kind: str) -> bool:
    """Whether the optimiser is SGD and not Adam."""
    return name == "ml1m" and kind == "dense"


def ddp_task(name: str, kind: str, workers: int, rate: float) -> dict[str, Any]:
    """Fields of a task of `ddp.train`, ``workers`` among them."""
    task = {**_TASK[name], "workers": workers, "sparse": kind == "sparse"}
    task["eval_every"] //= workers
    if is_sgd(name, kind):
        task["momentum"] = MOMENTUM
    return task | {"learning_rate": rate}


def ddp_label(name: str, kind: str, workers: int) -> str:
    """The name of such a contender."""
    optimizer = "Nesterov" if is_sgd(name, kind) else "SparseAdam" if kind == "sparse" else "Adam"
    return f"PyTorch DDP, P={workers}, {kind} gradients, {optimizer}"


def ddp_tasks(name: str, kind: str, workers: int) -> list[dict[str, Any]]:
    """The tasks of such a contender, one for each of its `chosen_rates`."""
    rates = chosen_rates(name, kind, workers)
    return [ddp_task(name, kind, workers, rate) | {"epochs": epochs} for rate, epochs in rates.items()]


def settings_of(job: dict[str, Any]) -> dict[str, Any]:
    """What a job of ours is told, for a table: of the optimiser and the model all that is not their default."""
    model, optimizer = (
        ", ".join(
            f"{field.name}={getattr(one, field.name)}"
            for field in dataclasses.fields(one)
            if getattr(one, field.name) != field.default
        )
        for one in (job["model"], job["optimizer"])
    )
    rest = {name: value for name, value in job.items() if name not in ("model", "optimizer", "eval_every")}
    optimizer = f"{type(job['optimizer']).__name__}({optimizer})"
    return {"model": f"{type(job['model']).__name__}({model})", "optimizer": optimizer, **rest}
