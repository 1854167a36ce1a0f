"""How long the k-th gradient of a step takes, from the arrivals of a run. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .monotone_times import fit_times

Float64 = NDArray[np.float64]
#: Steps whose beginning is kept for workers that are late; later arrivals are not counted.
KEPT = 1000
#: Weight of the samples so far with every further step, unless DBW is by the paper, whose samples all count the same:
#: then a change after hundreds of steps is not seen. With this weight it is seen within fifty;
#: ``benchmarks/backup_workers.py`` has both the slowdown and round trips that do not change.
REMEMBERED = 0.98


class RoundTimes:
    """Estimates ``T_k``, the mean time until k gradients of a step have arrived if every step waits for k of them.

    A step begins when the step before is complete. Its samples are ``t[h, i]``, the time until its i-th arrival, where
    h is the number of gradients that the step before waited for. Arrivals after the step's end count as well. With x
    fitted to all samples, ``T_k`` is ``x[k, k]``, see `fit_times`.

    Parameters
    ----------
    n_workers : int
    remembered : float
        Weight of the samples so far with every further step; 1: all samples count the same, as the paper prints it.
    """

    def __init__(self, n_workers: int, remembered: float = REMEMBERED) -> None:
        self._remembered = remembered
        self._sums, self._counts = np.zeros((n_workers, n_workers)), np.zeros((n_workers, n_workers))
        self._begun: dict[int, tuple[float, int]] = {}  # by step: its beginning, and the quorum of the step before
        self._fitted: Float64 | None = None

    def append(self, step: int, quorum: int, arrived_s: Sequence[float], complete_at_s: float) -> None:
        """Take in a complete step.

        Parameters
        ----------
        step : int
        quorum : int
            The gradients that it waited for.
        arrived_s : sequence of float
            Times of its arrivals so far, ascending, seconds.
        complete_at_s : float
        """
        self._sums *= self._remembered
        self._counts *= self._remembered
        for rank, at_s in enumerate(arrived_s, 1):
            self.note(step, rank, at_s)
        self._begun[step + 1] = complete_at_s, quorum
        self._begun.pop(step + 1 - KEPT, None)

    def note(self, step: int, rank: int, at_s: float) -> None:
        """Take in the arrival number ``rank`` (1-based) of ``step``, at ``at_s`` seconds; it may be late."""
        begun = self._begun.get(step)
        if begun is None or rank > len(self._sums):
            return
        began_s, quorum = begun
        self._sums[quorum - 1, rank - 1] += max(at_s - began_s, 0.0)
        self._counts[quorum - 1, rank - 1] += 1
        self._fitted = None

    def estimate(self) -> Float64 | None:
        """``T_k`` for k from 1 on, seconds, float64 (n,); None before the first sample."""
        if not self._counts.any():
            return None
        if self._fitted is None:
            means = self._sums / np.where(self._counts > 0, self._counts, 1.0)
            self._fitted = np.diagonal(fit_times(means, self._counts)).copy()
        return self._fitted
