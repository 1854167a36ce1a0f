"""Processor time: a core for everyone, as in a cloud, or a few that all share, as on one machine."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any, Protocol

from .timeline import Timeline

#: Seconds of service by which two jobs that end together may differ.
_TOGETHER_S = 1e-12


class Cores(Protocol):
    """Where processor time is spent.

    Attributes
    ----------
    return_s : float
        What a process that waited has to spend to go on.
    """

    return_s: float

    def run(self, cpu_s: float, action: Callable[..., None], *arguments: Any) -> None:
        """Call ``action`` once a job of ``cpu_s`` seconds of one core, which begins now, is done."""


class OwnCore:
    """Every job has a core of its own.

    Parameters
    ----------
    timeline : Timeline
    speed : float
        Of a core; 1 is one on which the constants were measured.
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
        How much longer a job takes when many processes share the cores, and push each other's data out of the caches:
        ``1 + crowding * max(0, 1 - count / n_processes)`` times as long.
    switch_s : float
        Seconds that a process needs to be back on a core after it waited for many others; ``1 - 1 / n_processes`` of
        that with ``n_processes``.
    """

    def __init__(self, timeline: Timeline, count: int, crowding: float = 0.0, switch_s: float = 0.0) -> None:
        self._timeline, self._count = timeline, count
        self._crowding, self._switch_s = crowding, switch_s
        self._slowdown = 1.0
        #: What a process that waited has to spend now.
        self.return_s = 0.0
        self._jobs: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._n_made = 0
        self._attained_s = 0.0  # service that a job which was always there would have had
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
        # Another job only makes the next end later, which is found out then, unless it is itself the next to end.
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
            return  # a job that ends earlier has come since
        self._advance()
        done = []
        until_s = self._attained_s + _TOGETHER_S
        while self._jobs and self._jobs[0][0] <= until_s:
            done.append(heapq.heappop(self._jobs))
        if self._jobs:
            self._look_ahead()
        for _, _, action, arguments in done:
            action(*arguments)
