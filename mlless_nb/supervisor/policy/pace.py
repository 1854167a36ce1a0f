"""How fast the newest losses of a history fall, and how far ahead a curve through it may be read. Pure."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from .knee import noise_of
from .least_squares import Float64

#: Records before a curve through them is read ahead: fewer say little about the end of a run.
LEAST_JUDGED = 8
#: Shares of the steps over which slopes are compared: the newest, and as many before.
FIFTH = 0.2
#: Standard errors by which two slopes must differ.
CLEAR = 3.0


class Pace(NamedTuple):
    """How fast the newest losses fall.

    Attributes
    ----------
    level : float
        The loss at the newest step, by a straight line through the newest fifth of the steps.
    slope : float
        What it falls by in a step.
    error : float
        The standard error of that.
    quickening : float
        The slope as a multiple of that over the fifth before; 1 where noise may explain why it is larger. Above 1 the
        losses fall faster than before.
    """

    level: float
    slope: float
    error: float
    quickening: float

    @property
    def steepest(self) -> float:
        """What the losses fall by in a step at most, by what is known: no less than 0."""
        return max(self.slope + self.error, 0.0)


def newest_pace(steps: Float64, losses: Float64) -> Pace:
    """How fast the newest losses fall; steps rise, losses are finite."""
    start, middle = (int(np.searchsorted(steps, steps[-1] * (1 - n * FIFTH) - 1e-9)) for n in (2, 1))
    noise = noise_of(losses[start:])
    level, slope, error = _line(steps[middle:], losses[middle:], noise)
    _, before, error_before = _line(steps[start : middle + 1], losses[start : middle + 1], noise)
    is_quicker = slope - before > CLEAR * math.hypot(error, error_before) and slope > 0
    if not is_quicker:
        return Pace(level, slope, error, min(max(slope / before, 0.0), 1.0) if before > 0 else 1.0)
    return Pace(level, slope, error, slope / before if before > 0 else math.inf)


def horizon(steps: Float64, losses: Float64) -> float:
    """How many steps ahead curves through a history may be read.

    As many as it has seen. While the losses fall faster than before that is the newest fifth of the steps: these curves
    flatten, so the losses are then on a descent whose depth is not known yet, of which they have seen no more. And none
    of fewer than `LEAST_JUDGED` records.
    """
    if len(losses) < LEAST_JUDGED or not np.isfinite(losses).all():
        return 0.0
    return float(steps[-1]) * (1.0 if newest_pace(steps, losses).quickening <= 1 else FIFTH)


def _line(x: Float64, y: Float64, noise: float) -> tuple[float, float, float]:
    """The value at the last ``x`` of the straight line through all, its fall, and the fall's standard error."""
    middle = float(x.mean())
    spread = float((x - middle) @ (x - middle))
    if spread <= 0 or not math.isfinite(noise):
        return float(y[-1]), 0.0, math.inf
    fall = -float((x - middle) @ y) / spread
    return float(y.mean()) - fall * (float(x[-1]) - middle), fall, noise / math.sqrt(spread)
