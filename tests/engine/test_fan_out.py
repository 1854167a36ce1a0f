"""Functions that are invoked by other functions, as in a cloud with many workers: real processes.

On this machine a function's process has started the processes of those that it has invoked, and waits for them.
"""

from __future__ import annotations

import functools
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from engine.jobs import PATIENCE_S, digest, finish, job
from engine.test_speculation import services_of

import mlless_nb
from mlless_nb import Stop
from mlless_nb.driver.backends.launcher import LithopsLauncher
from mlless_nb.driver.launch import fan_out
from mlless_nb.exchange import SUPERVISOR

STEPS: dict[str, Any] = {"stop": Stop(steps=60), "checkpoint_every": 20}
EVERYBODY = [SUPERVISOR, 0, 1, 2, 3]


@pytest.fixture(autouse=True)
def functions_invoke(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let functions invoke others from three workers on: with four, each of two invokes one."""
    monkeypatch.setattr(fan_out, "MOST_INVOKED", 2)
    monkeypatch.setattr(LithopsLauncher, "can_functions_invoke", True)
    # On this machine the driver invokes all in reality, and knows functions by the process groups that it has started.
    monkeypatch.setattr(LithopsLauncher, "has_died", lambda _, pid: is_gone(pid))


@functools.cache
def plain() -> str:
    """The digest of the same run, all of whose functions the driver invokes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LithopsLauncher, "can_functions_invoke", False)
        return digest(finish(job(**STEPS)))


def seen_at_work(run: mlless_nb.TrainingRun, slots: list[int]) -> dict[int, int]:
    """The processes of the functions of ``slots``, once all of them are at work."""
    pids: dict[int, int] = {}
    while not pids.keys() >= set(slots) and run.telemetry.state.is_live:
        pids |= {slot: int(nonce.partition("-")[0]) for slot, nonce in services_of(run).log.at_work(slots).items()}
    return pids


def is_gone(pid: int) -> bool:
    """Whether a process has ended; a zombie has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.long
def test_a_run_whose_workers_are_invoked_by_others_has_the_same_model_and_leaves_nothing() -> None:
    run = mlless_nb.train(job(**STEPS))
    folder = services_of(run).launcher.folder_of(f"runs/{run.id}")
    pids = seen_at_work(run, EVERYBODY)
    group = {slot: os.getpgid(pid) for slot, pid in pids.items()}
    assert group[0] == group[1] == group[SUPERVISOR]
    assert len({group[0], group[2], group[3]}) == 3  # each of those was started by another one's process
    assert run.wait(PATIENCE_S) == "finished", run.reason
    assert digest(run) == plain()
    assert not any("replaced" in event.text for event in run.telemetry.state.events)
    assert all(is_gone(pid) for pid in pids.values())
    assert not os.path.exists(folder)
    assert run.telemetry.state.events[-1].text.endswith("Everything is shut down")


@pytest.mark.long
def test_who_is_not_invoked_since_the_inviter_was_killed_is_invoked_by_the_driver() -> None:
    run = mlless_nb.train(job(**STEPS))
    os.kill(seen_at_work(run, [1])[1], signal.SIGKILL)
    assert run.wait(PATIENCE_S) == "finished", run.reason
    assert digest(run) == plain()
    told = [event.text for event in run.telemetry.state.events]
    assert any("replaced" in text for text in told), told
