"""Whether the loss of a step is above that of the step before, though both are means over few minibatches. Pure.

The paper takes the loss as risen if it is 1.01 times that of the step before. The mean over one minibatch of 500 rows
often is by chance, once the loss falls slowly, and then the step waits for one more update in vain. So a rise counts
here only if it is also above twice its standard error.

References
----------
Xu, Neglia and Sebastianelli, "Dynamic backup workers for parallel machine learning", equation (19).
"""

from __future__ import annotations

import math
from collections import deque

#: beta: the loss counts as risen if it is so many times that of the step before.
RISEN = 1.01
#: Standard errors that a rise must exceed.
ERRORS = 2.0
#: Steps from which the variance is known.
RECENT = 20


class LossRise:
    """The losses of the last two steps.

    Parameters
    ----------
    is_tested : bool
        Whether a rise must exceed its standard error.
    """

    def __init__(self, *, is_tested: bool) -> None:
        self._is_tested = is_tested
        self._variances: deque[float] = deque(maxlen=RECENT)
        self._losses = (math.nan, math.nan)
        self._counts = (1, 1)

    def note(self, loss: float, quorum: int, variance: float | None) -> None:
        """Take in a step.

        Parameters
        ----------
        loss : float
            The mean loss of its minibatches.
        quorum : int
            The number of minibatches.
        variance : float or None
            Their losses' variance (unbiased); None with a single one.
        """
        self._losses, self._counts = (self._losses[1], loss), (self._counts[1], quorum)
        if variance is not None and math.isfinite(variance):
            self._variances.append(variance)

    @property
    def has_risen(self) -> bool:
        """Whether the newest loss counts as risen; also if it is not a number."""
        (before, newest), least = self._losses, 0.0
        if self._is_tested and self._variances:
            variance = math.fsum(self._variances) / len(self._variances)
            least = ERRORS * math.sqrt(variance * sum(1 / count for count in self._counts))
        return math.isnan(newest) or (newest > RISEN * before and newest - before > least)
