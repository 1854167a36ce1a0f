"""A worker that is stopped again and again is replaced by a duplicate, without a step lost: real processes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from engine.jobs import PATIENCE_S, digest, finish, job, wait_for_step

import mlless_nb
from mlless_nb import BSP, ISP, SSP, ScaleIn, Stop
from mlless_nb.driver.servers.services import Services
from mlless_nb.job.sync import Sync
from mlless_nb.money.meter import NUSD

#: Lets a process run for 15 ms of 300, for as long as it lives.
STALL = """
import os, signal, sys, time
with __import__("contextlib").suppress(ProcessLookupError):
    while True:
        for how, seconds in ((signal.SIGSTOP, 0.285), (signal.SIGCONT, 0.015)):
            os.kill(int(sys.argv[1]), how)
            time.sleep(seconds)
"""
#: Many steps, of which few are done before the straggler is found, however late the notebook hears of step 20: at its
#: pace they would take minutes.
N_STEPS = 2000
STEADY = {"stop": Stop(steps=N_STEPS), "scale_in": ScaleIn.off(), "speculation": 2.0}


def services_of(run: mlless_nb.TrainingRun) -> Services:
    """What a live run stands on."""
    return run._send.__self__._services  # type: ignore[union-attr,no-any-return]


def pid_of(run: mlless_nb.TrainingRun, slot: int) -> int:
    """The process of a live run's worker."""
    return int(services_of(run).log.at_work([slot])[slot].partition("-")[0])


@contextlib.contextmanager
def stalling(pid: int) -> Iterator[None]:
    """Slow a process down."""
    stall = subprocess.Popen([sys.executable, "-S", "-c", STALL, str(pid)])
    try:
        yield
    finally:
        stall.kill()
        stall.wait()
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def stalled(sync: Sync, **changes: object) -> tuple[mlless_nb.TrainingRun, list[str]]:
    """A run whose worker 2 is slow from step 20 on, once it has ended, and what was told."""
    run = mlless_nb.train(job(sync=sync, **(STEADY | changes)))
    wait_for_step(run, 20)
    with stalling(pid_of(run, 2)):
        run.wait(PATIENCE_S)
    return run, told_by(run)


def told_by(run: mlless_nb.TrainingRun) -> list[str]:
    """The texts of a run's events."""
    return [event.text for event in run.telemetry.state.events]


@pytest.mark.parametrize(
    "sync",
    [
        pytest.param(ISP(0.7), marks=pytest.mark.long),
        *(pytest.param(sync, marks=pytest.mark.proof) for sync in (BSP(), SSP(2))),
    ],
    ids=str,
)
def test_a_duplicate_takes_over_and_the_model_is_that_of_an_undisturbed_run(sync: Sync) -> None:
    run, told = stalled(sync)
    assert run.status == "finished", run.reason
    assert sum("as slow as the median" in text and "a duplicate was invoked" in text for text in told) == 1, told
    (cost,) = (text for text in told if "handed over" in text)
    assert cost.startswith("Worker 2 handed over after step ")
    assert " to its duplicate, which cost $0.0" in cost
    assert not any("replaced" in text for text in told), told
    assert told[-1].endswith("Everything is shut down")
    assert run.history["step"].tolist() == list(range(1, N_STEPS + 1))
    if sync != SSP(2):
        assert digest(run) == digest(finish(job(sync=sync, **STEADY)))


@pytest.mark.long
def test_a_duplicate_that_the_budget_does_not_pay_for_is_refused_once_and_the_run_goes_on() -> None:
    run = mlless_nb.train(job(sync=ISP(0.7), **(STEADY | {"budget": 1.0})))
    wait_for_step(run, 20)
    # A function that costs more than is left; the reservation itself is refused by the run's own coordinator.
    recovery = run._send.__self__._fault_handler._recovery  # type: ignore[union-attr]
    recovery.payments._money = SimpleNamespace(worker_nusd=lambda slot: 2 * NUSD)
    seen = 0
    with stalling(pid_of(run, 2)):
        while run.telemetry.state.is_live and not any("duplicate" in text for text in told_by(run)):
            seen = run.telemetry.wait_for_change(seen, PATIENCE_S)
    assert run.wait(PATIENCE_S) == "finished", run.reason
    (refusal,) = (text for text in told_by(run) if "duplicate" in text)
    assert refusal.endswith("the budget does not pay for a duplicate")
    assert not any("handed over" in text for text in told_by(run))
    assert run.cost.total < 1.0
