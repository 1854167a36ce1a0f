"""Statistical efficiency: the effect of fewer workers on the loss, fitted to a run that removed workers. Pure.

The global minibatch of p workers is noisier than that of all P. With ``x = 1/p - 1/P`` this has two effects: a step
moves the model less, and the loss settles higher::

    loss(t) = L_P(sum of 1 / (1 + kappa x) over the steps so far) + c x

The first effect follows from a gradient noise scale of ``B`` minibatches: a step counts ``(1 + B/P) / (1 + B/p)``, with
``kappa = B / (1 + B/P)``, which is at most P (McCandlish et al., "An empirical model of large-batch training", 2018).
``c`` and ``kappa`` are fitted together with the curve, to the losses with all numbers of workers so far. With a large
learning rate the loss rises more than in proportion to ``x``. Beyond the largest ``x`` observed, the standard deviation
is therefore the geometric mean of those before and after the removals.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from .curve_fit import MORE_STEPS, Curve, fit
from .least_squares import Float64, search
from .pace import FIFTH, newest_pace
from .smoothing import binned

#: Prior standard deviations, around 0, of ``c`` as a share of the loss's fall so far and of ``kappa`` as a share of P.
#: (Factorisations settle higher by 0.1 to 0.2 of their fall.)
NOISE_SD, SLOWER_SD = 0.1, 0.25
#: Least residual of a fit, as a share of the loss.
LEAST_NOISE = 2e-4


@dataclass(frozen=True)
class StatisticalEfficiency:
    """``c`` (``noise``) and ``kappa`` (``slower``) with their standard deviations; ``n_all`` is P.

    ``seen`` is the largest ``x`` that they were fitted to; ``prior_sd`` is the ``noise_sd`` before any removal.
    """

    n_all: int
    noise: float = 0.0
    noise_sd: float = 0.0
    seen: float = 0.0
    prior_sd: float = 0.0
    slower: float = 0.0
    slower_sd: float = math.nan

    def __post_init__(self) -> None:
        if math.isnan(self.slower_sd):
            object.__setattr__(self, "slower_sd", SLOWER_SD * self.n_all)

    def lost(self, n_workers: float) -> float:
        """``x``: 0 with all workers."""
        return 1 / n_workers - 1 / self.n_all

    def lost_by(self, n_workers: Float64) -> Float64:
        """``x`` for an array of numbers of workers."""
        return 1 / n_workers - 1 / self.n_all

    def worse_by(self, n_workers: int, z: float = 0.0) -> float:
        """How much higher the loss settles than with all workers, plus ``z`` standard deviations."""
        return self.noise * self.lost(n_workers) + z * self._sd(n_workers, self.noise_sd, self.prior_sd)

    def _sd(self, n_workers: int, sd: float, prior_sd: float) -> float:
        """The standard deviation of an effect that is proportional to ``x``."""
        lost = self.lost(n_workers)
        seen = min(lost, self.seen)
        return sd * seen + math.sqrt(sd * prior_sd) * (lost - seen)

    def pace(self, n_workers: int, z: float = 0.0) -> float:
        """How far a step moves the model, relative to a step of all workers."""
        sd = self._sd(n_workers, self.slower_sd, SLOWER_SD * self.n_all)
        return 1 / (1 + self.slower * self.lost(n_workers) + z * sd)

    def behind(self, n_workers: Float64, n_steps: Float64) -> Float64:
        """Steps taken so far minus effective steps, which are steps of all workers with the same progress.

        Parameters
        ----------
        n_workers : float64 (k,)
        n_steps : float64 (n, k)
            Steps so far with each of these numbers of workers.
        """
        lost: Float64 = n_steps @ (1 - 1 / (1 + self.slower * self.lost_by(n_workers)))
        return lost


def fit_efficiency(
    steps: Float64,
    losses: Float64,
    lost: Float64,
    n_workers: Float64,
    n_steps: Float64,
    fall: float,
    before: StatisticalEfficiency,
) -> tuple[Curve | None, StatisticalEfficiency]:
    """The loss curve of the run with all its workers, and the effect of fewer workers.

    Parameters
    ----------
    steps, losses : float64 (n,)
        Judged records.
    lost : float64 (n,)
        ``x`` at each record.
    n_workers : float64 (k,)
        The numbers of workers so far.
    n_steps : float64 (n, k)
        Steps with each of these numbers until each record.
    fall : float
        By how much the loss has fallen since the start.
    before : StatisticalEfficiency
        The previous estimate.

    Returns
    -------
    Curve or None, StatisticalEfficiency
        The curve is a function of effective steps.
    """
    plain = fit(steps - before.behind(n_workers, n_steps), losses - before.noise * lost, "reference", 1.0)
    if plain is None:
        return None, before
    unit = max(abs(plain.at(float(steps[-1]))), 1e-100)
    noise_sd = NOISE_SD * max(fall, LEAST_NOISE * unit)
    if before.noise_sd == 0:
        before = replace(before, noise_sd=noise_sd, prior_sd=noise_sd)
    if float(np.ptp(lost)) == 0:
        return plain, before
    bins = binned(steps, losses)
    scale = plain.scale
    t, y = bins.steps / scale, bins.losses / unit
    x, all_x = binned(steps, lost).losses, before.lost_by(n_workers)
    taken = np.stack([binned(steps, column).losses for column in n_steps.T], axis=1) / scale
    weights = bins.counts / bins.counts.mean()
    theta = plain.theta / np.array((1 / unit, 1, 1 / unit, unit))
    start = np.append(theta, (before.noise / unit, before.slower))

    def shape(theta: Float64) -> tuple[Float64, Float64, Float64]:
        moved = np.maximum(t - taken @ (1 - 1 / (1 + theta[5] * all_x)), 1e-9)
        power = moved ** theta[1]
        return moved, power, np.maximum(theta[0] * power + theta[2], 1e-12)

    def values(theta: Float64) -> Float64:
        losses: Float64 = 1 / shape(theta)[2] + theta[3] + theta[4] * x
        return losses

    def jacobian(theta: Float64) -> Float64:
        moved, power, inverse = shape(theta)
        by_shape = -1 / inverse**2
        slope = by_shape * theta[0] * theta[1] * power / moved
        columns = (by_shape * power, by_shape * theta[0] * power * np.log(moved), by_shape, np.ones(len(t)), x)
        return np.stack((*columns, -slope * (taken @ (all_x / (1 + theta[5] * all_x) ** 2))), axis=1)

    noise = max(plain.noise / unit, LEAST_NOISE)
    prior = np.array((0, 0, 0, 0, (noise * unit / noise_sd) ** 2, (noise / (SLOWER_SD * before.n_all)) ** 2))
    most = np.array((np.inf, 8.0, np.inf, np.inf, np.inf, before.n_all))
    theta, _ = search(values, jacobian, start, most, prior, y, weights, MORE_STEPS)
    error = (values(theta) - y) * np.sqrt(weights)
    variance = max(float(error @ error) / max(len(y) - 6, 1), LEAST_NOISE**2)
    slopes = jacobian(theta)
    information = (slopes.T * weights) @ slopes / variance
    information.flat[::7] += prior / noise**2
    spread = np.sqrt(np.maximum(information.diagonal(), 1e-12))
    covariance = np.linalg.inv(information / np.outer(spread, spread) + 1e-8 * np.eye(6)) / np.outer(spread, spread)
    units = np.array((1 / unit, 1, 1 / unit, unit))
    sds = np.sqrt(np.maximum(covariance.diagonal()[4:], 0))
    seen = float(lost[np.searchsorted(steps, (1 - FIFTH) * steps[-1]) :].mean())
    after = StatisticalEfficiency(
        before.n_all, float(theta[4]) * unit, float(sds[0]) * unit, seen, noise_sd, float(theta[5]), float(sds[1])
    )
    moved = steps - after.behind(n_workers, n_steps)
    curve = Curve(
        "reference",
        theta[:4] * units,
        scale,
        covariance[:4, :4] * np.outer(units, units),
        math.sqrt(variance) * unit,
        float(moved[-1]),
        newest_pace(moved, losses - after.noise * lost).steepest,
    )
    return curve, after
