"""Detached runs: the process that starts one is killed, another one attaches; real processes on both sides."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from engine.jobs import PATIENCE_S, cost_of_a_start, digest, finish, job, wait_for_step
from engine.test_faults import function_processes
from folders import paths_below

import mlless_nb
from mlless_nb import BudgetError, CommandError, JobError, LogisticRegression, Stop, TrainingJob, TrainingRun, datasets
from mlless_nb.driver import leftovers, spending
from mlless_nb.driver.backends.processes import all_processes
from mlless_nb.driver.cleaning import survey
from mlless_nb.driver.servers.places import CONTROL, Places, all_places
from mlless_nb.money import Rates, price_profile
from mlless_nb.telemetry.record import runs_folder

#: A notebook that starts a run, says its id once it has taken steps, and then does nothing.
CELL = """
import json, sys
sys.path.insert(0, {tests!r})
import mlless_nb
from engine.jobs import job, wait_for_step
from mlless_nb import Stop
fields = json.loads({fields!r})
seen = fields.pop("seen")
if fields.pop("session", None):
    mlless_nb.session("shared", budget=0.5)
run = mlless_nb.train(job(stop=Stop(steps=10**6), **fields))
wait_for_step(run, seen)
print(run.id, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A data directory of its own for each test; no run of it is left."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr(spending, "_in_force", {})
    monkeypatch.setattr(leftovers, "BASES", ())  # not those of this machine's other runs
    yield
    for places in all_places():
        if not places.owner.is_gone:
            os.kill(places.owner.pid, signal.SIGKILL)


@pytest.fixture
def notebook() -> Iterator[Callable[..., tuple[subprocess.Popen[str], str]]]:
    """Starts a process with a run; returns it once the run has taken so many steps, and the run's id."""
    started = []

    def start(seen: int = 3, **fields: Any) -> tuple[subprocess.Popen[str], str]:
        code = CELL.format(tests=str(Path(__file__).parents[1]), fields=json.dumps({"seen": seen, **fields}))
        env = {name: value for name, value in os.environ.items() if name != "__LITHOPS_SESSION_ID"}
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "start_new_session": True}
        process = subprocess.Popen([sys.executable, "-P", "-c", code], env=env, text=True, **pipes)
        started.append(process)
        assert process.stdout is not None
        return process, process.stdout.readline().strip()

    yield start
    for process in started:
        kill(process)


def kill(process: subprocess.Popen[str]) -> None:
    """As a kernel's manager does: the process and its group, without a warning."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(PATIENCE_S)


def places_of(run_id: str) -> Places:
    return next(places for places in all_places() if places.run_id == run_id)


def ended(run: TrainingRun) -> str:
    status = run.wait(PATIENCE_S)
    assert not run.telemetry.state.is_live, run.telemetry.state
    return status


def wait_until(condition: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < give_up_at
        time.sleep(0.02)


def files_of(name: str, places: Places) -> list[Path]:
    """Files and folders with ``name`` in theirs, in the storage of this machine."""
    return [path for path in paths_below(Path(places.folder)) if name in path.name]


def assert_nothing_is_left(places: Places) -> None:
    """No process, key, queue or file of the run but its record."""
    wait_until(lambda: places.owner.is_gone)
    assert [each.command for each in all_processes() if f"/{places.executor}-" in each.command] == []
    assert files_of(places.run_id, places) == []
    assert files_of(f"{places.executor}-", places) == []
    assert [run.run_id for run in survey().runs] == []
    assert survey().left == []
    assert not (runs_folder() / places.run_id / CONTROL).exists()


def functions_of(places: Places) -> dict[int, int]:
    """Process ids of the run's functions by slot."""
    groups = {each.group for each in all_processes() if f"/{places.executor}-" in each.command}
    return {slot: pid for group in groups for slot, pid in function_processes(group).items()}


#: Another notebook: attaches, sees some steps, stops the run and says how that ended.
OTHER = """
import sys
sys.path.insert(0, {tests!r})
import mlless_nb
from engine.jobs import wait_for_step
run = mlless_nb.attach({name!r})
wait_for_step(run, run.telemetry.state.step + 3)
run.stop()
print(run.wait(), run.history.n_steps, run.cost.total)
"""


@pytest.mark.long
def test_the_notebook_and_a_worker_are_killed_and_two_others_go_on(notebook: Callable[..., Any]) -> None:
    process, run_id = notebook(name="first", detach=True, checkpoint_every=20)
    places = places_of(run_id)
    kill(process)
    os.kill(functions_of(places)[2], signal.SIGKILL)
    run = mlless_nb.attach("first")
    assert mlless_nb.attach(run_id) is run
    assert run in mlless_nb.runs()
    assert run.telemetry.state.is_detached
    wait_until(lambda: run.telemetry.state.estimate.startswith("about $"))  # though nobody has looked at it before
    assert run.job is not None
    assert run.job.data.fingerprint() == job().data.fingerprint()
    assert repr(run.job.model) == repr(job().model)
    wait_until(lambda: "worker 2 replaced" in " ".join(event.text for event in run.telemetry.state.events))
    wait_for_step(run, run.telemetry.state.step + 20)

    code = OTHER.format(tests=str(Path(__file__).parents[1]), name="first")
    other = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=PATIENCE_S)
    assert ended(run) == "stopped", run.reason
    n_steps = run.history.n_steps
    assert other.stdout.split() == ["stopped", str(n_steps), str(run.cost.total)], other.stderr
    assert run.history["step"].tolist() == list(range(1, n_steps + 1))
    assert digest(run) == digest(finish(job(stop=Stop(steps=n_steps), checkpoint_every=20)))
    # All functions but the worker that was killed have lived from the first step to the last one.
    times_s, rates = run.history["time_s"], Rates(price_profile("aws-lambda-x86"), 1769)
    assert run.cost.total > (times_s[-1] - times_s[0]) * (4 * rates.function_usd_s + rates.servers_usd_s)
    assert run.cost.store is not None
    assert run.cost.store.put_bytes >= run.history["sent_bytes"].sum()  # with what the lost worker had told
    assert "Everything is shut down" in run.telemetry.state.events[-1].text
    assert_nothing_is_left(places)


@pytest.mark.long
def test_a_budget_holds_with_nobody_there(notebook: Callable[..., Any], redis_url: str) -> None:
    budget = 8 * cost_of_a_start()
    process, run_id = notebook(seen=0, name="unattended", detach=True, budget=budget, session=True, redis=redis_url)
    places = places_of(run_id)
    kill(process)
    wait_until(lambda: places.owner.is_gone)
    assert_nothing_is_left(places)
    assert redis.Redis.from_url(redis_url).keys("*") == []
    run = mlless_nb.attach("unattended")
    assert run.status == "capped", run.reason
    assert 0 < run.cost.total <= budget, run.reason
    assert run.history["step"].tolist() == list(range(1, run.history.n_steps + 1))
    assert mlless_nb.session("shared").spent == pytest.approx(run.cost.total)
    assert mlless_nb.session("shared").reserved == 0
    private = [path.stat().st_mode & 0o077 for path in (runs_folder() / run_id).iterdir()]
    assert set(private) == {0}


@pytest.mark.proof
def test_a_driver_that_is_killed_is_told(notebook: Callable[..., Any]) -> None:
    _, run_id = notebook(name="lost", detach=True)
    places = places_of(run_id)
    run = mlless_nb.attach("lost")
    os.kill(places.owner.pid, signal.SIGKILL)
    assert ended(run) == "failed"
    assert "the process that trained it was killed" in run.reason
    wait_until(lambda: functions_of(places) == {})
    wait_until(lambda: not files_of(run_id, places))
    mlless_nb.clean()
    assert_nothing_is_left(places)
    assert mlless_nb.attach("lost").history.n_steps == run.history.n_steps


@pytest.mark.long
def test_a_detached_run_is_commanded_and_what_cannot_be_is_told(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="detach='yes': must be True, False or None"):
        job(detach="yes")
    (tmp_path / "rows.csv").write_text("label,x\n" + "1,2\n0,3\n" * 50)
    streamed = TrainingJob(LogisticRegression(), data=datasets.csv(tmp_path / "rows.csv"), detach=True)
    with pytest.raises(JobError, match="detach=True: must be False with data that is read from its file"):
        mlless_nb.train(streamed)
    with pytest.raises(JobError, match="redis") as refused:
        mlless_nb.train(job(detach=True, redis="redis://192.0.2.1:6379"))
    assert refused.value.field == "redis"
    with pytest.raises(BudgetError, match="budget=1e-09: must be at least"):
        mlless_nb.train(job(detach=True, budget=1e-9))

    run = mlless_nb.train(job(detach=True, stop=Stop(steps=10**6), name="known"))
    with pytest.raises(CommandError, match=r"no ended run is called 'nobody'; .* none; live: known"):
        mlless_nb.attach("nobody")
    with pytest.raises(CommandError, match=re.escape("mlless_nb.attach('known') controls it")):
        mlless_nb.train(job(detach=True, name="known"))
    with pytest.raises(JobError, match="run=7: must be the name or the id of a run"):
        mlless_nb.attach(7)  # type: ignore[arg-type]
    wait_for_step(run, 1)
    run.budget = 3.0
    run.scale_in(worker_id=1)
    wait_until(lambda: list(run.telemetry.state.leaving) == [1] and run.budget == 3.0)
    with pytest.raises(CommandError, match="worker_id=1"):
        run.scale_in(worker_id=1)
    run.stop()
    assert ended(run) == "stopped"
    more = mlless_nb.train(job(detach=True), resume=run)
    assert ended(more) == "finished"
    assert more.resumed_from == "known"
