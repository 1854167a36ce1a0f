"""Ten generations of functions: each slot is handed over again and again, in real processes."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
from engine.jobs import PATIENCE_S, digest, finish, job
from engine.test_faults import services_of

import mlless_nb
from mlless_nb import BSP, SGD, NumpyModel, Stop, datasets
from mlless_nb.driver.backends.launcher import LithopsLauncher

LIFETIME_S, GENERATIONS, STEPS = 20.0, 10, 4000
#: Seconds of a step, so that the run outlasts the last supervisor of so many: each lives for at most 16 s.
PACE_S = 0.05


class Paced:
    """Least squares; where the environment says so, a step takes a while."""

    def parameters(self, n_features: int, seed: int) -> dict[str, Any]:
        return {"w": np.zeros(n_features)}

    def loss(self, params: dict[str, Any], X: Any, y: Any) -> Any:
        return 0.5 * np.mean((X @ params["w"] - y) ** 2)

    def gradients(self, params: dict[str, Any], X: Any, y: Any) -> dict[str, Any]:
        import os
        import time

        time.sleep(float(os.environ.get("PACE_S", "0")))
        return {"w": X.T @ (X @ params["w"] - y) / len(y)}


def paced() -> mlless_nb.TrainingJob:
    """The job."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(1200, 5)).astype(np.float32)
    fields: dict[str, Any] = {"model": NumpyModel(Paced), "data": datasets.csr(X, X @ rng.normal(size=5))}
    fields |= {"optimizer": SGD(0.001), "workers": 2, "minibatch": 60, "sync": BSP(), "stop": Stop(steps=STEPS)}
    return job(**fields)


@pytest.mark.proof
def test_ten_generations_of_functions_have_the_model_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, make = finish(paced()), LithopsLauncher.__init__

    def made(self: LithopsLauncher, *arguments: Any, **options: Any) -> None:
        make(self, *arguments, **options)
        self.lifetime_s = LIFETIME_S

    monkeypatch.setattr(LithopsLauncher, "__init__", made)
    monkeypatch.setenv("PACE_S", str(PACE_S))
    run = mlless_nb.train(paced())
    telemetry, seen, holders = run.telemetry, 0, {slot: set[str]() for slot in (-1, 0, 1)}
    while telemetry.state.is_live:
        seen = telemetry.wait_for_change(seen, PATIENCE_S)
        with contextlib.suppress(Exception):  # the run ends meanwhile
            for slot, holder in services_of(run).log.at_work(list(holders)).items():
                holders[slot].add(holder)
    told = [event.text for event in telemetry.state.events]
    assert run.status == "finished", run.reason
    assert min(len(held) - 1 for held in holders.values()) >= GENERATIONS, (holders, told)
    assert sum("handed over" in text for text in told) >= 2 * GENERATIONS
    assert not any("lost" in text or "replaced" in text for text in told), told
    assert digest(run) == digest(plain)
    assert run.history["step"].tolist() == list(range(1, STEPS + 1))
