"""Stateless runs on the embedded default: the bits of workers under BSP, lost functions, budgets, and what is left."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import redis
from engine.jobs import PATIENCE_S, digest, finish, wait_for_step
from engine.test_faults import eventually, left_of, services_of, traces_of
from stateless.runs import job, keep_the_driver_away, lose_one_of_each_stage, losses, stall_one_update

import mlless_nb
from mlless_nb import BudgetError, JobError, Stop, TrainingRun
from mlless_nb.driver import stateless_driver
from mlless_nb.driver.backends.launcher import LithopsLauncher
from mlless_nb.exchange import RedisCoordinator
from mlless_nb.stateless.run import StatelessRun

pytestmark = pytest.mark.usefixtures("shared_runtime")
LONG = Stop(steps=1_000_000)
STAGES = {"map-reduce": {"update", "reduce"}, "events": {"launch", "update", "reduce", "merge"}}


def check_alike(ours: TrainingRun, theirs: TrainingRun) -> None:
    """Check that two runs, the second one of workers, trained the same model over the same losses."""
    assert ours.status == theirs.status == "finished", ours.reason
    assert ours.reason == theirs.reason
    assert digest(ours) == digest(theirs)
    # The supervisor of workers adds their sums exactly, so that the last digit may differ.
    np.testing.assert_allclose(losses(ours), losses(theirs), rtol=1e-14)
    assert ours.best is not None
    assert theirs.best is not None
    assert ours.best.step == theirs.best.step


def test_the_bits_and_losses_of_logistic_regression_are_those_of_workers() -> None:
    theirs = finish(job("workers", "logistic regression"))
    for execution, more in (("map-reduce", {}), ("events", {"reducers": 3})):
        ours = finish(job(execution, "logistic regression", **more))
        check_alike(ours, theirs)
        assert min(ours.cost.workers, ours.cost["reducers"], ours.cost.storage, ours.cost.redis) > 0
        assert ours.cost.total == ours.telemetry.state.spent_usd
        assert {entry["stage"] for entry in ours.trace} == {*STAGES[execution], "evaluate"}
        assert "worker" in ours.workflow().gantt
    of_step = [entry for entry in ours.trace if entry["step"] == 2]
    by = {stage: {entry["by"][0] for entry in of_step if entry["stage"] == stage} for stage in STAGES["events"]}
    counts = {stage: sum(entry["stage"] == stage for entry in of_step) for stage in by}
    assert by == {"launch": {"merge"}, "update": {"launch"}, "reduce": {"update"}, "merge": {"reduce"}}
    assert counts == {"launch": 1, "update": 3, "reduce": 3, "merge": 1}


@pytest.mark.parametrize(
    "model",
    ["PMF", *(pytest.param(name, marks=pytest.mark.long) for name in ("softmax", "logistic regression"))],
)
def test_a_lost_function_of_any_stage_is_replaced_and_the_bits_stay(model: str) -> None:
    stop = Stop(steps=6)
    theirs = finish(job("workers", model, stop=stop))
    for execution, more in (("map-reduce", {}), ("events", {"reducers": 2})):
        stages, lost = {*STAGES[execution], "evaluate"}, set[str]()
        for _ in range(10):  # on a busy machine a function may have ended before it is killed
            if lost != stages:
                with pytest.MonkeyPatch.context() as patch:
                    lose_one_of_each_stage(patch, lost)
                    ours = finish(job(execution, model, stop=stop, **more))
                lost |= {entry["stage"] for entry in ours.trace if entry["error"]}
                check_alike(ours, theirs)
                assert ours.telemetry.state.events[-1].text.endswith("Everything is shut down")
                assert ours.left
                assert not any(ours.left.values()), ours.left
        assert lost == stages


def test_no_step_needs_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = finish(job("workers"))
    is_done = keep_the_driver_away(monkeypatch, 3)
    ours = finish(job("events", reducers=2))
    assert is_done == [True]
    check_alike(ours, theirs)
    assert ours.history["step"].tolist() == [1.0, 2.0, 3.0]
    assert not [entry for entry in ours.trace if entry["attempt"]]


def test_a_function_is_late_after_a_multiple_of_the_longest_so_far() -> None:
    ours = SimpleNamespace(money=SimpleNamespace(start_s=2.0), reports=SimpleNamespace(longest_s={"update": 25.0}))
    assert StatelessRun.patience_s(ours, "update") == 100.0  # type: ignore[arg-type]
    assert StatelessRun.patience_s(ours, "reduce") == 30.0  # type: ignore[arg-type]
    ours.money.start_s = 60.0  # a slow start is not late
    assert StatelessRun.patience_s(ours, "reduce") == 90.0  # type: ignore[arg-type]


@pytest.mark.parametrize("execution", ["map-reduce", "events"])
def test_a_straggler_is_overtaken_by_another_function(execution: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stateless_driver, "LAST_FUNCTIONS_S", 0.2)
    is_overtaken = False
    for _ in range(10):  # on a busy machine a function may have done its part before it is stopped
        if not is_overtaken:
            with pytest.MonkeyPatch.context() as patch:
                stall_one_update(patch)
                run = finish(job(execution, stop=Stop(steps=2)))
            assert run.status == "finished", run.reason
            assert run.telemetry.state.events[-1].text.endswith("Everything is shut down")
            is_overtaken = any(entry["attempt"] == 1 and not entry["error"] for entry in run.trace)
    assert is_overtaken


CELL = """
import sys, time
sys.path.insert(0, {tests!r})
import mlless_nb
from engine.jobs import wait_for_step
from engine.test_faults import group_of, traces_of
from mlless_nb import Stop
from stateless.runs import job
run = mlless_nb.train(job({execution!r}, stop=Stop(steps=10**6), redis={redis!r}))
wait_for_step(run, 2)
print(*traces_of(run), flush=True)
time.sleep(600)
"""


@pytest.mark.long
@pytest.mark.parametrize("execution", ["map-reduce", "events"])
def test_nothing_is_left_when_the_driver_is_killed(execution: str, redis_url: str, tmp_path: Path) -> None:
    code = CELL.format(tests=str(Path(__file__).parents[1]), execution=execution, redis=redis_url)
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    assert child.stdout is not None
    traces = child.stdout.readline().split()
    assert traces
    child.kill()
    child.wait(30)
    assert eventually(lambda: not left_of([path for path in traces if "/runs/" in path])), left_of(traces)
    assert eventually(lambda: not redis.Redis.from_url(redis_url).keys("*"))


@pytest.mark.long
def test_an_event_driven_run_over_rabbitmq(rabbitmq_url: str) -> None:
    run = finish(job("events", bus=rabbitmq_url))
    assert run.status == "finished", run.reason
    assert run.cost.broker > 0


@pytest.mark.long
def test_a_stateless_run_resumes_from_workers_with_their_state_of_the_optimiser() -> None:
    earlier = finish(job("workers"))
    resumed = [mlless_nb.train(job(execution), resume=earlier) for execution in ("workers", "map-reduce", "events")]
    assert [run.wait(PATIENCE_S) for run in resumed] == ["finished"] * 3
    assert len({digest(run) for run in resumed}) == 1


@pytest.mark.long
def test_functions_invoke_each_other_through_lithops(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a cloud; on one machine each function then waits for those that it has started."""

    def without_host(self: Any, services: Any, folder: str, host: Any) -> None:
        stateless_driver.LithopsFunctions.__init__(self, services, folder)
        self._host = None

    monkeypatch.setattr(LithopsLauncher, "n_cores", 0)
    monkeypatch.setattr(stateless_driver.HostedFunctions, "__init__", without_host)
    monkeypatch.setattr(stateless_driver.HostedFunctions, "are_gone", lambda self: False)
    two = Stop(steps=2)
    assert digest(finish(job("events", stop=two))) == digest(finish(job("workers", stop=two)))


@pytest.mark.parametrize("execution", [pytest.param("map-reduce", marks=pytest.mark.long), "events"])
def test_a_run_is_stopped_between_steps_and_leaves_nothing(execution: str) -> None:
    run = mlless_nb.train(job(execution, stop=LONG))
    wait_for_step(run, 1)
    folder, traces = services_of(run).launcher.folder_of(f"runs/{run.id}"), traces_of(run)
    run.budget = 5.0
    run.stop()
    assert run.wait(PATIENCE_S) == "stopped"
    assert run.budget == 5.0
    assert run.model.predict([0], [0]).shape == (1,)
    assert not [path for path in (folder, *traces) if os.path.exists(path)]


@pytest.mark.parametrize("execution", ["map-reduce", pytest.param("events", marks=pytest.mark.long)])
def test_a_budget_ends_a_run_before_it_is_exceeded(execution: str) -> None:
    with pytest.raises(BudgetError) as refused:
        mlless_nb.train(job(execution, budget=1e-6))
    least = float(re.search(r"at least (\S+) ", refused.value.valid)[1])  # type: ignore[index]
    run = finish(job(execution, budget=1.1 * least, stop=LONG))
    assert run.status == "capped", run.reason
    assert 0 < run.cost.total <= 1.1 * least


def test_an_error_of_functions_ends_the_run_with_its_reason() -> None:
    run = mlless_nb.train(job("events", stop=LONG))
    wait_for_step(run, 1)
    objects = services_of(run).launcher.objects
    objects.delete(objects.list("datasets/"))
    assert run.wait(PATIENCE_S) == "failed"
    assert "packed data" in run.reason
    assert run.model.predict([0], [0]).shape == (1,)


def test_reducers_are_for_event_driven_runs_with_as_many_rows() -> None:
    with pytest.raises(JobError, match="rows of the model's table"):
        job("events", "logistic regression", reducers=100)
    with pytest.raises(JobError, match="reducers"):
        job("map-reduce", reducers=2)


def test_a_counter_ignores_duplicates(redis_url: str) -> None:
    log = RedisCoordinator([redis_url], "counted", "first")
    counted = [log.count("1-update", index) for index in (0, 1, 1, 0, 2)]
    assert counted == [(True, 1), (True, 2), (False, 2), (False, 2), (True, 3)]
    assert log.delete() == 1
    log.close()
