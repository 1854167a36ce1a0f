"""Event-driven runs on the embedded default: functions that invoke each other, and what happens when one is lost."""

from __future__ import annotations

import os
import re

import numpy as np
import pytest
from engine.jobs import digest, wait_for_step
from engine.test_faults import services_of, traces_of
from stateless.runs import PATIENCE_S, finish, job, losses, one_lost

import mlless_nb
from mlless_nb import BudgetError, JobError, Stop
from mlless_nb.exchange import RedisCoordinator

pytestmark = pytest.mark.usefixtures("shared_runtime")
LONG = Stop(steps=1_000_000)


@pytest.mark.parametrize(("model", "reducers"), [("PMF", 3), ("logistic regression", 1)])
def test_the_bits_and_losses_are_those_of_workers(model: str, reducers: int) -> None:
    ours, theirs = finish(job("events", model, reducers=reducers)), finish(job("workers", model))
    assert ours.status == theirs.status == "finished", ours.reason
    assert ours.reason == theirs.reason
    assert digest(ours) == digest(theirs)
    # The supervisor of workers adds their sums exactly, so that the last digit may differ.
    np.testing.assert_allclose(losses(ours), losses(theirs), rtol=1e-14)
    assert ours.cost.workers > 0
    assert ours.cost["reducers"] > 0
    assert ours.telemetry.state.events[-1].text.endswith("0 functions, 0 keys, 0 queues left")
    of_step = [entry for entry in ours.trace if entry["step"] == 2]
    counts = {stage: sum(entry["stage"] == stage for entry in of_step) for stage in ("launch", "update", "reduce")}
    assert counts == {"launch": 1, "update": 3, "reduce": reducers}
    assert {tuple(entry["by"]) for entry in of_step if entry["stage"] == "update"} == {("launch", 0)}
    assert "merger" in ours.workflow(2).flow


@pytest.mark.parametrize("stage", ["launch", "update", "reduce", "merge", "evaluate"])
def test_a_lost_function_is_invoked_again_and_leaves_the_same_bits(stage: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        killed = one_lost(stage, patch)
        run = finish(job("events", reducers=2))
    assert run.status == "finished", run.reason
    assert killed
    assert any(entry["error"] and entry["stage"] == stage for entry in run.trace)
    assert digest(run) == digest(finish(job("workers")))


def test_a_run_is_stopped_between_steps_and_leaves_nothing() -> None:
    run = mlless_nb.train(job("events", stop=LONG))
    wait_for_step(run, 1)
    folder, traces = services_of(run).launcher.folder_of(f"runs/{run.id}"), traces_of(run)
    run.budget = 5.0
    run.stop()
    assert run.wait(PATIENCE_S) == "stopped"
    assert run.budget == 5.0
    assert run.model.predict([0], [0]).shape == (1,)
    assert not [path for path in (folder, *traces) if os.path.exists(path)]


def test_a_budget_ends_a_run_before_it_is_exceeded() -> None:
    with pytest.raises(BudgetError) as refused:
        mlless_nb.train(job("events", budget=1e-6))
    least = float(re.search(r"at least (\S+) ", refused.value.valid)[1])  # type: ignore[index]
    run = finish(job("events", budget=1.2 * least, stop=LONG))
    assert run.status == "capped", run.reason
    assert 0 < run.cost.total <= 1.2 * least


def test_more_reducers_than_rows_are_refused() -> None:
    with pytest.raises(JobError, match="rows of the model's table"):
        job("events", "logistic regression", reducers=100)
    with pytest.raises(JobError, match="reducers"):
        job("map-reduce", reducers=2)


def test_a_counter_ignores_duplicates(redis_url: str) -> None:
    log = RedisCoordinator([redis_url], "counted", "first")
    try:
        assert [log.count("1-update", index) for index in (0, 1, 1, 0, 2)] == [
            (True, 1),
            (True, 2),
            (False, 2),
            (False, 2),
            (True, 3),
        ]
        assert log.delete() == 1
    finally:
        log.close()
