"""The papers' own scale-in tuner: one removal at the knee, then one per interval while the projection holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from supervisor.policy.curves import PRICES, STEP_S, hyperbola, live

from mlless_nb import JobError, ScaleIn
from mlless_nb.supervisor.policy.decision import Decision
from mlless_nb.supervisor.policy.loss_history import History
from mlless_nb.supervisor.policy.paper_scale_in import PaperScaleIn
from mlless_nb.supervisor.policy.policy import make_tuner


class Run:
    """The papers' tuner at work on a generated run."""

    def __init__(self, n_workers: int = 8, **fields: Any) -> None:
        self.history = History()
        spec = ScaleIn(policy="paper", **fields).to_json()
        self.tuner = make_tuner(spec, n_workers, {}, PRICES, self.history)
        assert isinstance(self.tuner, PaperScaleIn)
        self.decisions: list[Decision] = []

    def __call__(self, row: list[float | None]) -> int:
        self.history.append(row)
        found = self.tuner.decide()
        self.decisions += found
        return sum(decision.kind == "remove" for decision in found)

    @property
    def removed_at(self) -> list[int]:
        """The steps at which a worker was removed."""
        return [decision.step for decision in self.decisions if decision.kind == "remove"]


def test_one_worker_goes_at_the_knee_and_one_more_each_interval() -> None:
    interval_s = 30 * STEP_S
    run = Run(interval_s=interval_s, horizon_s=10 * STEP_S)
    workers = live(lambda step, _: hyperbola(step), 400, 8, run)
    knee = next(decision.step for decision in run.decisions if decision.kind == "knee")
    assert run.removed_at[0] == knee
    # Losses do not depend on the workers here, so every judgement allows a removal.
    times = [decision.time_s for decision in run.decisions if decision.kind == "remove"]
    assert min(np.diff(times)) >= interval_s
    assert max(np.diff(times)) <= interval_s + 8 * STEP_S
    assert workers[-1] < 4


def test_a_loss_that_gets_worse_than_the_threshold_keeps_the_workers() -> None:
    def loss(step: int, n_workers: int) -> float:
        return hyperbola(step) * (1.0 + 0.1 * (8 - n_workers))

    for threshold, n_removed in ((0.02, 1), (0.15, 2)):
        run = Run(interval_s=30 * STEP_S, horizon_s=10 * STEP_S, threshold=threshold)
        live(loss, 400, 8, run)
        assert len(run.removed_at) == n_removed
        kept = [decision for decision in run.decisions if decision.kind == "keep"]
        assert len(kept) == 1
        assert "worse by" in kept[0].text
        assert kept[0].numbers["s"] == pytest.approx(0.1 * n_removed, abs=0.03)


def test_the_reference_is_frozen_at_the_knee() -> None:
    run = Run(interval_s=30 * STEP_S, horizon_s=10 * STEP_S, threshold=1.0)
    live(lambda step, _: hyperbola(step), 300, 8, run)
    reference = run.tuner._reference
    assert reference is not None
    assert reference.newest == run.removed_at[0]


def test_it_needs_a_global_minibatch_that_shrinks() -> None:
    assert ScaleIn(policy="paper").global_minibatch == "shrink"
    assert ScaleIn().global_minibatch == "keep"
    with pytest.raises(JobError, match=r"global_minibatch.*'shrink'"):
        ScaleIn(policy="paper", global_minibatch="keep")
    with pytest.raises(JobError, match=r"ScaleIn\.policy"):
        ScaleIn(policy="papers")
