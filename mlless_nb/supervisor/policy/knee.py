"""The knee of a loss curve: the step at which the quick fall at the start is over. Pure.

The paper compares the slope of the smoothed curve with a threshold. Here the slope is relative to the mean slope since
the start, so that one threshold fits losses of any magnitude and runs of any length.

A curve may be flat before its knee. A factorisation's factors start small, and it learns its biases first: the loss
reaches a plateau, although the main descent is still to come. The factors show this, the loss does not, see
`has_emerged`.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from .loss_history import History
from .smoothing import binned, ewma

Float64 = NDArray[np.float64]

#: Least records for a knee.
LEAST_STEPS = 50
#: Least judged losses for a knee: fewer do not determine a curve.
LEAST_LOSSES = 10
#: The knee is past when the slope over the newest fifth of the records is below this share of the mean slope so far.
FLAT = 0.57
#: Least distance of a curve with a knee from its chord, as a share of its height.
BENT = 0.1
#: Weight of a new bin in the smoothed curve.
EWMA_WEIGHT = 0.25
#: Least fall of the loss, in units of the noise of a record, and of the noise of a fifth's mean.
CLEAR, CLEAR_MEAN = 1.5, 8.0
#: The interaction (the part of the predictions that comes from products of factors) has emerged from the random start
#: when it is this many times its minimum, and its root is at least this share of the loss: a tiny one may have grown.
GROWN, GROWN_SHARE = 4.0, 0.03
#: The interaction has settled when it changed by at most this share over the newest half of the evaluations, and its
#: root is at least this share of the loss: a tiny one that grows slowly hardly changes either.
SETTLED, SETTLED_SHARE = 0.05, 0.1
#: Least evaluations to judge the interaction.
LEAST_TOLD = 4


def knee_of(history: History, how: str = "slope") -> int | None:
    """The newest step if a run is past its knee, else None.

    Parameters
    ----------
    history : History
    how : {"slope", "kneedle"}
    """
    if len(history.judged.steps) < LEAST_LOSSES or not has_emerged(history):
        return None
    return find_knee(*history.training[:2], how)


def has_emerged(history: History) -> bool:
    """Whether the products of a model's factors have outgrown their random start, or no longer change.

    Near the start the factors only amplify each other: they grow exponentially from tiny values, while the loss stays
    on a plateau (Saxe, McClelland and Ganguli, "Exact solutions to the nonlinear dynamics of learning in deep linear
    neural networks", 2014). True if the model has no factors, and if no held-out rows are evaluated.
    """
    if history.n_evaluations < LEAST_TOLD:
        return not history.has_held_out
    losses, interactions = history.interactions
    known = np.isfinite(interactions)
    if not known.any() or not interactions[known].any():
        return True
    losses, interactions = losses[known], interactions[known]
    share = math.sqrt(interactions[-1]) / max(abs(losses[-1]), 1e-300)
    newest = interactions[len(interactions) // 2 :]
    has_grown = share >= GROWN_SHARE and interactions[-1] >= GROWN * interactions.min()
    return bool(has_grown or (share >= SETTLED_SHARE and np.ptp(newest) <= SETTLED * newest.max()))


def find_knee(steps: Float64, losses: Float64, how: str = "slope") -> int | None:
    """The newest step if a curve is past its knee; None if not, or if the curve does not clearly fall.

    Parameters
    ----------
    steps, losses : float64 (n,)
        One record per step.
    how : {"slope", "kneedle"}
    """
    if len(losses) < LEAST_STEPS or not np.isfinite(losses).all() or not falls(losses):
        return None
    bins = binned(steps, losses)
    smooth = ewma(bins.losses, EWMA_WEIGHT)
    found = _kneedle(bins.steps, smooth) if how == "kneedle" else _is_flat(bins.steps, smooth)
    return int(steps[-1]) if found else None


def falls(losses: Float64) -> bool:
    """Whether the loss has fallen by more than its noise explains, and is not rising again."""
    fifth = max(len(losses) // 5, 1)
    noise = noise_of(losses)
    means = [float(losses[part * fifth : (part + 1) * fifth].mean()) for part in range(5)] if len(losses) >= 5 else []
    if not means:
        return False
    error = noise / fifth**0.5
    fall = means[0] - means[-1]
    is_clear = fall > CLEAR * noise and fall > CLEAR_MEAN * error and fall > 1e-9 * abs(means[0])
    return is_clear and means[-1] <= min(means) + 3 * error


def noise_of(losses: Float64) -> float:
    """Standard deviation of the records around a smooth curve, from their second differences; robust to outliers."""
    if len(losses) < 3:
        return float("inf")
    return float(np.median(np.abs(np.diff(losses, 2)))) / 0.6745 / 6**0.5


def _is_flat(steps: Float64, smooth: Float64) -> bool:
    newest = max(len(smooth) // 5, 2)
    span, recent = steps[-1] - steps[0], steps[-1] - steps[-1 - newest]
    fall, recent_fall = smooth[0] - smooth[-1], smooth[-1 - newest] - smooth[-1]
    return bool(fall > 0 and recent_fall / recent < FLAT * fall / span)


def _kneedle(steps: Float64, smooth: Float64) -> bool:
    place, bend = kneedle(steps, smooth)
    # Rounding errors give a straight line knees too, and a knee is confirmed only by later records.
    return place is not None and bend > BENT and place < 0.7 * float(steps[-1])


def kneedle(x: Float64, y: Float64) -> tuple[float | None, float]:
    """The first knee of a convex falling curve (or None), and the largest distance of the curve below its chord.

    Satopaa et al., "Finding a 'Kneedle' in a Haystack" (2011), with sensitivity 1: the knee is a local maximum of the
    distance to the chord, both axes scaled to [0, 1], after which that distance falls by the mean spacing of points.
    """
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return None, 0.0
    scaled = (x - x.min()) / np.ptp(x)
    below = 1.0 - (y - y.min()) / np.ptp(y) - scaled
    before, after = np.append(below[0], below[:-1]), np.append(below[1:], below[-1])
    is_peak, is_valley = (below >= before) & (below >= after), (below <= before) & (below <= after)
    threshold, peak = np.inf, None
    for place in range(len(below) - 1):
        if is_peak[place]:
            threshold, peak = below[place] - np.diff(scaled).mean(), place
        if is_valley[place]:
            peak = None  # the next maximum is the next candidate
        if peak is not None and below[place + 1] < threshold:
            return float(x[peak]), float(below.max())
    return None, float(below.max())
