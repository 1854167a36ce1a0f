"""Waits for a run; an interrupt stops the run or only ends the waiting."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from .messages import detached_line, ended_line, is_live, left_line, stopping_line

if TYPE_CHECKING:
    from ..driver.run import TrainingRun

#: Seconds of one wait. The main thread handles an interrupt only between two waits, so they are short.
POLL_S = 0.05


def until_end(run: TrainingRun, timeout_s: float | None = None) -> bool:
    """Wait until ``run`` has ended or ``timeout_s`` seconds have passed; returns whether it has ended."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    while is_live(run):
        left = POLL_S if deadline is None else min(POLL_S, deadline - time.monotonic())
        if left <= 0:
            return False
        run.wait(timeout_s=left)
    return True


def wait_or_stop(run: TrainingRun, watch: Callable[[], object]) -> None:
    """Wait for the end of ``run``; an interrupt asks it to stop, a second one returns at once with a message.

    Parameters
    ----------
    run : TrainingRun
    watch : callable
        Shows the run; it may return at once or only at the end.
    """
    try:
        watch()
        until_end(run)
    except KeyboardInterrupt:
        try:
            run.stop()
            print(stopping_line(run), flush=True)
            until_end(run)
            print(ended_line(run), flush=True)
        except KeyboardInterrupt:
            print(left_line(run) if is_live(run) else ended_line(run), flush=True)


def wait_or_detach(run: TrainingRun, watch: Callable[[], object]) -> None:
    """Like `wait_or_stop`, but an interrupt only ends the waiting; the run goes on."""
    try:
        watch()
        until_end(run)
    except KeyboardInterrupt:
        print(detached_line(run) if is_live(run) else ended_line(run), flush=True)
