"""Trust on, off, and with its checksums twice, in turns of half a second: for `overhead.py`.

Functions import this module before they are forked. In the turns called "off" nobody looks for lost, slow and old
functions, and no checkpoint is stored. A frame without a checksum is none, so in those called "twice" all that a worker
publishes and reads are computed a second time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from mlless_nb.exchange import Exchanged, RoundRequest
from mlless_nb.exchange.redis.coordinator import RedisCoordinator
from mlless_nb.kernels import crc32c
from mlless_nb.supervisor.loop import Supervisor
from mlless_nb.supervisor.successors import Successors
from mlless_nb.supervisor.worker_watch import WorkerWatch

#: Seconds of a turn, by the clock of this machine.
TURN_S = 0.5
#: The turns of a cycle; what grows or falls evenly meanwhile hits all alike.
CYCLE = ("off", "on", "twice", "twice", "on", "off")


def turn_at(time_s: float) -> int:
    """The number of the turn in its cycle, at ``time_s`` of the machine's clock."""
    return int(time_s / TURN_S) % len(CYCLE)


def is_now(kind: str) -> bool:
    """Whether it is a turn of this ``kind``."""
    return CYCLE[turn_at(time.time())] == kind


def unless_off(method: Callable[..., Any], instead: Any = None) -> Callable[..., Any]:
    """``method``, which does nothing but return ``instead`` while trust is off."""

    def do(*arguments: Any, **options: Any) -> Any:
        return instead if is_now("off") else method(*arguments, **options)

    return do


def install() -> None:
    """Replace the methods of functions, in this process and those that are forked from it."""
    for kind, name in (
        (Supervisor, "_save"),
        (Supervisor, "_speculate"),
        (Successors, "note"),
        (Successors, "watch_ages"),
    ):
        setattr(kind, name, unless_off(getattr(kind, name)))
    setattr(WorkerWatch, "check_leases", unless_off(WorkerWatch.check_leases, []))  # noqa: B010 - no assignment: types
    exchange = RedisCoordinator.exchange

    def exchange_and_check(log: RedisCoordinator, part: RoundRequest, pay: Callable[[], None]) -> Exchanged:
        done = exchange(log, part, pay)
        if is_now("twice"):
            for frame in (*(part.parts or {}).values(), part.frame, *done.frames):
                crc32c(frame)
        return done

    setattr(RedisCoordinator, "exchange", exchange_and_check)  # noqa: B010


if "trust_switch" in os.environ.get("MLLESS_PRELOAD", ""):  # a process from which functions are forked
    install()
