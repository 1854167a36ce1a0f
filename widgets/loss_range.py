"""The range of the loss axis: without the first steps, logarithmic where a run diverges. As in panels.js. Pure."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

#: The axis ignores this share of the steps, if there are at least so many losses.
HEAD_SHARE, HEAD_LEAST = 0.04, 20
#: The axis is logarithmic if the highest loss is so many times the lowest one.
DIVERGES = 30.0
#: Losses above this many times the lowest one are clipped.
MOST_DECADES = 1e6
#: Room below and above the losses, as a share of their range.
PAD = 0.06

Floats = NDArray[np.float64]


class LossRange(NamedTuple):
    """Lowest and highest loss that is drawn, whether on a logarithmic axis, and the highest loss if it is clipped."""

    low: float
    high: float
    is_log: bool
    clipped: float | None


def loss_range(curves: list[tuple[Floats, Floats]], last_step: float, levels: list[float]) -> LossRange:
    """The range of ``curves``, pairs of steps and losses until ``last_step``, and of other ``levels``."""
    seen: list[float] = []
    for steps, losses in curves:
        finite = np.isfinite(losses)
        late = finite & (steps >= HEAD_SHARE * last_step) if finite.sum() >= HEAD_LEAST else finite
        seen += losses[late if late.any() else finite].tolist()
    seen += levels
    if not seen:
        return LossRange(0.0, 1.0, False, None)
    low, high = min(seen), max(seen)
    is_log = low > 0 and high > DIVERGES * low
    if is_log and high > MOST_DECADES * low:
        return LossRange(low, MOST_DECADES * low, True, high)
    return LossRange(low, high, is_log, None)


def padded(low: float, high: float, is_log: bool, above: float = PAD) -> tuple[float, float]:
    """The ends of an axis with room below and ``above`` what it shows."""
    if is_log:
        return low / (high / low) ** PAD, high * (high / low) ** above
    pad = (high - low) * PAD or abs(high) * PAD or 1.0
    return low - pad, high + ((high - low) * above or pad)
