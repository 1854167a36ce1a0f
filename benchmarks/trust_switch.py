"""Trust on and off, in turns of half a second: for `overhead.py`.

Functions import this module before they are forked. In the turns called "off" nobody looks for lost, slow and old
functions, and no checkpoint is announced; when it is due is counted all the same, or those that were due while trust
was off would be stored in the turns after. A frame without a checksum is none, so in the turns called "on" all that a
worker publishes and reads are computed a second time. Of each two turns one is on, at random which: what comes at even
intervals meets both alike.
"""

from __future__ import annotations

import functools
import os
import random
import time
from collections.abc import Callable
from typing import Any

from mlless_nb.exchange import Exchanged, RoundRequest
from mlless_nb.exchange.plan import NO_PLAN
from mlless_nb.exchange.redis.coordinator import RedisCoordinator
from mlless_nb.kernels import crc32c
from mlless_nb.supervisor.loop import Supervisor
from mlless_nb.supervisor.successors import Successors
from mlless_nb.supervisor.worker_watch import WorkerWatch

#: Seconds of a turn, by the clock of this machine.
TURN_S = 0.5


@functools.lru_cache(maxsize=8)
def _kinds(pair: int) -> tuple[str, str]:
    """The kinds of the two turns of a pair, the same in all processes."""
    return ("on", "off") if random.Random(pair).random() < 0.5 else ("off", "on")


def turn_at(time_s: float) -> tuple[int, int, str]:
    """The turn at ``time_s`` of the machine's clock: its pair, its place in it, and its kind."""
    pair, place = divmod(int(time_s / TURN_S), 2)
    return pair, place, _kinds(pair)[place]


def is_on() -> bool:
    """Whether trust is on now."""
    return turn_at(time.time())[2] == "on"


def unless_off(method: Callable[..., Any], instead: Any = None) -> Callable[..., Any]:
    """``method``, which does nothing but return ``instead`` while trust is off."""

    def do(*arguments: Any, **options: Any) -> Any:
        return method(*arguments, **options) if is_on() else instead

    return do


def install() -> None:
    """Replace the methods of functions, in this process and those that are forked from it."""
    instead = {
        (RedisCoordinator, "announce_checkpoint"): NO_PLAN,
        (Supervisor, "_speculate"): None,
        (Successors, "note"): None,
        (Successors, "watch_ages"): None,
        (WorkerWatch, "check_leases"): [],
    }
    for (kind, name), answer in instead.items():
        setattr(kind, name, unless_off(getattr(kind, name), answer))
    exchange = RedisCoordinator.exchange

    def exchange_and_check(log: RedisCoordinator, part: RoundRequest, pay: Callable[[], None]) -> Exchanged:
        done = exchange(log, part, pay)
        if is_on():
            for frame in (*(part.parts or {}).values(), part.frame, *done.frames):
                crc32c(frame)
        return done

    setattr(RedisCoordinator, "exchange", exchange_and_check)  # noqa: B010


if "trust_switch" in os.environ.get("MLLESS_PRELOAD", ""):  # a process from which functions are forked
    install()
