"""A new algorithm that contributes nothing: jobs check it, workers carry it out, and it changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from mlless_nb import BSP, SGD, JobError, LogisticRegression, ScaleIn, Stop, TrainingJob, datasets
from mlless_nb.job import algorithm as specifications
from mlless_nb.job.algorithm import Algorithm, algorithm_from_json, register_algorithm
from mlless_nb.simulate import TWO_CORES, simulate
from mlless_nb.validation import specification
from mlless_nb.worker.algorithms import Contribution, Share, WorkerAlgorithm, base, implements


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch) -> type[Algorithm]:
    """The toy, registered for one test."""
    monkeypatch.setattr(specifications, "_registered", dict(specifications._registered))
    monkeypatch.setattr(base, "_implemented", dict(base._implemented))

    @register_algorithm
    @specification
    @dataclass(frozen=True)
    class Idle(Algorithm):
        rows: int = 1
        kind: ClassVar[str] = "idle"

        def check(self, job: Any) -> None:
            if self.rows > job.data.shape[0]:
                raise JobError("Idle.rows", self.rows, f"at most {job.data.shape[0]}")

    @implements(Idle)
    class Idles(WorkerAlgorithm):
        finished: ClassVar[set[tuple[int, int]]] = set()

        def contribute(self, minibatches: Sequence[Any], share: Share) -> Contribution:
            setting = self.setting
            rows = np.arange(setting.spec.rows, dtype=np.int32)  # type: ignore[attr-defined]
            loss = sum(setting.model.evaluate(setting.params, minibatch, 0.0) for minibatch in minibatches)
            return Contribution(rows, np.zeros((len(rows), setting.params.shape[1]), np.float32), loss)

        def finish(self, step: int, n_active: int) -> None:
            self.finished.add((step, n_active))

    return Idle


def job(**changes: Any) -> TrainingJob:
    """A small job."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 4)).astype(np.float32)
    y = (X[:, 0] > 0.2).astype(np.float32)
    fields: dict[str, Any] = {
        "sync": BSP(),
        "workers": 3,
        "minibatch": 50,
        "stop": Stop(steps=40),
        "scale_in": ScaleIn.off(),
        "validation": datasets.csr(X, y),
        **changes,
    }
    return TrainingJob(LogisticRegression(), SGD(0.2), datasets.csr(X, y), **fields)


def test_a_registered_algorithm_is_carried_out(idle: type[Algorithm]) -> None:
    run = simulate(job(algorithm=idle(2)), TWO_CORES)  # type: ignore[call-arg]
    assert run.status == "finished", run.reason
    losses = run.history["validation_loss"]
    assert losses[np.isfinite(losses)].tolist() == pytest.approx([np.log(2.0)] * np.isfinite(losses).sum())
    assert base._implemented["idle"].finished == {(step, 3) for step in range(1, 41)}  # type: ignore[attr-defined]


def test_a_registered_algorithm_is_known_everywhere(idle: type[Algorithm]) -> None:
    spec = idle(3)  # type: ignore[call-arg]
    assert algorithm_from_json(spec.to_json()) == spec
    with pytest.raises(JobError, match=r"Idle\.rows=9: must be at most 4"):
        job(algorithm=idle(9))  # type: ignore[call-arg]
    others = r"GradientAveraging\(\), .*ADMM\(\.\.\.\), .*EM\(\) for KMeans, .*"
    with pytest.raises(JobError, match=rf"algorithm='idle': must be {others}Idle\(\.\.\.\) or None"):
        job(algorithm="idle")


def test_what_is_no_algorithm_is_refused_by_name() -> None:
    with pytest.raises(JobError, match="algorithm='admm'"):
        job(algorithm="admm")
    with pytest.raises(JobError, match=r"'psgd'.*'gradient-averaging'"):
        algorithm_from_json({"kind": "psgd"})
