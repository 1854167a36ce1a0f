"""The simulator finds bugs: five that are planted, each within one or two hundred seeds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("greenlet")

from seeds.check import run_seeds
from seeds.scenario import HURRIED

from mlless_nb.driver.recovery.recovery import Recovery
from mlless_nb.exchange import MemoryCoordinator
from mlless_nb.exchange.memory_hub import MemoryHub
from mlless_nb.supervisor.step_rows import StepRows
from mlless_nb.worker.resuming import Resuming


def found(*, first: int = 0, within: int = 100) -> str:
    """The first sentence on a seed that fails."""
    for seed in range(first, first + within):
        if failed := run_seeds([seed]):
            return failed[0]
    raise AssertionError(f"not found in {within} seeds")


@pytest.mark.long
def test_a_fence_that_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds of before a restart go on after it."""

    def check(log: MemoryCoordinator) -> None:
        log._restart = log._hub.restart

    monkeypatch.setattr(MemoryCoordinator, "_check", check)
    assert "to replay it" in found(within=200)  # one seed in fifty shows it


def test_a_plan_that_workers_learn_of_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker leaves one step earlier than all of its peers can know."""
    announce = MemoryHub.announce

    def early(hub: MemoryHub, **changes: Any) -> None:
        leaves = changes.get("leaves")
        if leaves:
            known = hub.plan.leaves
            changes["leaves"] = {slot: step - (slot not in known) for slot, step in leaves.items()}
        announce(hub, **changes)

    monkeypatch.setattr(MemoryHub, "announce", early)
    assert found()


def test_a_worker_that_forgets_what_it_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The residual, or the optimiser's state, is not in a checkpoint's part."""
    resume = Resuming.resume

    def forget(self: Resuming, parts: Any) -> Any:
        own = parts[self._slot]
        blank = {name: table * 0 if name != "users" else table for name, table in own.tables.items()}
        return resume(self, {**parts, self._slot: replace(own, tables=blank)})

    monkeypatch.setattr(Resuming, "resume", forget)
    assert "the model is another one" in found()


def test_a_supervisor_that_nobody_replaces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Recovery, "replace_supervisor", lambda self: None)
    assert found()


@pytest.mark.long
def test_a_supervisor_that_waits_for_steps_that_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes over when the step log has dropped the first ones."""
    monkeypatch.setattr(StepRows, "_leave_out", lambda self: iter(self._early.clear() or ()))
    assert "finished with the rows" in found(first=HURRIED)
