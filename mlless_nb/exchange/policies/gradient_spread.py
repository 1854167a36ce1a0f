"""The size and the spread of the gradients behind a step's updates, from their frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...kernels import decode_frame
from ..protocol import Frame


class Spread(NamedTuple):
    """Of the gradients of one step: the squared norm of their mean, and their variance summed over the components.

    ``learning_rate`` is that with which they were applied. All are negative if not measured, the variance also for a
    single gradient.
    """

    mean_square: float = -1.0
    variance: float = -1.0
    learning_rate: float = -1.0


NOT_MEASURED = Spread()


class SpreadMeter:
    """Measures the updates of a step. It needs a table of the parameters' size.

    Parameters
    ----------
    n_values : int
        Number of the model's parameters.
    """

    def __init__(self, n_values: int) -> None:
        self._sum = np.zeros(n_values, np.float64)

    def measure(self, frames: Sequence[Frame], rate: float) -> Spread:
        """The spread of the gradients ``g_j = -k u_j / rate`` behind k updates u_j, whose sum is applied.

        This is the gradient itself for SGD without momentum and without local steps. With them it is the step that the
        optimiser took, in the gradient's unit.

        Parameters
        ----------
        frames : sequence of bytes
            The updates.
        rate : float
            The learning rate.

        References
        ----------
        Xu, Neglia and Sebastianelli, "Dynamic backup workers for parallel machine learning", equations (9) and (10).
        """
        total, k = self._sum, len(frames)
        updates = [decode_frame(frame) for frame in frames]
        squares = 0.0
        for positions, values in updates:
            total[positions] += values
            squares += float(np.vdot(values, values))
        total_square = 0.0
        for positions, _ in updates:  # a position that an earlier update has, too, is zero by then
            summed = total[positions]
            total_square += float(np.vdot(summed, summed))
            total[positions] = 0.0
        if not rate > 0:
            return NOT_MEASURED
        mean_square = total_square / rate**2
        variance = max(k * k * squares / rate**2 - k * mean_square, 0.0) / (k - 1) if k > 1 else -1.0
        return Spread(mean_square, variance, rate)
