"""The best replica so far by validation loss, kept in the worker's memory: it is what a run returns."""

from __future__ import annotations

import math

from .replica import Replica, Snapshot


class BestReplica:
    """Snapshots of one worker's replica at its evaluations: the best one, and those that are not judged yet.

    The validation loss of an evaluation is known once every worker has told its part, a step later, or with bounded
    staleness some steps later. All workers judge the same losses, so all keep the same step.

    Parameters
    ----------
    replica : Replica

    Attributes
    ----------
    step : int or None
        The step after which the best one was taken; None before there is one.
    loss : float
        Its validation loss.
    """

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self.step: int | None = None
        self.loss = math.inf
        self._best: Snapshot | None = None
        self._unjudged: dict[int, Snapshot] = {}
        self._free: list[Snapshot] = []

    def take(self, step: int) -> None:
        """The replica is evaluated after ``step``: keep how it is."""
        self._unjudged[step] = self._replica.snapshot(self._free.pop() if self._free else None)

    def judge(self, step: int, loss: float) -> None:
        """The evaluation after ``step`` found this validation loss."""
        snapshot = self._unjudged.pop(step, None)
        if snapshot is None:
            return
        if loss < self.loss:  # False for NaN
            self.step, self.loss = step, loss
            snapshot, self._best = self._best, snapshot
        if snapshot is not None:
            self._free.append(snapshot)

    @property
    def exists(self) -> bool:
        """Whether there is a best one."""
        return self._best is not None

    def swap(self) -> None:
        """Exchange the replica and the best one; a second time undoes it."""
        assert self._best is not None
        current = self._replica.snapshot(self._free.pop() if self._free else None)
        self._replica.restore(self._best)
        self._free.append(self._best)
        self._best = current
