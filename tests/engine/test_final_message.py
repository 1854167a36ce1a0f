"""A run that trained is not called failed: what is in the log, on the bus and in the storage decides how it ended."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine.jobs import PATIENCE_S, digest, finish, job, wait_for_step
from engine.test_faults import function_processes, group_of

import mlless_nb
from mlless_nb import Stop
from mlless_nb.bus.messages import Ended, Message
from mlless_nb.bus.redis import RedisBus
from mlless_nb.driver import driver
from mlless_nb.driver.backends.launcher import LithopsLauncher
from mlless_nb.driver.servers.services import Services

STEPS = 40
JOB: dict[str, Any] = {"stop": Stop(steps=STEPS)}


class Late:
    """Makes the driver see its functions end before it hears a word of what was sent on the bus until then."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, loses: bool) -> None:
        self.is_over, self.n_lost = False, 0
        self._loses, self._launcher = loses, LithopsLauncher
        receive, has_ended, services = RedisBus.receive, LithopsLauncher.has_ended, Services.__init__
        late = self

        def open_services(self: Services, *arguments: Any) -> None:
            services(self, *arguments)
            late._bus, late._launcher = self.bus, self.launcher  # type: ignore[assignment]

        def look(self: LithopsLauncher) -> bool:
            late.is_over = late.is_over or has_ended(self)
            return late.is_over

        def hear(self: RedisBus, topic: str, timeout_s: float) -> list[bytes]:
            if topic != "driver" or self is not late._bus:
                return receive(self, topic, timeout_s)
            while not late.is_over:
                look(late._launcher)  # type: ignore[arg-type]
                receive(self, "nobody", 0.02)
            bodies = receive(self, topic, 0.0)
            if late._loses and late.n_lost == 0:
                late.n_lost, bodies = len(bodies), []
            return bodies

        monkeypatch.setattr(Services, "__init__", open_services)
        monkeypatch.setattr(LithopsLauncher, "has_ended", look)
        monkeypatch.setattr(RedisBus, "receive", hear)


@pytest.mark.parametrize("loses", [False, True], ids=["late", "lost"])
def test_the_process_is_seen_to_end_first(loses: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = finish(job(**JOB))
    late = Late(monkeypatch, loses)
    monkeypatch.setattr(driver, "FINAL_MESSAGE_S", 0.05)
    run = mlless_nb.train(job(**JOB, budget=1.0))
    assert run.wait(PATIENCE_S) == "finished", run.reason
    assert late.is_over
    assert (late.n_lost > 0) == loses
    assert run.reason == plain.reason == f"all {STEPS} steps are done"
    assert run.history["step"].tolist() == list(range(1, STEPS + 1))
    for column in ("loss", "validation_loss", "epoch", "n_workers", "sent_bytes"):
        np.testing.assert_array_equal(run.history[column], plain.history[column])
    assert run.telemetry.state.validation_loss == plain.telemetry.state.validation_loss
    assert digest(run) == digest(plain)
    assert 0 < run.cost.total <= 1.0


def test_without_any_word_the_log_and_the_storage_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that was ever sent on the bus is lost, the workers' goodbyes among it."""
    late = Late(monkeypatch, loses=True)
    monkeypatch.setattr(driver, "FINAL_MESSAGE_S", 0.05)
    decode = Message.decode.__func__  # type: ignore[attr-defined]
    names: list[str] = []

    def without_goodbyes(cls: type[Message], body: bytes | str) -> Message:
        message: Message = decode(cls, body)
        names.append(type(message).__name__)
        return message if isinstance(message, Ended) or names[-1] != "Left" else mlless_nb.bus.messages.Started(0, 0.0)

    monkeypatch.setattr(Message, "decode", classmethod(without_goodbyes))
    run = finish(job(**JOB))
    assert late.n_lost
    assert "Left" in names
    assert run.status == "finished", run.reason
    assert run.reason.startswith(f"all {STEPS} steps are done")
    assert run.history["step"].tolist() == list(range(1, STEPS + 1))
    assert np.isfinite(run.model.predict([0], [0])).all()


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks at processes through /proc")
@pytest.mark.parametrize("slot", [pytest.param(2, marks=pytest.mark.long), -1], ids=["worker", "supervisor"])
def test_a_function_that_stands_still_is_waited_for(slot: int) -> None:
    run = mlless_nb.train(job(stop=Stop(steps=1_000_000), budget=1.0))
    wait_for_step(run, 20)
    pid = function_processes(group_of(run))[slot]
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(2.0)  # the fault itself: longer than the money of a slice lasts, so that it is paid late
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_for_step(run, run.telemetry.state.step + 20)
    run.stop()
    assert run.wait(PATIENCE_S) == "stopped", run.reason
    assert run.history["step"].tolist() == list(range(1, run.history.n_steps + 1))
