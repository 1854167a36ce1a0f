"""Times the steps of replicas in this process, alone and sharing the machine's caches, and the start of functions."""

from __future__ import annotations

import functools
import os
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..data.minibatches import Minibatch
from ..driver.backends.interpreter import interpreter
from ..exchange.stats import NO_STATS
from ..worker.replica import Replica

#: Fewest steps that are timed.
LEAST_TIMED = 3
#: Seconds between two steps, about as long as a worker waits for Redis: then it finds less of its data in the core's
#: caches, and its step takes up to a third longer.
PAUSE_S = 150e-6
#: Replicas that take turns on a core of a crowded machine, and most bytes of parameters that all of them may have.
REPLICAS_EACH, CROWD_BYTES = 3, 1 << 30
#: Longest time that the start of an interpreter may take, seconds.
START_PATIENCE_S = 60.0


class TimedStep(NamedTuple):
    """Medians over the timed steps: seconds of one core to make an update, to apply a peer's, and its size in bytes."""

    make_s: float
    apply_s: float
    n_bytes: float


def n_cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def loaded_s(modules: Sequence[str] = ()) -> float:
    """Seconds until an interpreter of local functions has imported what they need, and ``modules``.

    Machines differ in it by half, and the same one from hour to hour. Nothing is run in it. The first one of a process
    is not timed: it may have to compile the modules, or to read them from a disk, and those of runs then need not.

    Raises
    ------
    OSError, subprocess.SubprocessError
        It cannot be started, or one of the modules cannot be imported.
    """
    program = interpreter(modules)
    _start_once(program)
    began = time.perf_counter()
    _start(program)
    return time.perf_counter() - began


def _start(program: str) -> None:
    command = [program, os.devnull]
    subprocess.run(command, check=True, timeout=START_PATIENCE_S, stdin=subprocess.DEVNULL, capture_output=True)


@functools.cache
def _start_once(program: str) -> None:
    """Start ``program``, the first time that this is called."""
    _start(program)


def timed(
    replicas: Sequence[Replica], minibatches: Sequence[Minibatch], local_steps: int, seconds: float, n_workers: int = 2
) -> TimedStep:
    """Time steps of ``replicas``, which take turns, for about ``seconds`` in this thread.

    Each does what worker 0 of ``n_workers`` does in a step: one that is alone encodes nothing and has no peers.
    """
    make_s, apply_s, n_bytes = [], [], []
    until = time.monotonic() + seconds
    step = turn = 0
    while step < LEAST_TIMED or time.monotonic() < until:
        replica = replicas[turn % len(replicas)]
        turn += 1
        step = -(-turn // len(replicas))
        taken = [minibatches[(turn * local_steps + i) % len(minibatches)] for i in range(local_steps)]
        frames = []
        time.sleep(PAUSE_S)
        began = time.thread_time()
        replica.make(taken, step, n_workers)
        if n_workers > 1:
            frames.append(replica.encode(step, NO_STATS))
        replica.apply([0], [], NO_STATS)
        made = time.thread_time()
        for frame in frames:
            replica.apply([1], [frame], NO_STATS)
        applied = time.thread_time()
        replica.finish(step, n_workers)
        make_s.append(made - began + time.thread_time() - applied)
        apply_s.append(applied - made)
        n_bytes.append(sum(map(len, frames)))
    return TimedStep(statistics.median(make_s), statistics.median(apply_s), statistics.median(n_bytes))


def crowded(
    make_replica: Callable[[], Replica], minibatches: Sequence[Minibatch], local_steps: int, seconds: float
) -> TimedStep:
    """`timed` with several replicas, as on a core that workers share.

    A replica that has a core to itself keeps its tables in that core's cache. Workers that share cores do not, and a
    step of theirs can take twice as long. One thread takes all turns: several would wait for the interpreter's lock,
    which functions do not share.
    """
    first = make_replica()
    n_replicas = min(max(CROWD_BYTES // max(first.params.nbytes, 1), 1), REPLICAS_EACH)
    return timed([first, *(make_replica() for _ in range(n_replicas - 1))], minibatches, local_steps, seconds)
