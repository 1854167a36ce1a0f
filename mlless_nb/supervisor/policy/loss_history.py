"""The policy's history of a run: the columns of the telemetry rows that it needs, as growing arrays. Pure."""

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
#: Least evaluations of held-out rows; before that the training loss is judged.
LEAST_EVALUATIONS = 5
#: Blocks whose step times are compared, and the least rows of a block.
BLOCKS, LEAST_BLOCK = 8, 10


class Judged(NamedTuple):
    """The losses that decisions are based on: validation losses if held-out rows are evaluated, else training losses.

    Attributes
    ----------
    steps, losses : float64 (n,)
    is_validation : bool
    """

    steps: Float64
    losses: Float64
    is_validation: bool

    def since(self, step: float) -> Judged:
        """The losses after ``step``."""
        first = int(np.searchsorted(self.steps, step, side="right"))
        return Judged(self.steps[first:], self.losses[first:], self.is_validation)


class History:
    """Telemetry rows in the order of their steps; ``has_held_out`` says whether the job has held-out rows."""

    def __init__(self, has_held_out: bool = False) -> None:
        self.has_held_out = has_held_out
        self._block = np.empty((len(NAMES), 256))
        self._evaluated = np.empty((3, 64))
        self.n = self.n_evaluations = 0
        self.is_finite = True

    def append(self, row: Sequence[float | None]) -> None:
        """Append a row, with the columns of `mlless_nb.telemetry.live.COLUMNS`."""
        if self.n == self._block.shape[1]:
            self._block = _doubled(self._block)
        values = [math.nan if (value := row[index]) is None else value for index in _PICKED]
        self._block[:, self.n] = values
        step, loss, validation, interaction = (values[index] for index in (0, 3, 4, -1))
        self.n += 1
        self.is_finite &= math.isfinite(loss)
        if validation == validation:
            if self.n_evaluations == self._evaluated.shape[1]:
                self._evaluated = _doubled(self._evaluated)
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
        """Training losses, one per step."""
        return Judged(self.column("step"), self.column("loss"), False)

    @property
    def judged(self) -> Judged:
        """The losses that decisions are based on."""
        if self.n_evaluations < LEAST_EVALUATIONS:
            return self.training
        steps, losses = self._evaluated[:2, : self.n_evaluations]
        return Judged(steps, losses, True)

    @property
    def interactions(self) -> Float64:
        """Validation loss and interaction (the factors' part of the predictions) of each evaluation: (2, n)."""
        return self._evaluated[1:, : self.n_evaluations]

    def step_s(self, first: int = 0) -> float:
        """Seconds per step since row ``first``: the mean without the slowest twentieth, NaN for fewer than two rows."""
        times = self.column("time_s")[first:]
        if len(times) < 2:
            return float("nan")
        durations = np.sort(np.diff(times))
        return float(durations[: max(len(durations) - len(durations) // 20, 1)].mean())

    def step_variation(self, first: int = 0) -> float:
        """Relative standard deviation of the mean step time between blocks of rows since ``first``; 0 for few rows.

        Blocks, since other load on the machine slows down many steps in a row.
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


def _doubled(block: Float64) -> Float64:
    """``block`` with twice the columns; the new ones are not touched, so that they take no memory yet."""
    wide = np.empty((len(block), 2 * block.shape[1]))
    wide[:, : block.shape[1]] = block
    return wide
