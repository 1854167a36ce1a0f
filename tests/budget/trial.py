"""One trial: a driver process of its own, and all that it starts, seen by an observer."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from budget.observer import HERE, PATIENCE_S, Life, Observer, Span, TrueBill, true_bill, until_missed
from engine.jobs import job


class Trial:
    """A run that a driver process trains.

    Parameters
    ----------
    skew_s : float
        How far the clocks of its processes are off.
    folder : Path or None
        For what its processes keep; None: where those of this process do.
    **told : JSON values
        What the driver is told, see `driven`.
    """

    def __init__(self, *, skew_s: float = 0.0, folder: Path | None = None, **told: Any) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="mlless-trial-")
        self.observer = Observer(Path(self._folder.name))
        self.lines: list[dict[str, Any]] = []
        self.driver = subprocess.Popen(
            [sys.executable, str(HERE / "driven.py"), json.dumps(told)],
            stdout=subprocess.PIPE,
            text=True,
            env=self.observer.environment(skew_s, folder),
        )
        self._may_die = told.get("then") in ("return", "raise", "die", "be interrupted")
        self._cap = float(told.get("cap") or 0.0)
        has_redis = told.get("redis") or told.get("store") != "storage"
        self.servers = ["redis"] * bool(has_redis) + ["broker"] * bool(told.get("bus"))
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
        self._reader.join(PATIENCE_S)
        assert self.observer.wait(self.observer.are_gone, PATIENCE_S), "processes are left"
        said = next((line for line in reversed(self.lines) if "status" in line), {})
        assert said or self._may_die or self.driver.returncode == -signal.SIGKILL, "the driver has failed"
        return said

    def least_usd(self) -> float:
        """The least budget of such a run, US dollars, as its refusal says it."""
        said = re.search(r"at least ([\d.e-]+)", self.finish()["reason"])
        assert said is not None
        return float(said[1])

    def has_said(self, word: str) -> bool:
        """Whether the driver has said something of this kind, or has ended."""
        return any(word in line for line in self.lines) or self.driver.poll() is not None

    @property
    def memory_mb(self) -> int:
        """Memory of its functions, MB."""
        return next((line["memory_mb"] for line in self.lines if "memory_mb" in line), job().memory_mb)

    @property
    def reserved(self) -> float | None:
        """What was reserved of the budget once all functions had ended, US dollars; None if the driver did not say.

        Without what the driver had reserved for its own requests, and did not make.
        """
        said = {name: float(line[name]) for line in self.lines for name in ("reserved", "kept") if name in line}
        return said["reserved"] - said.get("kept", 0.0) if "reserved" in said else None

    @property
    def cap(self) -> float:
        """The highest cap that was in force, US dollars."""
        return max([self._cap, *(line["cap"] for line in self.lines if "cap" in line)])

    def _bill_of(self, spans: list[Span], lives: list[Life] | None = None) -> TrueBill:
        return true_bill(spans, self.observer.lives if lives is None else lives, self.memory_mb, self.servers)

    @property
    def bill(self) -> TrueBill:
        """The bill by the processes' lives."""
        return self._bill_of(self.observer.spans())

    @property
    def bill_until_missed(self) -> TrueBill:
        """The same, with functions that were killed billed until they were missed."""
        return self._bill_of(until_missed(self.observer.spans()))

    @property
    def bill_of_needed(self) -> TrueBill:
        """The bill by the processes' lives, without functions that had nothing to do."""
        return self._bill_of([span for span in self.observer.spans() if not span.was_in_vain])
