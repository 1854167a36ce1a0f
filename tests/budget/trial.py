"""One trial: a driver process of its own, and all that it starts, seen by an observer."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from budget.observer import HERE, PATIENCE_S, Observer, TrueBill, true_bill, until_missed
from engine.jobs import job


class Trial:
    """A run that a driver process trains.

    Parameters
    ----------
    skew_s : float
        How far the clocks of its processes are off.
    **told : JSON values
        What the driver is told, see `driven`.
    """

    def __init__(self, *, skew_s: float = 0.0, **told: Any) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="mlless-trial-")
        self.observer = Observer(Path(self._folder.name))
        self.lines: list[dict[str, Any]] = []
        self.driver_ended_s = math.inf
        self.driver = subprocess.Popen(
            [sys.executable, str(HERE / "driven.py"), json.dumps(told)],
            stdout=subprocess.PIPE,
            text=True,
            env=self.observer.environment(skew_s),
        )
        self._may_die = told.get("then") in ("return", "raise", "die", "be interrupted")
        self._cap = float(told.get("cap") or 0.0)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.driver.stdout is not None
        for line in self.driver.stdout:
            self.lines.append(json.loads(line))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.driver.kill()
        self.driver.wait()
        for life in self.observer.lives:
            if life.died_s is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(life.pid, signal.SIGKILL)
        self.observer.wait(self.observer.are_gone, 10.0)
        self.observer.close()
        self._folder.cleanup()

    def kill(self, slot: int) -> bool:
        """Kill the function of ``slot``, -1 is the supervisor; whether there was one."""
        victims = self.observer.functions(slot)
        for life in victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(life.pid, signal.SIGKILL)
        return bool(victims)

    def finish(self) -> dict[str, Any]:
        """Wait until the driver and all of its processes have ended; its last line, empty if it said nothing."""
        self.driver.wait(2 * PATIENCE_S)
        self.driver_ended_s = time.monotonic()
        self._reader.join(PATIENCE_S)
        assert self.observer.wait(self.observer.are_gone, PATIENCE_S), "processes are left"
        said = next((line for line in reversed(self.lines) if "status" in line), {})
        assert said or self._may_die or self.driver.returncode == -signal.SIGKILL, "the driver has failed"
        return said

    @property
    def bill_of_needed(self) -> TrueBill:
        """The same, without functions that had nothing to do."""
        spans = [span for span in until_missed(self.observer.spans()) if not span.was_in_vain]
        return true_bill(spans, self.observer.lives, self._memory_mb)

    def has_said(self, word: str) -> bool:
        """Whether the driver has said something of this kind, or has ended."""
        return any(word in line for line in self.lines) or self.driver.poll() is not None

    @property
    def _memory_mb(self) -> int:
        return next((line["memory_mb"] for line in self.lines if "memory_mb" in line), job().memory_mb)

    @property
    def cap(self) -> float:
        """The highest cap that was in force, US dollars."""
        return max([self._cap, *(line["cap"] for line in self.lines if "cap" in line)])

    @property
    def bill(self) -> TrueBill:
        """The bill by the processes' lives."""
        return true_bill(self.observer.spans(), self.observer.lives, self._memory_mb)

    @property
    def bill_until_missed(self) -> TrueBill:
        """The same, with functions that were killed billed until they were missed."""
        return true_bill(until_missed(self.observer.spans()), self.observer.lives, self._memory_mb)
