"""Trust on and off, in turns of a fifth of a second: for `overhead.py`.

Functions import this module before they are forked. In the turns called "off" nobody looks for lost, slow and old
functions, no checkpoint is announced, and no checksum of a frame is computed (`switched_kernels`). When a checkpoint is
due is counted all the same, or those that were due while trust was off would be stored in the turns after. Of each two
turns one is on, at random which: what comes at even intervals meets both alike.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from switched_kernels import FOLDER_VARIABLE, swap

from mlless_nb.exchange.plan import NO_PLAN
from mlless_nb.exchange.redis.coordinator import RedisCoordinator
from mlless_nb.supervisor.loop import Supervisor
from mlless_nb.supervisor.successors import Successors
from mlless_nb.supervisor.worker_watch import WorkerWatch

#: Seconds of a turn, by this machine's clock. The shorter turns are, the more alike is what other load does to both
#: of a pair; what a checkpoint writes beside the next steps must fall into its own turn all the same.
TURN_S = 0.2


def turn_at(time_s: float) -> tuple[int, int, str]:
    """The turn at ``time_s`` of the machine's clock: its pair, place and kind, as in ``checksum_turns.h``."""
    pair, place = divmod(int(time_s / TURN_S), 2)
    mixed = pair * 0x9E3779B97F4A7C15 % 2**64
    is_first = (mixed ^ mixed >> 32) * 0xD6E8FEB86659FD93 % 2**64 >> 63
    return pair, place, "on" if is_first ^ place else "off"


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
    swap(Path(os.environ[FOLDER_VARIABLE]))


if "trust_switch" in os.environ.get("MLLESS_PRELOAD", ""):  # a process from which functions are forked
    install()
