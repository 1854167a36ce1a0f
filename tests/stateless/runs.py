"""Small jobs that the tests of stateless runs train, and functions that are lost on the way."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from engine.jobs import ratings
from engine.test_faults import eventually

from mlless_nb import (
    BSP,
    PMF,
    SGD,
    Adam,
    LogisticRegression,
    ScaleIn,
    SoftmaxRegression,
    Stop,
    TrainingJob,
    TrainingRun,
    datasets,
)
from mlless_nb.bus.messages import Message
from mlless_nb.stateless import event_run, run
from mlless_nb.stateless.event_run import EventRun
from mlless_nb.stateless.keys import model_key
from mlless_nb.stateless.messages import Begun, Done
from mlless_nb.stateless.run import StatelessRun


def clicks() -> Any:
    """Labelled rows, 600 x 8, dense."""
    draws = np.random.default_rng(3)
    table = draws.standard_normal((600, 8)).astype(np.float32)
    return datasets.csr(table, (table @ draws.standard_normal(8) + 0.3 * draws.standard_normal(600) > 0).astype(int))


MODELS: dict[str, dict[str, Any]] = {
    "PMF": {
        "model": PMF(rank=4, l2=0.02, init_scale=0.1),
        "optimizer": SGD(learning_rate=2.0, momentum=0.9, nesterov=True),
        "minibatch": 200,
    },
    "logistic regression": {
        "model": LogisticRegression(l2=0.001),
        "optimizer": Adam(learning_rate=0.05),
        "minibatch": 50,
    },
    "softmax": {
        "model": SoftmaxRegression(3, l2=0.001),
        "optimizer": SGD(learning_rate=0.3, momentum=0.9),
        "minibatch": 50,
    },
}


def classes() -> Any:
    """Rows of three classes, 600 x 8, dense."""
    draws = np.random.default_rng(3)
    table = draws.standard_normal((600, 8)).astype(np.float32)
    return datasets.csr(table, (table @ draws.standard_normal((8, 3))).argmax(axis=1))


DATA = {"PMF": ratings, "logistic regression": clicks, "softmax": classes}


def job(execution: str, model: str = "PMF", **changes: Any) -> TrainingJob:
    """A job of a few steps with three workers."""
    fields: dict[str, Any] = {
        "data": DATA[model](),
        "sync": BSP(),
        "workers": 3,
        "stop": Stop(steps=3),
        "eval_every": 2,
        "partition": "rows",
        "scale_in": ScaleIn.off(),
        "execution": execution,
    }
    if execution == "workers":
        fields["pattern"] = "broadcast"  # scatter-reduce adds in another order
    return TrainingJob(**(fields | MODELS[model] | changes))


def losses(run: TrainingRun) -> list[Any]:
    """The training and validation losses of each step."""
    return [run.history[name].tolist() for name in ("loss", "validation_loss")]


def lose_one_of_each_stage(patch: pytest.MonkeyPatch, lost: set[str]) -> None:
    """From now on kill functions of every stage as they begin, until one of the stage is among the ``lost`` ones."""
    messages = StatelessRun.messages

    def kill(self: StatelessRun, timeout_s: float) -> list[Message]:
        found = messages(self, timeout_s)
        lost.update(entry["stage"] for entry in self.reports.trace if entry["error"])
        for message in found:
            if isinstance(message, Done) and message.error:
                lost.add(message.stage)
            if isinstance(message, Begun) and message.stage not in lost:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(message.pid, signal.SIGKILL)
        return found

    patch.setattr(StatelessRun, "messages", kill)


def stall_one_update(patch: pytest.MonkeyPatch) -> None:
    """From now on stop one update function as it begins, and move the driver's clock on until the part is late."""
    messages = StatelessRun.messages
    stalled: list[int] = []
    ahead_s: list[float] = []
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + sum(ahead_s))

    def stall(self: StatelessRun, timeout_s: float) -> list[Message]:
        if stalled and not ahead_s:  # what was heard before is taken in by now
            ahead_s.append(self.patience_s("update"))
        found = messages(self, timeout_s)
        for message in found:
            if isinstance(message, Begun) and message.stage == "update" and not stalled:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(message.pid, signal.SIGSTOP)
                    stalled.append(message.pid)
        return found

    patch.setattr(StatelessRun, "messages", stall)
    for module in (run, event_run):
        patch.setattr(module, "time", clock)


def keep_the_driver_away(patch: pytest.MonkeyPatch, last_step: int) -> list[bool]:
    """Let the driver of an event-driven run only keep its lease, from the first call until ``last_step`` is done.

    Returns a list that will say whether that step was reached meanwhile.
    """
    messages, is_done = StatelessRun.messages, list[bool]()

    def wait(self: StatelessRun, timeout_s: float) -> list[Message]:
        if not is_done:
            key = model_key(self.job.job_id, last_step)
            is_done.append(eventually(lambda: self._look() or self.objects.list(key)))  # type: ignore[func-returns-value]
        return messages(self, timeout_s)

    patch.setattr(EventRun, "messages", wait)
    return is_done
