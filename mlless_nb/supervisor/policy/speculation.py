"""Speculation: which worker is so slow that a duplicate of it pays. Pure.

MapReduce starts a second copy of a task that lags behind (Dean and Ghemawat, "MapReduce", OSDI 2004, section 3.6).
Here a worker lags behind if, over a window of recent steps, its own work took ``times`` as long as that of the median
of the other workers. Waiting for others is no work: in lockstep all workers wait for the slowest.

A duplicate costs one function for the time that it takes to start; a straggler costs the time of all. So a duplicate
is asked for once the straggler has cost as much (as in the ski rental problem: at most twice the cost of what would
have been best), and only if at its pace it will cost more until the run ends. Noise does not look like that: the
slowest step of each worker is left out of the sums, which forgives one pause of any length; a window has at least
`LEAST_STEPS`; and the others must have waited for a fair share of it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

#: Steps at the start, and after a function was replaced, that are not looked at: caches are cold.
SKIPPED_STEPS = 3
#: Least steps of a window, and most, which bounds memory.
LEAST_STEPS, MOST_STEPS = 10, 10_000
#: Least time of all functions that a duplicate is worth, seconds.
LEAST_WORTH_S = 1.0
#: A window is so many times as long as what a duplicate is worth, but for the least steps.
WINDOW = 4.0
#: Least share of the window that the straggler cost.
LEAST_SHARE = 0.25
#: The time saved until the end of the run must be so many times what a duplicate is worth.
LEAST_GAIN = 2.0
#: Seconds of steps until the window is looked at again if nobody lags behind; it is several times as long.
WINDOW_CHECK_S = 1.0


class Straggler(NamedTuple):
    """A worker that lags behind.

    Attributes
    ----------
    slot : int
    times : float
        Its work took so many times that of the median of the other workers.
    lost_s : float
        Seconds for which it kept the others waiting, in the window.
    share : float
        The share of the window's duration that this is.
    """

    slot: int
    times: float
    lost_s: float
    share: float


def straggler_of(slots: list[int], work_s: NDArray[np.float64], span_s: float) -> Straggler:
    """The slowest worker of a window.

    Parameters
    ----------
    slots : list of int
        At least two.
    work_s : float64 (n_steps, n_slots)
        Seconds of each worker's own work in each step.
    span_s : float
        Duration of the window, seconds.
    """
    sums = work_s.sum(axis=0) - work_s.max(axis=0)
    slowest = int(sums.argmax())
    median_s = float(np.median(np.delete(sums, slowest)))
    lost_s = float(sums[slowest]) - median_s
    times = float(sums[slowest]) / median_s if median_s > 0 else math.inf if lost_s > 0 else 1.0
    return Straggler(slots[slowest], times, lost_s, lost_s / span_s if span_s > 0 else 0.0)


def worth_s(start_s: float, n_workers: int) -> float:
    """The time of all functions that costs as much as a duplicate which takes ``start_s`` to start, seconds."""
    return max(start_s / n_workers, LEAST_WORTH_S)


def pays(straggler: Straggler, times: float, n_workers: int, start_s: float, left_s: float) -> bool:
    """Whether a duplicate of ``straggler`` pays.

    Parameters
    ----------
    straggler : Straggler
    times : float
        A worker this many times slower than the median counts as a straggler.
    n_workers : int
    start_s : float
        Seconds that a duplicate takes to start.
    left_s : float
        Seconds until the run ends at its present pace; infinite if unknown.
    """
    least_s = worth_s(start_s, n_workers)
    return (
        straggler.times >= times
        and straggler.lost_s >= least_s
        and straggler.share >= LEAST_SHARE
        and straggler.share * (left_s - start_s) >= LEAST_GAIN * least_s
    )


class Speculation:
    """The window of one run's recent steps, and the slots that had their duplicate.

    A slot gets one duplicate in a run: if that is no quicker, the slot has more work to do, or a slower machine is all
    that there is.

    Parameters
    ----------
    times : float
        See `pays`; 0: no worker counts as a straggler.
    """

    def __init__(self, times: float) -> None:
        self._times = times
        self._slots: list[int] = []
        self._steps: deque[tuple[float, list[float]]] = deque(maxlen=MOST_STEPS)  # duration and each worker's work
        self._n_skipped, self._ended_s = 0, math.nan
        self._looked_s = -math.inf  # the end of the newest step of the last window in which nobody lagged behind
        #: Slots that a duplicate was asked for.
        self.asked: set[int] = set()

    def forget(self) -> None:
        """Begin a new window: functions were replaced."""
        self._steps.clear()
        self._n_skipped, self._ended_s = 0, math.nan
        self._looked_s = -math.inf

    def note(self, at_s: float, work_s: Mapping[int, float]) -> None:
        """A step ended ``at_s`` (any clock, seconds), in which each slot worked for ``work_s``."""
        slots = sorted(work_s)
        if slots != self._slots:
            self._slots = slots
            self.forget()
        self._n_skipped += 1
        if self._n_skipped > SKIPPED_STEPS:
            # Under bounded staleness steps may be reported a little out of order.
            self._steps.append((max(at_s - self._ended_s, 0.0), [work_s[slot] for slot in slots]))
        self._ended_s = at_s

    def ask(self, start_s: float, left_s: float, barred: set[int]) -> Straggler | None:
        """The straggler that is to have a duplicate now, None if there is none. Each slot is returned once.

        Parameters
        ----------
        start_s : float
            Longest start of a function so far, seconds.
        left_s : float
            See `pays`.
        barred : set of int
            Slots that are to have none: they leave, or have a successor that waits.
        """
        if not self._times or len(self._slots) < 2 or not self._ended_s >= self._looked_s + WINDOW_CHECK_S:
            return None
        n_workers = len(self._slots)
        window_s = WINDOW * worth_s(start_s, n_workers)
        span_s = sum(duration_s for duration_s, _ in self._steps)
        while len(self._steps) > LEAST_STEPS and span_s - self._steps[0][0] >= window_s:
            span_s -= self._steps.popleft()[0]
        if len(self._steps) < LEAST_STEPS:
            return None
        straggler = straggler_of(self._slots, np.array([work for _, work in self._steps]), span_s)
        if not pays(straggler, self._times, n_workers, start_s, left_s):
            self._looked_s = self._ended_s
            return None
        if straggler.slot in self.asked | barred:
            return None
        self.asked.add(straggler.slot)
        return straggler
