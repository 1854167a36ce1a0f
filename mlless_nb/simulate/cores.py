"""Processor time: one core for each process, as in a cloud, or a few shared cores, as on one machine."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any, Protocol

from .timeline import Timeline

#: Two jobs end together if their service differs by at most this, seconds.
_TOGETHER_S = 1e-12


class Cores(Protocol):
    """Runs jobs that need processor time.

    Attributes
    ----------
    return_s : float
        Processor time that a process needs to continue after waiting, seconds.
    """

    return_s: float

    def run(self, cpu_s: float, action: Callable[..., None], *arguments: Any) -> None:
        """Start a job of ``cpu_s`` seconds of one core now, and call ``action`` once it is done."""


class OwnCore:
    """Every job has its own core.

    Parameters
    ----------
    timeline : Timeline
    speed : float
        Speed of a core, relative to the one on which the constants were measured.
    """

    def __init__(self, timeline: Timeline, speed: float = 1.0) -> None:
        self._timeline, self._speed = timeline, speed
        self.return_s = 0.0

    def run(self, cpu_s: float, action: Callable[..., None], *arguments: Any) -> None:
        """See `Cores`."""
        self._timeline.after(cpu_s / self._speed, action, *arguments)


class SharedCores:
    """``count`` cores shared evenly by all jobs: with ``n`` of them each runs at ``min(1, count / n)``.

    Parameters
    ----------
    timeline : Timeline
    count : int
    crowding : float
        A job takes ``1 + crowding * max(0, 1 - count / n_processes)`` times as long when many processes share the
        cores, because they evict each other's data from the caches.
    switch_s : float
        A process that waited for ``n_processes`` needs ``switch_s * (1 - 1 / n_processes)`` seconds to continue.
    """

    def __init__(self, timeline: Timeline, count: int, crowding: float = 0.0, switch_s: float = 0.0) -> None:
        self._timeline, self._count = timeline, count
        self._crowding, self._switch_s = crowding, switch_s
        self._slowdown = 1.0
        #: Processor time that a process needs to continue after waiting, seconds.
        self.return_s = 0.0
        self._jobs: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._n_made = 0
        self._attained_s = 0.0  # service of a job that runs since the start
        self._looked_at_s = 0.0
        self._plan = 0
        #: Core-seconds used.
        self.busy_s = 0.0

    def share(self, n_processes: int) -> None:
        """From now on ``n_processes`` share the cores."""
        n = max(n_processes, 1)
        self._slowdown = 1.0 + self._crowding * max(0.0, 1.0 - self._count / n)
        self.return_s = self._switch_s * (1.0 - 1.0 / n)

    def run(self, cpu_s: float, action: Callable[..., None], *arguments: Any) -> None:
        """See `Cores`."""
        self._advance()
        self._n_made += 1
        end_s = self._attained_s + cpu_s * self._slowdown
        heapq.heappush(self._jobs, (end_s, self._n_made, action, arguments))
        # A new job only delays the next end, which is corrected then, unless the new job is the next to end.
        if self._jobs[0][1] == self._n_made:
            self._look_ahead()

    def _advance(self) -> None:
        now, n_jobs, count = self._timeline.now, len(self._jobs), self._count
        passed_s = now - self._looked_at_s
        self._looked_at_s = now
        if n_jobs > count:
            self._attained_s += passed_s * count / n_jobs
            self.busy_s += passed_s * count
        elif n_jobs:
            self._attained_s += passed_s
            self.busy_s += passed_s * n_jobs

    def _look_ahead(self) -> None:
        self._plan += 1
        left_s = max(self._jobs[0][0] - self._attained_s, 0.0)
        self._timeline.after(left_s * max(1.0, len(self._jobs) / self._count), self._end, self._plan)

    def _end(self, plan: int) -> None:
        if plan != self._plan:
            return  # a job that ends earlier was added since
        self._advance()
        done = []
        until_s = self._attained_s + _TOGETHER_S
        while self._jobs and self._jobs[0][0] <= until_s:
            done.append(heapq.heappop(self._jobs))
        if self._jobs:
            self._look_ahead()
        for _, _, action, arguments in done:
            action(*arguments)
