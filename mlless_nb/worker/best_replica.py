"""The replica with the best validation loss so far, kept in the worker's memory. A run returns it."""

from __future__ import annotations

import math

from .replica import Replica
from .table_layout import Snapshot


class BestReplica:
    """Snapshots of one worker's replica at its evaluations: the best one, and those whose loss is not known yet.

    The validation loss of an evaluation is known once every worker has sent its part: one step later, or some steps
    later with bounded staleness. All workers compare the same losses, so all keep the snapshot of the same step.

    Parameters
    ----------
    replica : Replica

    Attributes
    ----------
    step : int or None
        The step after which the best snapshot was taken; None before there is one.
    loss : float
        Validation loss of the best snapshot.
    """

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self.step: int | None = None
        self.loss = math.inf
        self._best: Snapshot | None = None
        self._unjudged: dict[int, Snapshot] = {}
        self._free: list[Snapshot] = []

    def take(self, step: int) -> None:
        """Take a snapshot of the replica, which is evaluated after ``step``."""
        self._unjudged[step] = self._replica.snapshot(self._free.pop() if self._free else None)

    def judge(self, step: int, loss: float) -> None:
        """Compare the snapshot of ``step``, whose validation loss is now known, with the best one."""
        snapshot = self._unjudged.pop(step, None)
        if snapshot is None:
            return
        if loss < self.loss:  # False for NaN
            self.step, self.loss = step, loss
            snapshot, self._best = self._best, snapshot
        if snapshot is not None:
            self._free.append(snapshot)

    def snapshots(self) -> dict[str, Snapshot]:
        """All snapshots by name: "best", and the step of those whose loss is not known yet."""
        best = {} if self._best is None else {"best": self._best}
        return best | {str(step): snapshot for step, snapshot in self._unjudged.items()}

    def resume(self, step: int | None, loss: float, snapshots: dict[str, Snapshot]) -> None:
        """Go on with these ``snapshots``; the best one is of ``step`` and has this ``loss``."""
        self.step, self.loss, self._best = step, loss, snapshots.pop("best", None)
        self._unjudged = {int(name): snapshot for name, snapshot in snapshots.items()}

    @property
    def exists(self) -> bool:
        """Whether there is a best snapshot."""
        return self._best is not None

    def swap(self) -> None:
        """Exchange the replica and the best snapshot; a second call undoes it."""
        assert self._best is not None
        current = self._replica.snapshot(self._free.pop() if self._free else None)
        self._replica.restore(self._best)
        self._free.append(self._best)
        self._best = current
