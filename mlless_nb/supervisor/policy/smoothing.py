"""Smoothing of loss histories: exponentially weighted means, and means over bins. Pure."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]

#: Most points of a fit, so that its time does not grow with the length of the history.
MOST_BINS = 48


def ewma(values: Float64, weight: float) -> Float64:
    """Exponentially weighted means: ``s_i = s_{i-1} + w_i (x_i - s_{i-1})``, of shape (n,) like ``values``.

    ``w_i = max(weight, 1 / (i + 1))``: the first means are plain means, so that the first value has no more weight than
    others.
    """
    smooth = np.empty(len(values))
    mean = 0.0
    for index, value in enumerate(values.tolist()):
        mean += max(weight, 1 / (index + 1)) * (value - mean)
        smooth[index] = mean
    return smooth


class Bins(NamedTuple):
    """A history as means over bins of neighbouring records.

    Attributes
    ----------
    steps, losses : float64 (n_bins,)
        Means.
    counts : float64 (n_bins,)
        Records in each bin.
    """

    steps: Float64
    losses: Float64
    counts: Float64


def binned(steps: Float64, losses: Float64, most: int = MOST_BINS) -> Bins:
    """Means over at most ``most`` bins with equally many records each, oldest first."""
    n = len(losses)
    n_bins = min(n, most)
    if n_bins == n:
        return Bins(steps.astype(np.float64), losses.astype(np.float64), np.ones(n))
    starts = np.arange(n_bins) * n // n_bins
    counts = np.diff(starts, append=n).astype(np.float64)
    return Bins(np.add.reduceat(steps, starts) / counts, np.add.reduceat(losses, starts) / counts, counts)
