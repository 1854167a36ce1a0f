"""Curves fitted to a loss history, with their uncertainty. Pure.

Both families of the paper are inverse polynomials above a floor, fitted by least squares with every theta >= 0::

    reference   L_P(t) = 1 / (theta0 * t^theta1 + theta2) + theta3
    current     l_p(t) = 1 / (theta0 * t^2 + theta1 * t + theta2) + theta3

For a given floor (and exponent) ``1 / (loss - theta3)`` is linear in the other thetas. A grid of floors and exponents
is therefore solved at once, and its best points are the starts of a bounded Levenberg-Marquardt search.

Both families can bend downwards before they flatten, and do so when losses fall faster than before. How long such a
bend lasts is unknown, so beyond the newest loss a curve never falls faster than the newest losses do.

References
----------
MLLess (Middleware and journal), section on the scale-in auto-tuner.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .least_squares import TINY, Float64, search
from .pace import newest_pace
from .smoothing import Bins, binned

#: Half of an 80 % interval, in standard deviations.
Z = 1.2816
#: The least points that a curve of four parameters is fitted to.
LEAST_POINTS = 5
#: Share of a history, its newest part, that is fitted: the start of training follows a different law.
NEWEST = 0.35
EXPONENTS = np.array((0.35, 0.6, 1.0, 1.6, 2.6))
POWERS = np.array((1.0, 2.0))
#: Floors on the grid: distances below the lowest loss, in units of the range of the losses.
FLOORS = np.array((0.02, 0.06, 0.15, 0.35, 0.7, 1.5, 3.0, 8.0))
#: Starts of the search, the iterations of each start, and further iterations of the best one.
STARTS, FIRST_STEPS, MORE_STEPS = 2, 4, 24
#: Upper bounds of theta: a curve with an exponent above 8 would be a jump.
_MOST = {"reference": np.array((np.inf, 8.0, np.inf, np.inf)), "current": np.full(4, np.inf)}


@dataclass(frozen=True)
class Curve:
    """A fitted curve.

    Attributes
    ----------
    family : str
        "reference" or "current".
    theta : float64 (4,)
        In units of ``t / scale`` and of the loss.
    scale : float
        Steps that one unit of ``t`` stands for.
    covariance : float64 (4, 4)
        Of ``theta``.
    noise : float
        Standard deviation of a bin's mean around the curve.
    newest, steepest : float
        The newest step, and the most that the loss falls by per step beyond it.
    """

    family: str
    theta: Float64
    scale: float
    covariance: Float64
    noise: float
    newest: float = math.inf
    steepest: float = math.inf

    @property
    def floor(self) -> float:
        """The loss that is never reached: theta3."""
        return float(self.theta[3])

    def at(self, step: float) -> float:
        """The loss at ``step``."""
        if step <= self.newest or self.steepest == math.inf:
            return float(_values(self.family, self.theta, np.array((step / self.scale,)))[0])
        fitted, newest = map(float, _values(self.family, self.theta, np.array((step, self.newest)) / self.scale))
        return max(fitted, newest - self.steepest * (float(step) - self.newest))

    def sd(self, step: float) -> float:
        """The standard deviation of the curve at ``step``, by the delta method."""
        t = np.array((step / self.scale,))
        slope = _jacobian(self.family, self.theta, t)[0]
        return math.sqrt(max(float(slope @ self.covariance @ slope), 0.0))

    def sd_between(self, step: float, other: float) -> float:
        """The standard deviation of the loss at ``step`` minus that at ``other``, whose errors are correlated."""
        slopes = _jacobian(self.family, self.theta, np.array((step, other)) / self.scale)
        slope = slopes[0] - slopes[1]
        return math.sqrt(max(float(slope @ self.covariance @ slope), 0.0))

    @property
    def floor_sd(self) -> float:
        """The standard deviation of the floor."""
        return math.sqrt(max(float(self.covariance[3, 3]), 0.0))

    def steps_to(self, loss: float, after: float, most: float = 1e7) -> float:
        """The step at which the curve reaches ``loss``, at least ``after``; infinity if never, or after ``most``."""
        if loss <= self.floor + TINY:
            return math.inf
        wanted = 1.0 / (loss - self.floor)
        theta0, theta1, theta2 = self.theta[:3].tolist()
        if self.family == "reference":
            if theta0 <= 0 or theta1 <= 0:
                t = 0.0 if theta2 >= wanted or (theta1 == 0 and theta0 + theta2 >= wanted) else math.inf
            else:
                log_t = math.log(max((wanted - theta2) / theta0, TINY)) / theta1
                t = math.exp(log_t) if log_t < 50 else math.inf
        elif theta0 > TINY:
            root = theta1 * theta1 - 4 * theta0 * (theta2 - wanted)
            t = (-theta1 + math.sqrt(root)) / (2 * theta0) if root > 0 else 0.0
        else:
            t = max(wanted - theta2, 0.0) / theta1 if theta1 > 0 else (0.0 if theta2 >= wanted else math.inf)
        step = max(t * self.scale, self._soonest(loss))
        return max(step, after) if step <= most else math.inf

    def _soonest(self, loss: float) -> float:
        """The earliest step at which the loss can reach ``loss``, falling at ``steepest``."""
        if self.steepest == math.inf or (above := self.at(self.newest) - loss) <= 0:
            return 0.0
        return self.newest + above / self.steepest if self.steepest > 0 else math.inf


def fit(steps: Float64, losses: Float64, family: str, newest: float = NEWEST) -> Curve | None:
    """The curve of ``family`` fitted to the newest part of a history; None if records are too few or not finite.

    Parameters
    ----------
    steps, losses : float64 (n,)
        Steps rise.
    family : {"reference", "current"}
    newest : float
        Share of the records that is fitted.
    """
    first = min(int(len(losses) * (1 - newest)), max(len(losses) - 2 * LEAST_POINTS, 0))
    steps, losses = steps[first:], losses[first:]
    if len(losses) < LEAST_POINTS or not np.isfinite(losses).all() or not np.isfinite(steps).all():
        return None
    if steps[0] <= 0 or steps[-1] <= steps[0] or np.abs(losses).max() > 1e100:
        return None
    bins = binned(steps, losses)
    scale, unit = float(bins.steps[-1]), float(np.abs(bins.losses).mean())
    if unit < 1e-100:
        return None
    t, y, weights = bins.steps / scale, bins.losses / unit, bins.counts / bins.counts.mean()
    first_tries = [_search(family, start, t, y, weights, FIRST_STEPS) for start in _starts(family, t, y, weights)]
    theta, _ = min(first_tries, key=lambda found: found[1])
    theta, _ = _search(family, theta, t, y, weights, MORE_STEPS)
    covariance, noise = _covariance(family, theta, Bins(t, y, weights))
    # Back from normalised losses (mean 1) to the original unit.
    units = np.array((1 / unit, 1.0 if family == "reference" else 1 / unit, 1 / unit, unit))
    steepest = newest_pace(steps, losses).steepest
    return Curve(
        family, theta * units, scale, covariance * np.outer(units, units), noise * unit, float(steps[-1]), steepest
    )


def _values(family: str, theta: Float64, t: Float64) -> Float64:
    shape = theta[0] * t ** theta[1] + theta[2] if family == "reference" else (theta[0] * t + theta[1]) * t + theta[2]
    values: Float64 = 1.0 / np.maximum(shape, TINY) + theta[3]
    return values


def _jacobian(family: str, theta: Float64, t: Float64) -> Float64:
    """Derivatives by theta, float64 (n, 4)."""
    jacobian = np.ones((len(t), 4))
    if family == "reference":
        power = t ** theta[1]
        shape = theta[0] * power + theta[2]
        jacobian[:, 0] = power
        jacobian[:, 1] = theta[0] * power * np.log(np.maximum(t, TINY))
    else:
        shape = (theta[0] * t + theta[1]) * t + theta[2]
        jacobian[:, 0] = t * t
        jacobian[:, 1] = t
    jacobian[:, :3] *= (-1.0 / np.maximum(shape, TINY) ** 2)[:, None]
    return jacobian


def _starts(family: str, t: Float64, y: Float64, weights: Float64) -> list[Float64]:
    """The best points of the grid, as thetas."""
    floors = np.maximum(float(y.min()) - FLOORS * max(float(np.ptp(y)), 1e-6), 0.0)
    columns = t ** (EXPONENTS if family == "reference" else POWERS)[:, None]
    above = np.maximum(y - floors[:, None], 1e-9)
    # The error of z is z^2 times that of 1/z, hence the weights.
    slopes, offsets = _lines(columns, 1.0 / above, weights * above**4)
    shapes = slopes[:, :, None] * columns + offsets[:, :, None]
    errors = 1.0 / np.maximum(shapes, TINY) + floors[:, None, None] - y
    order = np.argsort(np.einsum("fcn,fcn,n->fc", errors, errors, weights), axis=None, kind="stable")
    starts = []
    for floor, column in zip(*np.unravel_index(order[:STARTS], slopes.shape), strict=True):
        slope, offset = slopes[floor, column], offsets[floor, column]
        if family == "reference":
            thetas = (slope, EXPONENTS[column], offset, floors[floor])
        else:
            thetas = (slope if column else 0.0, 0.0 if column else slope, offset, floors[floor])
        starts.append(np.array(thetas))
    return starts


def _lines(x: Float64, y: Float64, weights: Float64) -> tuple[Float64, Float64]:
    """Slopes and offsets >= 0 of the weighted least-squares lines of every row of ``y`` over every row of ``x``.

    ``x`` is (n_columns, n), ``y`` and ``weights`` are (n_floors, n); the result is (n_floors, n_columns).
    """
    total, sum_y = weights.sum(1)[:, None], (weights * y).sum(1)[:, None]
    sum_x, sum_xx, sum_xy = weights @ x.T, weights @ (x * x).T, (weights * y) @ x.T
    slopes = np.maximum((sum_xy - sum_x * sum_y / total) / np.maximum(sum_xx - sum_x * sum_x / total, TINY), 0.0)
    offsets = (sum_y - slopes * sum_x) / total
    slopes = np.where(offsets < 0, sum_xy / np.maximum(sum_xx, TINY), slopes)
    return slopes, np.maximum(offsets, TINY)


def _search(
    family: str, theta: Float64, t: Float64, y: Float64, weights: Float64, n_steps: int
) -> tuple[Float64, float]:
    def values(theta: Float64) -> Float64:
        return _values(family, theta, t)

    def jacobian(theta: Float64) -> Float64:
        return _jacobian(family, theta, t)

    return search(values, jacobian, theta, _MOST[family], np.zeros(4), y, weights, n_steps)


def _covariance(family: str, theta: Float64, bins: Bins) -> tuple[Float64, float]:
    """Covariance of theta and the noise of a bin; correlated residuals count as fewer independent ones."""
    t, y, weights = bins
    error = (y - _values(family, theta, t)) * np.sqrt(weights)
    n_free = max(len(y) - 4, 1)
    variance = float(error @ error) / n_free
    together = float(error[1:] @ error[:-1]) / max(float(error @ error), TINY) if len(error) > 8 else 0.0
    together = min(max(together, 0.0), 0.9)
    variance *= (1 + together) / (1 - together)
    jacobian = _jacobian(family, theta, t)
    hessian = (jacobian.T * weights) @ jacobian
    scale = np.sqrt(np.maximum(hessian.flat[::5], TINY))
    # A ridge of 1e-8 keeps the variance of thetas that the data does not determine finite.
    correlation = hessian / np.outer(scale, scale) + 1e-8 * np.eye(4)
    return np.linalg.inv(correlation) / np.outer(scale, scale) * variance, math.sqrt(variance)
