"""How fast the newest losses of a history fall, and how far ahead a fitted curve may be extrapolated. Pure."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from .knee import noise_of
from .least_squares import Float64

#: Least records to extrapolate a curve: fewer say little about the end of a run.
LEAST_JUDGED = 8
#: The slope over this newest share of the steps is compared with that over the same share before.
FIFTH = 0.2
#: Least difference of two slopes, in standard errors.
CLEAR = 3.0


class Pace(NamedTuple):
    """How fast the newest losses fall.

    Attributes
    ----------
    level : float
        The loss at the newest step, by a straight line through the newest fifth of the steps.
    slope : float
        The fall of that line per step.
    error : float
        The standard error of the slope.
    quickening : float
        The slope as a multiple of the slope over the fifth before; 1 if noise may explain that it is larger. Above 1
        the losses fall faster than before.
    """

    level: float
    slope: float
    error: float
    quickening: float

    @property
    def steepest(self) -> float:
        """The largest plausible fall of the losses per step: slope plus standard error, at least 0."""
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
    """How many steps ahead curves through a history may be extrapolated.

    As many steps as were taken. If the losses fall faster than before, only a fifth of that: they are then on a new
    descent, which began in the newest fifth of the steps and whose depth is not known yet. 0 for fewer than
    `LEAST_JUDGED` records.
    """
    if len(losses) < LEAST_JUDGED or not np.isfinite(losses).all():
        return 0.0
    return float(steps[-1]) * (1.0 if newest_pace(steps, losses).quickening <= 1 else FIFTH)


def _line(x: Float64, y: Float64, noise: float) -> tuple[float, float, float]:
    """A straight line through all points: its value at the last ``x``, its fall per step, and the standard error."""
    middle = float(x.mean())
    spread = float((x - middle) @ (x - middle))
    if spread <= 0 or not math.isfinite(noise):
        return float(y[-1]), 0.0, math.inf
    fall = -float((x - middle) @ y) / spread
    return float(y.mean()) - fall * (float(x[-1]) - middle), fall, noise / math.sqrt(spread)
