"""The history that the policy works on: the columns of the rows that it needs, as growing arrays. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...telemetry.live import COLUMNS

Float64 = NDArray[np.float64]

NAMES = ("step", "epoch", "time_s", "loss", "validation_loss", "n_workers", "spent_usd", "compute_cpu_s", "interaction")
_PICKED = [COLUMNS.index(name) for name in NAMES]
#: Evaluations of held-out rows from which on they are judged, and no longer the training loss.
LEAST_EVALUATIONS = 5
#: Blocks between which step times are compared, and the least rows of one.
BLOCKS, LEAST_BLOCK = 8, 10


class Judged(NamedTuple):
    """The losses that decisions are made on: of held-out rows where they are evaluated, else of training.

    Attributes
    ----------
    steps, losses : float64 (n,)
    is_validation : bool
    """

    steps: Float64
    losses: Float64
    is_validation: bool

    def since(self, step: float) -> Judged:
        """What came after ``step``."""
        first = int(np.searchsorted(self.steps, step, side="right"))
        return Judged(self.steps[first:], self.losses[first:], self.is_validation)


class History:
    """Rows of telemetry, in the order of their steps; ``has_held_out`` rows or not, evaluated yet or not."""

    def __init__(self, has_held_out: bool = False) -> None:
        self.has_held_out = has_held_out
        self._block = np.empty((len(NAMES), 256))
        self._evaluated = np.empty((3, 64))
        self.n = self.n_evaluations = 0
        self.is_finite = True

    def append(self, row: Sequence[float | None]) -> None:
        """Add a row, as `mlless_nb.telemetry.live.COLUMNS` lays it out."""
        if self.n == self._block.shape[1]:
            self._block = np.concatenate((self._block, np.empty_like(self._block)), axis=1)
        values = [math.nan if (value := row[index]) is None else value for index in _PICKED]
        self._block[:, self.n] = values
        step, loss, validation, interaction = (values[index] for index in (0, 3, 4, -1))
        self.n += 1
        self.is_finite &= math.isfinite(loss)
        if validation == validation:
            if self.n_evaluations == self._evaluated.shape[1]:
                self._evaluated = np.concatenate((self._evaluated, np.empty_like(self._evaluated)), axis=1)
            self._evaluated[:, self.n_evaluations] = step, validation, interaction
            self.n_evaluations += 1
            self.is_finite &= math.isfinite(validation)

    def column(self, name: str) -> Float64:
        """A column as a view, float64 (n,)."""
        return self._block[NAMES.index(name), : self.n]

    def last(self, name: str) -> float:
        """The newest value of a column."""
        return float(self._block[NAMES.index(name), self.n - 1])

    @property
    def training(self) -> Judged:
        """Training losses, one a step."""
        return Judged(self.column("step"), self.column("loss"), False)

    @property
    def judged(self) -> Judged:
        """The losses to decide on."""
        if self.n_evaluations < LEAST_EVALUATIONS:
            return self.training
        steps, losses = self._evaluated[:2, : self.n_evaluations]
        return Judged(steps, losses, True)

    @property
    def interactions(self) -> Float64:
        """Held-out losses, and what products of parameters made of the predictions, at each evaluation: (2, n)."""
        return self._evaluated[1:, : self.n_evaluations]

    def step_s(self, first: int = 0) -> float:
        """Seconds a step since row ``first``: the mean without the slowest twentieth, NaN of fewer than two rows."""
        times = self.column("time_s")[first:]
        if len(times) < 2:
            return float("nan")
        durations = np.sort(np.diff(times))
        return float(durations[: max(len(durations) - len(durations) // 20, 1)].mean())

    def step_variation(self, first: int = 0) -> float:
        """How much the mean step time varies between blocks of rows since ``first``, as a share of it; 0 of few rows.

        Steps that others on the machine slow down do so together, hence blocks.
        """
        times = self.column("time_s")[first:]
        size = max(len(times) // BLOCKS, LEAST_BLOCK)
        blocks = np.diff(times[::size])
        return float(blocks.std() / max(blocks.mean(), 1e-12)) if len(blocks) > 1 else 0.0

    def since_change(self) -> int:
        """The first row with the present number of workers."""
        workers = self.column("n_workers")
        changed = np.flatnonzero(workers != workers[-1])
        return int(changed[-1]) + 1 if len(changed) else 0
