"""The registry of runs: names are taken at once, making a run ready holds nobody up, memory does not grow for ever."""

from __future__ import annotations

import dataclasses
import os
import signal
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from mlless_nb import PMF, SGD, CommandError, ServiceError, TrainingJob, TrainingRun, datasets
from mlless_nb.bus.messages import Command
from mlless_nb.driver import runs as registry
from mlless_nb.money import Cost

JOB = TrainingJob(
    PMF(2), SGD(0.1), datasets.synthetic_ratings(30, 20, 300, rank=2, seed=1), minibatch=30, name="registered"
)


@pytest.fixture(autouse=True)
def empty_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry of its own for each test."""
    monkeypatch.setattr(registry, "_live", {})
    monkeypatch.setattr(registry, "_ended", [])


def test_others_are_not_held_up_while_a_run_is_made_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def slow_driver(*_: Any) -> None:
        def others() -> None:
            seen.append(registry.handles())
            with pytest.raises(CommandError, match="'registered' is about to start"):
                registry.train(JOB)
            seen.append("refused")

        thread = threading.Thread(target=others)
        thread.start()
        thread.join(30)
        raise ServiceError("Redis does not answer")

    monkeypatch.setattr(registry, "Driver", slow_driver)
    with pytest.raises(ServiceError):
        registry.train(JOB)
    assert seen == [[], "refused"]
    # The name is free again.
    with pytest.raises(ServiceError):
        registry.train(JOB)


def test_the_newest_ended_runs_are_kept() -> None:
    runs = [TrainingRun(None, str(number), f"run-{number}") for number in range(registry.KEPT_RUNS + 3)]
    for run in runs:
        registry._end(run)
    assert registry.handles() == runs[3:]


def test_ended_runs_are_let_go_of_when_they_hold_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [TrainingRun(None, str(number), f"run-{number}") for number in range(4)]
    model = JOB.model.fitted(JOB.model.init((30, 20), 0.0, 0), (30, 20), 0.0)
    monkeypatch.setattr(registry, "KEPT_BYTES", 2 * runs[0].n_bytes + model.params["user_factors"].nbytes)
    for run in runs[:3]:
        registry._end(run)
    assert registry.handles() == runs[:3]
    runs[0]._end(model, Cost(), status="finished")
    registry._end(runs[3])
    assert registry.handles() == runs[1:]  # the three hold too much, the newest aside


def test_an_ended_run_lets_its_driver_go() -> None:
    sent: list[Command] = []
    run = TrainingRun(JOB, "1", "one", lambda command, pending: sent.append(command))
    run.stop()
    assert [command.do for command in sent] == ["stop"]
    run._end(None, Cost(), status="finished")
    assert run._send is None
    run.stop()
    assert len(sent) == 1
    with pytest.raises(CommandError, match="has ended"):
        run.scale_in(1)


def test_a_budget_below_what_the_start_takes_is_refused_at_once() -> None:
    run = registry.train(dataclasses.replace(JOB, budget=0.01))
    try:
        assert run.status == "starting"
        with pytest.raises(CommandError, match="spent and committed"):
            run.budget = 1e-6
    finally:
        run.stop()
        run.wait()
    assert run.budget == 0.01


def test_the_end_of_the_process_ends_its_runs_but_not_those_of_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    abandoned = threading.Event()
    thread = threading.Thread(target=abandoned.wait)
    thread.start()
    monkeypatch.setattr(registry, "_drivers", {"one": (SimpleNamespace(abandon=abandoned.set), thread)})
    registry._end_all(os.getpid() + 1)
    assert not abandoned.is_set()
    registry._end_all(os.getpid())
    assert not thread.is_alive()


def test_an_interrupt_gives_up_the_run_that_is_made_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    discarded = threading.Event()

    def slow_driver(*_: Any) -> Any:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        forgotten.wait(30)
        return SimpleNamespace(run=None, discard=discarded.set)

    forgotten = threading.Event()
    forget = registry._Start.forget

    def forget_and_tell(start: registry._Start) -> None:
        forget(start)
        forgotten.set()

    monkeypatch.setattr(registry._Start, "forget", forget_and_tell)
    monkeypatch.setattr(registry, "Driver", slow_driver)
    with pytest.raises(KeyboardInterrupt):
        registry.train(JOB)
    assert discarded.wait(30)
    assert registry._live == {}
