"""Model averaging and ADMM on real servers: two runs are one, bit for bit, with several workers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from engine.jobs import PATIENCE_S, finish, job

import mlless_nb
from mlless_nb import ADMM, BSP, SGD, Adam, GradientAveraging, LogisticRegression, ModelAveraging, Stop, datasets


def clicks(**changes: Any) -> dict[str, Any]:
    """1,800 training rows in 18 minibatches for three workers."""
    fields: dict[str, Any] = {
        "model": LogisticRegression(l2=1e-3),
        "data": datasets.synthetic_clicks(2000, n_features=50, seed=1),
        "sync": BSP(),
        "workers": 3,
        "minibatch": 100,
        "schedule": "constant",
    }
    return fields | changes


@pytest.mark.parametrize(
    ("algorithm", "optimizer", "pattern"),
    [
        (ModelAveraging(), Adam(0.02, decay=0.1), "broadcast"),
        (ADMM(0.05, scans=2), SGD(0.5, momentum=0.9), "scatter-reduce"),
    ],
    ids=["model averaging", "ADMM"],
)
def test_two_runs_are_one_bit_for_bit(algorithm: Any, optimizer: Any, pattern: str) -> None:
    fields = clicks(algorithm=algorithm, optimizer=optimizer, pattern=pattern)
    whole = finish(job(**fields, stop=Stop(steps=6)))
    half = finish(job(**fields, stop=Stop(steps=3)))
    rest = mlless_nb.train(job(**fields, stop=Stop(steps=3)), resume=half)
    rest.wait(PATIENCE_S)
    assert rest.status == "finished", rest.reason
    losses = np.concatenate([run.history["loss"] for run in (half, rest)])
    np.testing.assert_array_equal(losses, whole.history["loss"])
    for name, array in whole.last_model.params.items():
        np.testing.assert_array_equal(rest.last_model.params[name], array)
    if isinstance(algorithm, ADMM):
        assert np.isfinite(rest.history["primal_residual"][:-1]).all()
        assert np.isfinite(mlless_nb.attach(rest.id).history["dual_residual"][:-1]).all()
        other = mlless_nb.train(job(**fields | {"workers": 2}, stop=Stop(steps=1)), resume=half)
        other.wait(PATIENCE_S)
        assert other.status == "finished", other.reason
        assert "The workers begin without state" in "\n".join(one.text for one in other.telemetry.state.events)


@pytest.mark.long
def test_another_algorithm_begins_without_the_state() -> None:
    fields = clicks(optimizer=Adam(0.02), stop=Stop(steps=2))
    half = finish(job(**fields, algorithm=ModelAveraging()))
    rest = mlless_nb.train(job(**fields, algorithm=GradientAveraging()), resume=half)
    rest.wait(PATIENCE_S)
    assert rest.status == "finished", rest.reason
    told = "\n".join(one.text for one in rest.telemetry.state.events)
    assert "The workers begin without state: that of" in told
    assert "was of model averaging, 3 workers" in told
