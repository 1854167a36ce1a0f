"""A shell with the magics loaded, and runs that only record what they are asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

import mlless_nb
from mlless_nb import widgets
from mlless_nb.driver import runs as registry
from mlless_nb.magics import launching, load_ipython_extension, unload_ipython_extension
from mlless_nb.telemetry.live import LIVE, RunState, Telemetry
from mlless_nb.widgets import frontend


class FakeRun:
    """A run without functions: it records commands, and ends when a test says so."""

    def __init__(self, name: str = "run", job: Any = None, **state: Any) -> None:
        self.name, self.id, self.job = name, f"{name}-0001", job
        self.telemetry = Telemetry(
            _state=RunState(name=name, **{"status": "running", "step": 7, "spent_usd": 0.0125, **state})
        )
        self.commands: list[tuple[str, Any]] = []
        #: called by each wait, in order; the run ends when there is none left
        self.waits: list[Callable[[], object]] = []

    @property
    def status(self) -> str:
        return self.telemetry.state.status

    @property
    def reason(self) -> str:
        return self.telemetry.state.reason

    def end(self, status: str = "finished", reason: str = "10 epochs are over") -> None:
        self.telemetry.update(status=status, reason=reason)

    def wait(self, timeout_s: float | None = None) -> str:
        if self.waits:
            self.waits.pop(0)()
        elif self.status in LIVE:
            self.end("stopped" if ("stop", None) in self.commands else "finished")
        return self.status

    def stop(self) -> None:
        self.commands.append(("stop", None))

    def scale_in(self, n: int) -> None:
        self.commands.append(("scale_in", n))

    def resume_tuner(self) -> None:
        self.commands.append(("tune", True))

    def pause_tuner(self) -> None:
        self.commands.append(("tune", False))

    @property
    def budget(self) -> float | None:
        return self.telemetry.state.budget_usd

    @budget.setter
    def budget(self, usd: float) -> None:
        self.commands.append(("budget", usd))

    def dashboard(self) -> None:
        self.commands.append(("dashboard", None))

    def report(self) -> str:
        return f"report of {self.name}"


class Stage:
    """What the magics see of the engine and of the widgets, and what they did with it."""

    def __init__(self) -> None:
        self.runs: list[FakeRun] = []
        self.shown: list[tuple[FakeRun, bool]] = []
        self.error: Exception | None = None
        self.resumed: str | None = None
        self.prepare: Callable[[FakeRun], object] = lambda run: None
        self.frontend = "live"

    def add(self, *names: str, **state: Any) -> list[FakeRun]:
        self.runs += [FakeRun(name, **state) for name in names]
        return self.runs[-len(names) :]

    def train(self, job: Any, resume: str | None = None) -> FakeRun:
        if self.error is not None:
            raise self.error
        self.resumed = resume
        run = FakeRun(job.name, job)
        self.prepare(run)
        self.runs.append(run)
        return run


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    stage = Stage()
    monkeypatch.setattr(registry, "train", stage.train)
    monkeypatch.setattr(registry, "handles", lambda: list(stage.runs))
    monkeypatch.setattr(mlless_nb, "attach", lambda name: FakeRun(name))
    monkeypatch.setattr(launching, "TrainingRun", FakeRun)
    monkeypatch.setattr(widgets, "show", lambda run, wait=False: stage.shown.append((run, wait)))
    monkeypatch.setattr(widgets, "static_bundle", lambda run: {"image/svg+xml": "<svg/>", "text/plain": "curve"})
    monkeypatch.setattr(frontend, "detect", lambda shell=None: stage.frontend)
    return stage


@pytest.fixture
def shell(stage: Stage) -> Iterator[InteractiveShell]:
    shell = InteractiveShell.instance(config=Config({"HistoryManager": {"hist_file": ":memory:"}}))
    load_ipython_extension(shell)
    yield shell
    stage.runs.clear()
    unload_ipython_extension(shell)
    InteractiveShell.clear_instance()
