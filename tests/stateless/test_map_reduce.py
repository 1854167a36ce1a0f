"""Map-reduce runs on the embedded default: the bits of workers under BSP, lost functions, budgets, and what is left."""

from __future__ import annotations

import os
import re

import numpy as np
import pytest
from engine.jobs import digest, wait_for_step
from engine.test_faults import services_of, traces_of
from stateless.runs import PATIENCE_S, finish, job, losses, one_lost

import mlless_nb
from mlless_nb import BudgetError, Stop

pytestmark = pytest.mark.usefixtures("shared_runtime")
LONG = Stop(steps=1_000_000)


@pytest.mark.parametrize("model", ["PMF", "logistic regression"])
def test_the_bits_and_losses_are_those_of_workers(model: str) -> None:
    ours, theirs = finish(job("map-reduce", model)), finish(job("workers", model))
    assert ours.status == theirs.status == "finished", ours.reason
    assert ours.reason == theirs.reason
    assert digest(ours) == digest(theirs)
    # The supervisor of workers adds their sums exactly, so that the last digit may differ.
    np.testing.assert_allclose(losses(ours), losses(theirs), rtol=1e-14)
    assert ours.best.step == theirs.best.step  # type: ignore[union-attr]
    assert ours.cost.workers > 0
    assert ours.cost["reducers"] > 0
    assert ours.cost.storage > 0
    assert ours.cost.total == ours.telemetry.state.spent_usd
    assert ours.telemetry.state.events[-1].text.endswith("0 functions, 0 keys, 0 queues left")


@pytest.mark.parametrize("stage", ["update", "reduce", "evaluate"])
def test_a_lost_function_is_invoked_again_and_leaves_the_same_bits(stage: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        killed = one_lost(stage, patch)
        run = finish(job("map-reduce"))
    assert run.status == "finished", run.reason
    assert killed
    assert any(entry["error"] == "lost" and entry["stage"] == stage for entry in run.trace)
    assert digest(run) == digest(finish(job("map-reduce")))


def test_a_run_is_stopped_between_steps_and_leaves_nothing() -> None:
    run = mlless_nb.train(job("map-reduce", stop=LONG))
    wait_for_step(run, 1)
    folder, traces = services_of(run).launcher.folder_of(f"runs/{run.id}"), traces_of(run)
    run.budget = 5.0
    run.stop()
    assert run.wait(PATIENCE_S) == "stopped"
    assert run.budget == 5.0
    assert run.model.predict([0], [0]).shape == (1,)
    assert not [path for path in (folder, *traces) if os.path.exists(path)]
    assert {entry["stage"] for entry in run.trace} == {"update", "reduce", "evaluate"}


def test_a_budget_ends_a_run_before_it_is_exceeded() -> None:
    with pytest.raises(BudgetError) as refused:
        mlless_nb.train(job("map-reduce", budget=1e-6))
    least = float(re.search(r"at least (\S+) ", refused.value.valid)[1])  # type: ignore[index]
    run = finish(job("map-reduce", budget=1.2 * least, stop=LONG))
    assert run.status == "capped", run.reason
    assert 0 < run.cost.total <= 1.2 * least


def test_an_error_of_a_function_ends_the_run_with_its_reason() -> None:
    run = mlless_nb.train(job("map-reduce", stop=LONG))
    wait_for_step(run, 1)
    launcher = services_of(run).launcher
    launcher.objects.delete([key for key in launcher.objects.list("datasets/") if key])
    assert run.wait(PATIENCE_S) == "failed"
    assert "packed data" in run.reason
