"""``mlless-nb stop`` of runs and sweeps in other processes: that end with their script, or have one of their own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import mlless_nb
from mlless_nb import CommandError
from mlless_nb.driver import stopping
from mlless_nb.driver.running.stop_requests import request_of
from mlless_nb.money.owner import Owner
from mlless_nb.terminal import command
from mlless_nb.tracking import RunLedger, TrackedRun

PATIENCE_S = 180.0
#: Starts a run, says its id, and says how it ended.
SCRIPT = """
import sys
sys.path.insert(0, {tests!r})
import mlless_nb
from engine.jobs import job
from mlless_nb import Stop
run = mlless_nb.train(job(stop=Stop(steps=10**6), workers=1, name={name!r}, detach={detach}))
print(run.id, flush=True)
print(run.wait(), run.reason, flush=True)
"""


@pytest.fixture(autouse=True)
def own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


@pytest.fixture
def script() -> Iterator[Callable[..., tuple[subprocess.Popen[str], str]]]:
    """Starts a process with a run; returns it with the run's id once the run is there."""
    started: list[subprocess.Popen[str]] = []

    def start(name: str, *, detach: bool) -> tuple[subprocess.Popen[str], str]:
        code = SCRIPT.format(tests=str(Path(__file__).parents[1]), name=name, detach=detach)
        process = subprocess.Popen([sys.executable, "-P", "-c", code], stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        return process, process.stdout.readline().strip()

    yield start
    for process in started:
        process.kill()
        process.wait(PATIENCE_S)


@pytest.mark.parametrize("detach", [False, True], ids=["bound to its script", "detached"])
def test_a_run_of_another_process_is_stopped_in_good_order(
    detach: bool, script: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    process, run_id = script("first", detach=detach)
    assert command.main(["stop", "first"]) == 0
    said = capsys.readouterr()
    assert said.err.startswith("first: asked to stop, $")
    assert said.out.startswith("first: stopped")
    assert said.out.endswith("stopped by you\n")
    assert said.out.count("\n") == 1
    assert process.stdout.read().strip() == "stopped stopped by you"
    assert not request_of(run_id).exists()
    assert command.main(["stop", run_id]) == 1
    assert capsys.readouterr().err == f"run '{run_id}' has ended (stopped): there is nothing to stop\n"


SWEEP = """
import sys
sys.path.insert(0, {tests!r})
import mlless_nb
from engine.jobs import job
from mlless_nb import Stop, choice
endless = job(stop=Stop(steps=10**6), workers=1)
space = {{"optimizer.learning_rate": choice(0.1, 0.2, 0.3)}}
rates = mlless_nb.sweep(endless, space, budget=1.0, parallel=2, halving="off", name="rates")
while [trial.status for trial in rates.trials] != ["running"] * 2:
    rates.wait_for_change(0, 0.1)
print("begun", flush=True)
try:
    rates.wait()
finally:
    print(rates.status, rates.reason, len(rates.trials), flush=True)
"""


def test_a_sweep_of_another_process_is_stopped_with_its_trials(capsys: pytest.CaptureFixture[str]) -> None:
    code = SWEEP.format(tests=str(Path(__file__).parents[1]))
    process = subprocess.Popen([sys.executable, "-P", "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        assert command.main(["stop", "rates"]) == 0
        said = capsys.readouterr()
        assert [line.partition(",")[0] for line in said.err.splitlines()] == [
            "rates-1: asked to stop",
            "rates-2: asked to stop",
        ]
        assert [line.endswith("stopped by you") for line in said.out.splitlines()] == [True, True]
        assert process.communicate(timeout=PATIENCE_S)[0] == "stopped stopped by you 2\n"
    finally:
        process.kill()
        process.wait(PATIENCE_S)


def entry(run_id: str, name: str, sweep: str = "") -> None:
    """Enter a live run of this process that heeds nothing."""
    RunLedger().begin(TrackedRun(run_id, name, 1.0, sweep=sweep), Owner.this())


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("frist", "no run is called 'frist'; is 'first' meant?; live: first, twice, rates-1"),
        ("", "no run is called ''; live: first, twice, rates-1"),
        ("twice", "2 live runs are called 'twice': name one by its id, b, c"),
    ],
)
def test_what_cannot_be_stopped_is_one_line(name: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    entry("a", "first")
    entry("b", "twice")
    entry("c", "twice")
    entry("d", "rates-1", sweep="rates-01234567")
    assert command.main(["stop", name]) == 1
    assert capsys.readouterr().err == f"{says}\n"


def test_a_sweep_without_live_trials_has_nothing_to_stop() -> None:
    entry("d", "rates-1", sweep="rates-01234567")
    assert [run.id for run in stopping.live_runs("rates")] == ["d"]
    RunLedger().change("d", status="pruned")
    with pytest.raises(CommandError, match="no trial of the sweep 'rates' is live"):
        stopping.ask("rates")


def test_a_process_that_does_not_answer_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(stopping, "ANSWER_S", 0.0)
    entry("a", "first")
    request_of("a").parent.mkdir(parents=True)
    assert command.main(["stop", "first"]) == 1
    assert capsys.readouterr().err.endswith("run 'first' was asked to stop 0 s ago: its process does not answer\n")
    assert request_of("a").exists()
    request_of("a").unlink()
    monkeypatch.setattr(stopping, "END_S", 0.0)
    with pytest.raises(mlless_nb.errors.ServiceError, match="it has not ended yet"):
        stopping.wait(mlless_nb.runs()["a"])
