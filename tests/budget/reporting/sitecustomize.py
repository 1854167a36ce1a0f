"""Python imports this when it starts, in every process of a trial: it tells an observer what the process does.

``MLLESS_OBSERVER`` is the observer's socket. Each process has a connection of its own, which the system closes when it
dies, however it dies: so its life is known to the moment without its help. A function says which slot it has, and each
request to the object storage. ``MLLESS_CLOCK_SKEW_S`` sets the process' clocks forward or back by so many seconds.
"""

from __future__ import annotations

import json
import os
import random
import socket
import sys
import time
from typing import Any

import unpickling

SOCKET, SKEW_S = "MLLESS_OBSERVER", "MLLESS_CLOCK_SKEW_S"


def skew(seconds: float) -> None:
    """Set this process' clocks off by ``seconds``, as if it ran on another machine.

    No machine has a monotonic clock below 0, and pika refuses one: it is set back to the machine's start at most.
    """
    for name, by_s in (("time", seconds), ("monotonic", max(seconds, -time.monotonic()))):
        read = getattr(time, name)
        setattr(time, name, lambda read=read, by_s=by_s: read() + by_s)


class Reporter:
    """This process' connection to the observer."""

    def __init__(self) -> None:
        self._connection: socket.socket | None = None
        self.introduce()

    def introduce(self) -> None:
        """Connect, and say which process this is."""
        if self._connection is not None:
            self._connection.close()  # the parent's
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(os.environ[SOCKET])
        self.say(pid=os.getpid(), group=os.getpgid(0), parent=os.getppid())
        self.follow()

    def say(self, **facts: Any) -> None:
        """Send ``facts``."""
        assert self._connection is not None
        self._connection.sendall(json.dumps(facts).encode() + b"\n")

    @staticmethod
    def slot_of(invocation: dict[str, Any]) -> Any:
        """The slot of a function that is told this; one that lives for a step has an index instead."""
        return invocation.get("slot", invocation.get("index"))

    def follow(self) -> None:
        """From now on say what modules that are loaded do: functions, and requests to the storage."""
        entry, objects = (sys.modules.get(f"mlless_nb.{name}") for name in ("function.entry", "storage.objects"))
        if entry is not None and not hasattr(entry, "unobserved"):
            entry.unobserved = entry.run_function  # type: ignore[attr-defined]
            entry.run_function = _run_function  # type: ignore[attr-defined]
        if objects is not None and not hasattr(objects, "uncounted"):
            objects.uncounted = objects.LithopsObjects.count  # type: ignore[attr-defined]
            objects.LithopsObjects.count = _count  # type: ignore[attr-defined]


def _run_function(payload: str, storage: Any) -> str:
    """Stands for the function of this name; Lithops looks at the names of its parameters."""
    entry: Any = sys.modules["mlless_nb.function.entry"]
    invocation = entry.Message.decode(payload)
    reporter.say(slot=reporter.slot_of(vars(invocation)), kind=type(invocation).__name__)
    said = None
    try:
        said = str(entry.unobserved(payload, storage))
        return said
    finally:
        # By the machine's clock, which is not set off: on a busy machine it is heard later.
        reporter.say(returned_s=time.clock_gettime(time.CLOCK_MONOTONIC), in_vain=said == "")


def _count(objects: Any, *, gets: int = 0, puts: int = 0) -> None:
    """Stands for the method of this name."""
    reporter.say(gets=gets, puts=puts)
    sys.modules["mlless_nb.storage.objects"].uncounted(objects, gets=gets, puts=puts)


unpickling.install()
if SOCKET in os.environ:
    if SKEW_S in os.environ:
        skew(random.choice((-1.0, 1.0)) * float(os.environ[SKEW_S]))
    reporter = Reporter()
    os.register_at_fork(after_in_child=reporter.introduce)
