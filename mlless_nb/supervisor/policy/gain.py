"""The decrease of the loss that a step with k gradients promises, from what the last steps measured. Pure.

With eta the learning rate, L the smoothness of the loss F, N the squared norm of its gradient and V the variance of a
worker's gradient (summed over the components), a step with k gradients decreases the loss by at least ::

    G_k = (eta - L eta^2 / 2) N - (L eta^2 / 2) V / k

in expectation. V, N and L are means of the estimates of the last steps. After a step with gradients g_1 ... g_k of mean
g, ``V = sum_j |g_j - g|^2 / (k - 1)`` and ``N = max(|g|^2 - V / k, 0)``. Once the loss F of the next step is known,
``L = 2 (eta N' - (F' - F)) / (eta^2 (N' + V' / k'))``, where a prime marks the step before.

The paper takes L as it is estimated. But F is a mean over k minibatches, so L is mostly noise once F falls by less in a
step than it varies; a large L makes all G_k negative, and the step waits for all workers. So L is bounded here. At
1 / eta, as of any rate that is not too large for a step without noise, G has its maximum over eta. The bound is lower,
since the noise of a step does not add up with that of later ones, while the decrease by the gradient does: the k that
lower the loss the most in one step are above those that lower it the most in twenty.
``benchmarks/backup_workers.py`` compares the two.

References
----------
Xu, Neglia and Sebastianelli, "Dynamic backup workers for parallel machine learning", equations (9) to (16).
"""

from __future__ import annotations

import math
from collections import deque

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]
#: D, the steps whose estimates are averaged: the paper's, and that of the bounded estimate, whose k vary less.
RECENT, RECENT_BOUNDED = 5, 10
#: Bound of L, in units of 1 / eta.
MOST_SMOOTHNESS = 0.7


class GainEstimate:
    """The estimates of one run. Call `note_loss` and `note_gradients` once for each step, in the order of steps.

    Parameters
    ----------
    is_bounded : bool
        Whether L is at most `MOST_SMOOTHNESS` / eta, and D is `RECENT_BOUNDED`.

    Attributes
    ----------
    variance, gradient_square, smoothness : deque of float
        V, N and L of the last steps, the newest last.
    """

    def __init__(self, *, is_bounded: bool = True) -> None:
        self._is_bounded, recent = is_bounded, RECENT_BOUNDED if is_bounded else RECENT
        self.variance: deque[float] = deque(maxlen=recent)
        self.gradient_square: deque[float] = deque(maxlen=recent)
        self.smoothness: deque[float] = deque(maxlen=recent)
        self._loss = math.nan
        self._before = (math.nan, math.nan, math.nan)  # of the newest step: eta, N, V / k

    def note_loss(self, loss: float) -> None:
        """Take in F of a step: the mean loss of its minibatches, before its update."""
        rate, square, spread = self._before
        decrease, self._loss = self._loss - loss, loss
        divisor = rate**2 * (square + spread)
        if math.isfinite(decrease) and divisor > 0:
            self.smoothness.append(2 * (rate * square - decrease) / divisor)
        self._before = (math.nan, math.nan, math.nan)

    def note_gradients(self, quorum: int, mean_square: float, variance: float | None, rate: float) -> None:
        """Take in what was measured of the gradients that a step applied.

        Parameters
        ----------
        quorum : int
            k, the number of gradients.
        mean_square : float
            ``|g|^2``.
        variance : float or None
            V; None with a single gradient: then the last one is kept.
        rate : float
            eta.
        """
        if variance is None:
            variance = self.variance[-1] if self.variance else 0.0
        if not (math.isfinite(mean_square) and math.isfinite(variance)):
            return
        square = max(mean_square - variance / quorum, 0.0)
        self.variance.append(variance)
        self.gradient_square.append(square)
        self._before = rate, square, variance / quorum

    def estimate(self, n_workers: int, rate: float) -> Float64 | None:
        """``G_k`` for k from 1 to ``n_workers``, float64 (n,); None before all estimates are known."""
        if not self.smoothness or not self.gradient_square:
            return None
        variance, square, smoothness = (
            float(np.mean(values)) for values in (self.variance, self.gradient_square, self.smoothness)
        )
        if self._is_bounded:
            smoothness = min(smoothness, MOST_SMOOTHNESS / rate)
        half = smoothness * rate**2 / 2
        gains: Float64 = (rate - half) * square - half * variance / np.arange(1, n_workers + 1)
        return gains
