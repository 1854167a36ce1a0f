"""Small jobs that the engine's tests run on the embedded default, and how to look at what they leave."""

from __future__ import annotations

import functools
import hashlib
from typing import Any

import numpy as np

import mlless_nb
from mlless_nb import ISP, PMF, SGD, ScaleIn, Stop, TrainingJob, TrainingRun, datasets
from mlless_nb.models import FittedModel, PMFModel

#: Generous for a slow machine that is busy with other things; a run takes one to three seconds.
PATIENCE_S = 180.0


def ratings(n: int = 4000) -> Any:
    """Synthetic ratings, 200 users x 100 items."""
    return datasets.synthetic_ratings(200, 100, n, rank=4, seed=1)


def job(**changes: Any) -> TrainingJob:
    """A PMF job of 20 steps at 4 workers, who all stay, unless ``changes`` say otherwise."""
    fields: dict[str, Any] = {
        "model": PMF(rank=4, l2=0.02, init_scale=0.1),
        "optimizer": SGD(learning_rate=2.0, momentum=0.9, nesterov=True),
        "data": ratings(),
        "sync": ISP(0.7),
        "workers": 4,
        "minibatch": 200,
        "stop": Stop(steps=20),
        "scale_in": ScaleIn.off(),  # a worker that leaves by the clock would make two runs differ
    }
    return TrainingJob(**(fields | changes))


def finish(job: TrainingJob) -> TrainingRun:
    """Train ``job`` to its end."""
    run = mlless_nb.train(job)
    run.wait(PATIENCE_S)
    assert not run.telemetry.state.is_live, run.telemetry.state
    return run


@functools.cache
def cost_of_a_start() -> float:
    """Dollars that a run of one step costs here, and those of a machine that is quick: three times that is a budget."""
    return max(float(finish(job(stop=Stop(steps=1))).cost.total), 0.0002)


def wait_for_step(run: TrainingRun, step: int) -> None:
    """Wait until ``run`` has done ``step``."""
    seen = 0
    while run.telemetry.state.step < step and run.telemetry.state.is_live:
        seen = run.telemetry.wait_for_change(seen, PATIENCE_S)
    assert run.telemetry.state.step >= step, run.reason


def rmse_in_training(model: FittedModel, ratings: Any) -> float:
    """RMSE on ``ratings`` as workers compute it, of the parameters alone.

    `FittedModel.predict` sets the factors of users and items without training ratings to 0; workers keep their initial
    values.
    """
    params = {name: array for name, array in model.params.items() if not name.startswith("seen_")}
    predicted = PMFModel(params).predict(ratings.users, ratings.items)
    return float(np.sqrt(np.mean((ratings.ratings - predicted) ** 2)))


def digest(run: TrainingRun) -> str:
    """SHA-256 of the model's parameters."""
    sha = hashlib.sha256()
    for name, array in sorted(run.model.params.items()):
        sha.update(name.encode() + np.ascontiguousarray(array).tobytes())
    return sha.hexdigest()
