"""What a run's past says of its forecasts: how much too low they were, and whether its loss still gets better. Pure.

Curves flatten more suddenly than any that are fitted to them: where a rate was cut, at the floor that a penalty sets,
where a model begins to overfit. The curves through the first part of a history show by how much.
"""

from __future__ import annotations

import numpy as np

from .curve_ensemble import mix
from .loss_history import Judged

#: The first part of a history: losses up to this share of the newest step.
THEN = 0.7
#: Least records of it.
LEAST_THEN = 8
#: A validation loss has stalled if the lowest one is older than this share of the steps, and so many evaluations.
STALLED_SHARE, STALLED_EVALUATIONS = 0.3, 5


def optimism(judged: Judged, level: float) -> float:
    """How far the curves through the first part of a history lie below ``level``, the loss now; at least 0."""
    n = int(np.searchsorted(judged.steps, THEN * judged.steps[-1], side="right"))
    then = mix(judged.steps[:n], judged.losses[:n]) if n >= LEAST_THEN else None
    return max(level - then.at(float(judged.steps[-1])), 0.0) if then is not None else 0.0


def stalled_since(judged: Judged) -> int | None:
    """The step of the lowest validation loss, if it has not been reached again for long; else None."""
    if not judged.is_validation:
        return None
    at = int(np.argmin(judged.losses))
    is_old = judged.steps[at] <= (1 - STALLED_SHARE) * judged.steps[-1]
    return int(judged.steps[at]) if is_old and len(judged.steps) - 1 - at >= STALLED_EVALUATIONS else None
