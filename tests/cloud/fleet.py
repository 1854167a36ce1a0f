"""All environments of the account: its quota, events that wait and are tried again, and a record of each invocation."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from pathlib import Path
from typing import Any

from cloud.environment import Environment, Work

#: Tries again after the first, and how long an event may wait, seconds, unless the function says otherwise.
RETRIES, EVENT_AGE_S = 2, 21_600
#: AWS' prices of x86 in us-east-1, US dollars for each GB and second, and for each request.
GB_S_USD, REQUEST_USD = 1.66667e-5, 2e-7


class Fleet:
    """The environments, in ``folder``; what happens is written to ``invocations.jsonl`` there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.quota, self.retry_after_s = 1000, 1.0
        self.megabit: float | None = None
        self._busy, self._has_room = 0, threading.Condition()
        self._idle: dict[str, list[Environment]] = {}
        self._running: dict[str, Environment] = {}
        self._log = (folder / "invocations.jsonl").open("a", buffering=1)

    def _note(self, **what: Any) -> None:
        self._log.write(json.dumps(what) + "\n")

    def change(self, name: str, value: Any) -> None:
        """Change the quota, the pause before an event is tried again, or the links of new environments."""
        with self._has_room:
            setattr(self, name, value)
            self._has_room.notify_all()

    def claim(self, wait_s: float) -> bool:
        """Take one place of the quota, within ``wait_s`` seconds."""
        with self._has_room:
            if not self._has_room.wait_for(lambda: self._busy < self.quota, wait_s):
                return False
            self._busy += 1
        return True

    def release(self) -> None:
        with self._has_room:
            self._busy -= 1
            self._has_room.notify()

    def run(self, function: dict[str, Any], request: str, payload: bytes, attempt: int = 0) -> Work:
        """One invocation, which has a place of the quota."""
        with self._has_room:
            idle = self._idle.get(function["FunctionName"])
            environment = idle.pop() if idle else None
        is_cold = environment is None
        told = json.loads(payload) if payload else {}
        calls = told.get("call_ids") if isinstance(told, dict) else None
        name = {"request": request, "function": function["FunctionName"], "calls": calls, "attempt": attempt}
        began_s = time.time()
        try:
            environment = environment or Environment(function, self._folder, self.megabit)
        except Exception as error:
            self._note(**name, event="failed", error=f"{type(error).__name__}: {error}")
            return Work(request, payload, error=str(error))
        with self._has_room:
            self._running[request] = environment
        self._note(**name, event="began", at_s=began_s, environment=environment.name, is_cold=is_cold)
        work = Work(request, payload)
        run_s = environment.run(work)
        init_s = environment.init_s if is_cold else 0.0
        billed_ms = int((run_s + init_s) * 1000) + 1
        self._note(
            **name,
            event="ended",
            at_s=time.time(),
            environment=environment.name,
            is_cold=is_cold,
            init_ms=round(init_s * 1000),
            billed_ms=billed_ms,
            memory_mb=function["MemorySize"],
            peak_mb=round(environment.peak_mb, 1),
            error=work.error,
            usd=billed_ms / 1000 * function["MemorySize"] / 1024 * GB_S_USD + REQUEST_USD,
        )
        with self._has_room:
            del self._running[request]
        is_broken = environment.has_ended.is_set() or (work.error is not None and "timed out" in work.error)
        if is_broken:
            environment.close()
        else:
            environment.freeze()
            with self._has_room:
                self._idle.setdefault(function["FunctionName"], []).append(environment)
        return work

    def event(self, function: dict[str, Any], request: str, payload: bytes) -> None:
        """An asynchronous invocation: waits for a place, and is tried again when it fails."""
        settings = function.get("event", {})
        give_up_at = time.monotonic() + settings.get("MaximumEventAgeInSeconds", EVENT_AGE_S)
        for attempt in range(1 + settings.get("MaximumRetryAttempts", RETRIES)):
            if not self.claim(give_up_at - time.monotonic()):
                self._note(request=request, event="dropped")
                return
            try:
                work = self.run(function, request, payload, attempt)
            finally:
                self.release()
            if work.error is None:
                return
            time.sleep(self.retry_after_s)

    def kill(self, request: str) -> bool:
        """Kill the sandbox that is at work on ``request``."""
        with self._has_room:
            environment = self._running.get(request)
        if environment is not None:
            self._note(request=request, event="killed", at_s=time.time())
            environment.kill()
        return environment is not None

    def forget(self, name: str | None = None) -> None:
        """End the warm environments of function ``name``, or all."""
        with self._has_room:
            names = list(self._idle) if name is None else [name]
            gone = [environment for each in names for environment in self._idle.pop(each, [])]
        for environment in gone:
            environment.close()

    def close(self) -> None:
        self.forget()
        for environment in list(self._running.values()):
            with contextlib.suppress(Exception):
                environment.close()
