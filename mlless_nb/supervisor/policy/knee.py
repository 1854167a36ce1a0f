"""The knee of a loss curve: where the quick gains of the start are over. Pure.

The paper compares the slope of the smoothed curve with a threshold. Here the slope is relative to the mean slope since
the start, so that one threshold does for losses of any magnitude and runs of any length.

A curve may be flat without being past its knee. Factors begin small, and a factorisation learns its biases first: the
loss comes to a plateau, of which it does not tell that the main descent is still to come. The factors do, see
`has_emerged`.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from .loss_history import History
from .smoothing import binned, ewma

Float64 = NDArray[np.float64]

#: Records before which there is no knee.
LEAST_STEPS = 50
#: Judged losses before which there is none: fewer leave it open where a curve leads.
LEAST_LOSSES = 10
#: Slope over the newest fifth of the records, as a share of the mean slope so far, under which the knee is past.
FLAT = 0.57
#: How far a curve with a knee is from a straight line, as a share of its height.
BENT = 0.1
#: Weight of a new bin in the smoothed curve.
EWMA_WEIGHT = 0.25
#: The fall of the loss must be so many times the noise of a record, and so many that of a fifth's mean.
CLEAR, CLEAR_MEAN = 1.5, 8.0
#: Growth since its least from which on what the factors make of the predictions has emerged from their random start,
#: and the share of the loss that its root must be: next to nothing may have grown and still be next to nothing.
GROWN, GROWN_SHARE = 4.0, 0.03
#: By how much, as a share, it has changed over the newest half of the evaluations at most where it has settled, and the
#: share of the loss that its root must be: what grows slowly from next to nothing hardly changes either.
SETTLED, SETTLED_SHARE = 0.05, 0.1
#: Evaluations before which nothing is known of it.
LEAST_TOLD = 4


def knee_of(history: History, how: str = "slope") -> int | None:
    """The step by which a run's knee is past; None before it.

    Parameters
    ----------
    history : History
    how : {"slope", "kneedle"}
    """
    if len(history.judged.steps) < LEAST_LOSSES or not has_emerged(history):
        return None
    return find_knee(*history.training[:2], how)


def has_emerged(history: History) -> bool:
    """Whether the products of a model's parameters have outgrown their random start, or do not change any more.

    Near that start they only amplify each other: they grow exponentially from next to nothing, while the loss rests on
    a plateau (Saxe, McClelland and Ganguli, "Exact solutions to the nonlinear dynamics of learning in deep linear
    neural networks", 2014). True where the model has none, and where no held-out rows are evaluated that could tell.
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
    """The step by which the knee of a curve is past; None before it, and for a curve that does not clearly fall.

    Parameters
    ----------
    steps, losses : float64 (n,)
        One record a step.
    how : {"slope", "kneedle"}
    """
    if len(losses) < LEAST_STEPS or not np.isfinite(losses).all() or not falls(losses):
        return None
    bins = binned(steps, losses)
    smooth = ewma(bins.losses, EWMA_WEIGHT)
    found = _kneedle(bins.steps, smooth) if how == "kneedle" else _is_flat(bins.steps, smooth)
    return int(steps[-1]) if found else None


def falls(losses: Float64) -> bool:
    """Whether the loss has come down, by more than its noise explains, and is not on its way up again."""
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
    """Standard deviation of the records around a smooth curve, from their second differences; outliers do no harm."""
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
    # A straight line has knees too, of rounding errors; and a knee is confirmed by what comes after it.
    return place is not None and bend > BENT and place < 0.7 * float(steps[-1])


def kneedle(x: Float64, y: Float64) -> tuple[float | None, float]:
    """The first knee of a convex falling curve, None where there is none, and how far the curve lies below its chord.

    Satopaa et al., "Finding a 'Kneedle' in a Haystack" (2011), with sensitivity 1: where the distance to the chord,
    both axes scaled to [0, 1], has fallen from a local maximum by the mean distance of two points.
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
        if peak is not None and is_valley[place]:
            threshold = 0.0
        if peak is not None and below[place + 1] < threshold:
            return float(x[peak]), float(below.max())
    return None, float(below.max())
