"""An ensemble of curves through a loss history: when a loss is reached, and how uncertain a predicted loss is. Pure.

Each curve has the form of the paper's reference curve, written as a fall by ``height`` to ``floor``::

    L(t) = height / (1 + (t / bend)^exponent) + floor

For a given bend and exponent, height and floor follow by linear least squares. Curves of many bends and exponents are
fitted at once; each is weighted by its likelihood with unknown noise, ``error^(-2 * EVIDENCE)``. A history determines
the floor poorly, and the floor decides when a loss near it is reached: there the best single fit is often far off, or
never reaches the loss, while the weighted median of all curves does.

If losses fall faster than before, they are on a second descent, which a flattening curve cannot describe. A straight
line through the newest losses is then mixed in, with more weight the faster they fall.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .curve_fit import LEAST_POINTS, NEWEST, Z
from .least_squares import Float64
from .pace import Pace, newest_pace
from .smoothing import binned

EXPONENTS = np.array((0.3, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8))
#: Bends, in units of the newest step: from long ago to as many steps ahead as have been taken.
BENDS = np.geomspace(0.003, 2.0, 28)
#: Half of the effective number of independent records in the newest part of a history, whose errors are correlated.
EVIDENCE = 4.0
#: Error floor of every curve, as a share of the loss: curves with smaller errors count as equally good.
LEAST_ERROR = 5e-4
#: The weight of a record in the newest part is its step to this power.
RECENCY = 2.0
#: Quantiles of the curves, by weight, at the low, the middle and the high step: an 80 % interval.
SHARES = (0.1, 0.5, 0.9)

_EXPONENT, _BEND = (grid.ravel() for grid in np.meshgrid(EXPONENTS, BENDS, indexing="ij"))


@dataclass(frozen=True)
class Mixture:
    """Curves through a loss history.

    Attributes
    ----------
    now : float
        The newest step.
    heights, floors, weights : float64 (n_curves,)
        Weights add up to 1.
    pace : Pace
        How fast the newest losses fall.
    """

    now: float
    heights: Float64
    floors: Float64
    weights: Float64
    pace: Pace

    def spread(self, step: float, loss: float) -> float:
        """The curves' deviation from ``loss`` at ``step``: half of an 80 % interval, as a share of ``loss``."""
        return Z * math.sqrt(float(self.weights @ (self._losses(step) - loss) ** 2)) / max(abs(loss), 1e-300)

    def at(self, step: float) -> float:
        """The curves' mean at ``step``."""
        return float(self.weights @ self._losses(step))

    def _losses(self, step: float) -> Float64:
        losses: Float64 = self.heights / (1 + (step / self.now / _BEND) ** _EXPONENT) + self.floors
        return losses

    def steps_to(self, loss: float) -> tuple[float, float, float]:
        """The low, middle and high step at which ``loss`` is reached, at least ``now``; infinite if never."""
        level = (loss - self.floors) / self.heights
        with np.errstate(over="ignore"):
            steps = _BEND * (1 / np.clip(level, 1e-30, 1.0) - 1) ** (1 / _EXPONENT) * self.now
        steps = np.maximum(np.where(level > 0, steps, np.inf), self.now)
        order = np.argsort(steps, kind="stable")
        arrived = np.cumsum(self.weights[order])
        at = np.minimum(np.searchsorted(arrived, SHARES), len(order) - 1)
        low, middle, high = steps[order[at]].tolist()
        line_share = min(max(self.pace.quickening - 1, 0.0), 1.0)
        if line_share:
            line = max(self.now + (self.pace.level - loss) / self.pace.slope, self.now)
            middle = 1 / (line_share / line + (1 - line_share) / middle)
            low, high = min(low, line), max(high, line)
        return low, middle, high


def mix(steps: Float64, losses: Float64) -> Mixture | None:
    """The curves through the newest part of a history; None if it has too few records or values that are not finite.

    Parameters
    ----------
    steps, losses : float64 (n,)
        Steps rise.
    """
    first = min(int(len(losses) * (1 - NEWEST)), max(len(losses) - 2 * LEAST_POINTS, 0))
    if len(losses) - first < LEAST_POINTS or not np.isfinite(losses).all() or not np.isfinite(steps).all():
        return None
    if steps[first] <= 0 or steps[-1] <= steps[first] or not 1e-100 < np.abs(losses[first:]).max() < 1e100:
        return None
    bins = binned(steps[first:], losses[first:])
    now, unit = float(steps[-1]), float(np.abs(bins.losses).max())
    t, y = bins.steps / now, bins.losses / unit
    weights = bins.counts * t**RECENCY
    weights /= weights.sum()
    falls = 1 / (1 + (t / _BEND[:, None]) ** _EXPONENT[:, None])  # (n_curves, n_bins)
    mean, mean_y = falls @ weights, float(y @ weights)
    spread = np.maximum((falls * falls) @ weights - mean * mean, 1e-18)
    heights = ((falls * y) @ weights - mean * mean_y) / spread
    floors = mean_y - np.maximum(heights, 0.0) * mean
    through_zero = ((falls * y) @ weights) / np.maximum((falls * falls) @ weights, 1e-18)
    heights = np.maximum(np.where(floors < 0, through_zero, heights), 1e-12)
    floors = np.maximum(floors, 0.0)
    errors = heights[:, None] * falls + floors[:, None] - y
    log_weights = -EVIDENCE * np.log((errors * errors) @ weights + LEAST_ERROR**2)
    shares = np.exp(log_weights - log_weights.max())
    return Mixture(now, heights * unit, floors * unit, shares / math.fsum(shares), newest_pace(steps, losses))
