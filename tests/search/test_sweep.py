"""Sweeps of real runs on this machine: early stops, the common cap, kills, interrupts, errors before a start."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import signal
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from engine.jobs import PATIENCE_S, cost_of_a_start
from engine.test_faults import function_processes, group_of

import mlless_nb
from mlless_nb import (
    BSP,
    PMF,
    SGD,
    BudgetError,
    CommandError,
    JobError,
    JobWarning,
    RunError,
    ServiceError,
    Stop,
    Sweep,
    TrainingJob,
    TrainingRun,
    choice,
    datasets,
    log_uniform,
)
from mlless_nb.driver import spending
from mlless_nb.driver.runs import handles
from mlless_nb.money.ledger import Ledger
from mlless_nb.search import runner
from mlless_nb.search.launch import sweeps
from mlless_nb.search.trial import Trial

pytestmark = pytest.mark.usefixtures("shared_runtime")

JOB = TrainingJob(
    PMF(rank=4, l2=0.02),
    SGD(1.0, momentum=0.9, nesterov=True),
    datasets.synthetic_ratings(400, 200, 20_000, rank=4, seed=1),
    sync=BSP(),
    workers=1,
    minibatch=500,
    stop=Stop(epochs=270),  # a weak trial is stopped before its end on a busy machine, too
    eval_every=36,
)
RATES = {"learning_rate": choice(0.001, 1.0)}


@pytest.fixture(autouse=True)
def own_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr(spending, "_in_force", {})
    yield
    assert [run.name for run in handles() if run.telemetry.state.is_live] == []


def ended(sweep: Sweep) -> str:
    status = sweep.wait(PATIENCE_S)
    assert not sweep.is_live, sweep
    return status


def assert_within(sweep: Sweep, cap_usd: float) -> None:
    """The bills of all trials are within the cap, and nothing of the sweep is left in the ledger of budgets."""
    bills = [mlless_nb.attach(trial.run_id).cost.total for trial in sweep.trials if trial.run_id]
    assert sum(bills) <= cap_usd
    assert sweep.spent == pytest.approx(sum(bills), abs=2e-9)
    with Ledger().transaction() as book:
        assert not [name for kind, name in book.budgets if kind == "sweep"]
        assert not [run.name for run in book.runs.values() if run.spent_nusd is None]


def test_weak_trials_stop_early_and_the_best_model_comes_back() -> None:
    session = mlless_nb.session(budget=0.05)
    sweep = mlless_nb.sweep(JOB, RATES, budget=0.02, halving=3, name="rates", seed=3)
    assert sweep.status == "running"
    with pytest.raises(CommandError, match="a sweep called 'rates' is live"):
        mlless_nb.sweep(JOB, RATES, budget=0.01, name="rates")
    assert ended(sweep) == "finished", sweep.reason
    assert (len(sweep.trials), sweep.sampler) == (2, "grid")
    best = sweep.best_trial
    assert best.settings == {"learning_rate": 1.0}
    assert best.status == "finished"
    assert sweep.best.name == best.name
    assert sweep.best.model.predict([0], [0]).shape == (1,)
    assert [trial.status for trial in sweep.trials] == ["finished", "pruned"]
    weak = sweep.trials[1]
    assert re.fullmatch(r"others were better at epoch \d+; it ended at epoch [\d.]+", weak.reason)
    assert_within(sweep, 0.02)
    assert session.spent == pytest.approx(sweep.spent, abs=2e-9)
    assert session.reserved == 0
    listed = mlless_nb.runs(sweep="rates")
    assert [run.name for run in listed] == ["rates-1", "rates-2"]
    assert {run.sweep for run in listed} == {sweep.id}
    assert [(run.status, run.reason) for run in listed] == [(trial.status, trial.reason) for trial in sweep.trials]
    assert list(sweep.to_pandas())[-1] == "learning_rate"
    with pytest.raises(CommandError, match="has ended"):
        sweep.budget = 0.1


def test_far_too_many_workers_are_told_once_before_any_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner.Runner, "start", lambda self: self._sweep._end("stopped", "by the test"))
    workers = {"workers": choice(2, 20, 3), "learning_rate": log_uniform(0.1, 1.0)}
    with pytest.warns(JobWarning, match=r"^workers=20: \d workers? would be quicker and cheaper") as caught:
        mlless_nb.sweep(JOB, workers, budget=0.02)
    assert [each.filename for each in caught] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mlless_nb.sweep(JOB, RATES, budget=0.02, halving="off")
        n_sweeps = len(sweeps())
        with pytest.raises(JobWarning):
            mlless_nb.sweep(JOB, workers, budget=0.02)
        assert len(sweeps()) == n_sweeps


@pytest.mark.parametrize(
    ("job", "changes", "error", "says"),
    [
        (JOB, {"budget": None}, BudgetError, "what all trials may cost together"),
        (JOB, {"budget": 1e-7}, BudgetError, r"must be at least .* one step .* sweep 'sweep-\w+' has left"),
        (JOB, {"trials": 0}, JobError, "trials=0"),
        (JOB, {"parallel": 99}, JobError, "parallel=99: must be at most 32"),
        (JOB, {"sampler": "best"}, JobError, "sampler='best': must be 'auto' or"),
        (JOB, {"halving": 1}, JobError, 'halving=1: must be an integer from 2 to 10, "auto" or "off"'),
        (JOB, {"halving": "of"}, JobError, "halving='of': must be an integer from 2 to 10"),
        (JOB, {"name": "two words"}, JobError, "name='two words'"),
        (JOB, {"space": None}, JobError, "what settings are drawn from"),
        (dataclasses.replace(JOB, redis="redis://127.0.0.1:1/0"), {}, ServiceError, "127.0.0.1:1"),
        (dataclasses.replace(JOB, stop=Stop(), budget=0.01), {}, JobError, "job.budget=0.01: must be less than"),
        (3, {}, JobError, "job=3: must be a TrainingJob"),
    ],
)
def test_what_is_wrong_is_one_line_before_anything_begins(job: Any, changes: Any, error: Any, says: str) -> None:
    with pytest.raises(error, match=says) as caught:
        mlless_nb.sweep(job, **{"space": RATES, "budget": 0.01, **changes})
    assert "\n" not in str(caught.value)
    assert all(run.usd == 0 for run in mlless_nb.runs())


def test_a_session_with_less_left_refuses_a_sweep() -> None:
    mlless_nb.session("mine", budget=0.01)
    with pytest.raises(BudgetError, match=r"budget=0.02: must be at most 0.01: session 'mine' has \$0.01 left"):
        mlless_nb.sweep(JOB, RATES, budget=0.02)


@pytest.mark.long
@pytest.mark.parametrize("parallel", [1, 2])
def test_the_cap_holds_when_functions_of_a_trial_are_killed(parallel: int) -> None:
    cap_usd = round(3.5 * cost_of_a_start(), 9)
    job = dataclasses.replace(JOB, stop=Stop(epochs=2000))
    space = {"learning_rate": log_uniform(0.1, 2.0)}
    sweep = mlless_nb.sweep(job, space, budget=cap_usd, parallel=parallel, trials=30, halving=None)
    killed: set[str] = set()
    while sweep.is_live and len(killed) < 2:
        sweep.wait(0.02)
        for run in handles():
            if run.telemetry.state.step > 2 and run.telemetry.state.is_live and run.name not in killed:
                with contextlib.suppress(Exception):  # it has ended
                    os.kill(list(function_processes(group_of(run)).values())[len(killed) % 2], signal.SIGKILL)
                    killed.add(run.name)
    assert ended(sweep) == "capped", sweep.reason
    assert killed
    assert_within(sweep, cap_usd)


def test_a_failed_trial_is_not_the_best_one_though_its_loss_had_been_the_lowest() -> None:
    """The leaderboard named another one, whose model was not kept."""
    study: Any = SimpleNamespace(sampler="random", n_trials=3)
    sweep, trials = Sweep("one", "rmse", {}, study, 1), list[Trial]()
    for number, (status, loss) in enumerate((("failed", 0.85), ("finished", 0.87), ("finished", 0.86))):
        trials.append(Trial(number, f"one-{number}", f"id-{number}", status=status, loss=loss))
        run: Any = SimpleNamespace(_model=object(), id=trials[-1].run_id)
        sweep._keep(run, trials[-1])
        sweep._put(trials[-1])
    sweep._end("finished", "")
    assert sweep.best_trial == trials[2]
    assert sweep.best.id == trials[2].run_id


@pytest.mark.long
def test_a_stop_ends_live_trials_in_good_order_and_keeps_what_was_found() -> None:
    job = dataclasses.replace(JOB, stop=Stop(epochs=100_000))
    sweep = mlless_nb.sweep(job, {"learning_rate": log_uniform(0.1, 2.0)}, budget=0.05, trials=9, parallel=2)
    seen = 0
    while not (len(sweep.trials) == 2 and all(trial.loss for trial in sweep.trials)):
        seen = sweep.wait_for_change(seen, 1.0)
    sweep.stop()
    assert ended(sweep) == "stopped"
    assert [trial.status for trial in sweep.trials] == ["stopped", "stopped"]
    assert sweep.best.model is not None
    assert_within(sweep, 0.05)


@pytest.mark.long
def test_an_interrupt_of_the_first_start_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(*_: Any, **__: Any) -> TrainingRun:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        return start(*_, **__)

    start = runner.start
    monkeypatch.setattr(runner, "start", slow)
    with pytest.raises(KeyboardInterrupt):
        mlless_nb.sweep(dataclasses.replace(JOB, stop=Stop(epochs=10_000)), RATES, budget=0.05, name="given-up")
    for run in handles():
        run.wait(PATIENCE_S)
    monkeypatch.setattr(runner, "start", start)
    sweep = next(each for each in sweeps() if each.name == "given-up")
    assert ended(sweep) == "stopped"


@pytest.mark.long
def test_settings_that_fail_are_trials_without_a_loss() -> None:
    def make(rate: float) -> TrainingJob:
        if rate == 0.25 and len(tried) > 2:
            raise JobError("rate", rate, "another one")
        tried.append(rate)
        return dataclasses.replace(JOB, optimizer=SGD(rate))

    tried: list[float] = []
    sweep = mlless_nb.sweep(make, {"rate": choice(0.25, 0.5, 1e12)}, budget=0.02, halving=None)
    ended(sweep)
    by_rate = {trial.settings["rate"]: trial for trial in sweep.trials}
    assert by_rate[0.25].status == "failed"
    assert "must be another one" in by_rate[0.25].reason
    assert by_rate[0.5].status == "finished"
    assert sweep.best_trial == by_rate[0.5]


@pytest.mark.long
def test_a_sweep_whose_trials_all_fail_says_so() -> None:
    def make(rate: float) -> TrainingJob:
        if len(tried) > 1:
            raise JobError("rate", rate, "another one")
        tried.append(rate)
        return JOB

    tried: list[float] = []
    with pytest.raises(JobError, match="must be another one"):
        mlless_nb.sweep(make, {"rate": log_uniform(0.25, 0.5)}, budget=0.02, name="hopeless")
    sweep = next(each for each in sweeps() if each.name == "hopeless")
    assert ended(sweep) == "failed"
    with pytest.raises(RunError, match="3 trials in a row came to no loss"):
        _ = sweep.best
