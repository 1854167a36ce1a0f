"""What a run's past says of its forecasts: how much too low or too early they were, and whether its loss still gets
better. Pure.

Curves flatten more suddenly than any that are fitted to them: where a rate was cut, at the floor that a penalty sets,
where a model begins to overfit. The curves through the first part of a history show by how much.
"""

from __future__ import annotations

import math

import numpy as np

from .curve_ensemble import Mixture, mix
from .loss_history import Judged

#: The first part of a history: losses up to this share of the newest step.
THEN = 0.7
#: Least records of it.
LEAST_THEN = 8
#: The first part of a history by which the time that the rest took is foretold.
HALF = 0.5
#: A validation loss has stalled if the lowest one is older than this share of the steps, and so many evaluations.
STALLED_SHARE, STALLED_EVALUATIONS = 0.3, 5


def optimism(judged: Judged, level: float) -> float:
    """How far the curves through the first part of a history lie below ``level``, the loss now; at least 0."""
    then = _mixture_at(judged, THEN)
    return max(level - then.at(float(judged.steps[-1])), 0.0) if then is not None else 0.0


def lateness(judged: Judged, level: float) -> float:
    """How many times as long as the curves through the first half of a history said it took to come to ``level``, the
    loss now; at least 1, infinite if they were there already."""
    then = _mixture_at(judged, HALF)
    if then is None:
        return 1.0
    took, told = float(judged.steps[-1]) - then.now, then.steps_to(level)[1] - then.now
    return max(took / told, 1.0) if told > 0 else math.inf


def _mixture_at(judged: Judged, share: float) -> Mixture | None:
    """The curves through the losses up to ``share`` of the newest step."""
    n = int(np.searchsorted(judged.steps, share * judged.steps[-1], side="right"))
    return mix(judged.steps[:n], judged.losses[:n]) if n >= LEAST_THEN else None


def stalled_since(judged: Judged) -> int | None:
    """The step of the lowest validation loss, if it has not been reached again for long; else None."""
    if not judged.is_validation:
        return None
    at = int(np.argmin(judged.losses))
    is_old = judged.steps[at] <= (1 - STALLED_SHARE) * judged.steps[-1]
    return int(judged.steps[at]) if is_old and len(judged.steps) - 1 - at >= STALLED_EVALUATIONS else None
