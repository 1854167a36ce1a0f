"""Guards: rules that refuse a removal. Each returns its reason, or "". The first one that refuses decides. Pure.

A guard's function name is the code of its refusal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from .curve_fit import Z
from .decision import Refusal
from .knee import falls
from .removal_estimate import RemovalEstimate

#: The run is about to end when fewer steps than this are left.
LAST_STEPS = 20
#: The target is far off when it takes more than this many times the steps so far.
FAR = 3.0
#: Most rise of the loss by removals while no step is predicted for the target, as a share of the gap to the target.
UNKNOWN_END_COST = 0.05
#: Share of the workers that always stays: noise grows like 1/p, and the effect of the last workers is known only after
#: they have left. (MovieLens-1M with a large learning rate: one worker of eight never reached the loss of two.)
LEAST_STAY = 0.25
#: Share of the wanted horizon up to which the curves must be reliable for a removal.
LEAST_RELIABLE = 0.25


class Limits(NamedTuple):
    """Limits for a removal, beside the estimate itself.

    Attributes
    ----------
    threshold : float
        The paper's ``S``: the most by which the projected loss may be worse, as a share.
    least_saving : float
        Least share of time x dollars that it must save.
    saw_target : bool
        Whether a step was predicted for the target before.
    """

    threshold: float
    least_saving: float
    saw_target: bool


#: Returns why a removal is refused, "" if it is not.
Guard = Callable[[RemovalEstimate, Limits], str]


def loss_does_not_fall(estimate: RemovalEstimate, limits: Limits) -> str:
    """Refuse while the loss does not fall: nothing can be projected."""
    return "" if falls(estimate.history.column("loss")) else "the loss does not fall clearly"


def quarter_stays(estimate: RemovalEstimate, limits: Limits) -> str:
    """Some workers always stay, whatever the curves project."""
    is_least = estimate.n_workers - 1 < LEAST_STAY * estimate.n_all
    return "a quarter of the workers always stays" if is_least else ""


def about_to_end(estimate: RemovalEstimate, limits: Limits) -> str:
    """Refuse near the end: a removal would be too late to save anything."""
    return "the run is about to end" if estimate.now.steps < LAST_STEPS else ""


def before_knee(estimate: RemovalEstimate, limits: Limits) -> str:
    """While the loss falls quickly a worker is worth its price, unless steps have become quicker."""
    is_before = not estimate.are_steps_quicker and not estimate.projection.is_past_knee
    return "the loss still falls more quickly than on average over the run" if is_before else ""


def curve_unreliable(estimate: RemovalEstimate, limits: Limits) -> str:
    """Refuse if the curves are not reliable far enough ahead."""
    is_short = estimate.projected.horizon_s < LEAST_RELIABLE * estimate.projected.wanted_s
    return "the loss curve is not reliable enough yet to project the loss" if is_short else ""


def loss_uncertain(estimate: RemovalEstimate, limits: Limits) -> str:
    """Refuse if the 80 % interval of ``s`` contains ``S``."""
    s, sd, threshold = estimate.projected.s, estimate.projected.s_sd, limits.threshold
    is_open = s - Z * sd < threshold < s + Z * sd
    return f"it is not clear whether the loss would be worse by less than {100 * threshold:.1f} %" if is_open else ""


def loss_worse(estimate: RemovalEstimate, limits: Limits) -> str:
    """The paper's rule: ``s`` must be below ``S``."""
    s = estimate.projected.s
    if s < limits.threshold:
        return ""
    return f"the projected loss is {100 * s:.2f} % worse than with {estimate.n_all} workers"


def target_lost(estimate: RemovalEstimate, limits: Limits) -> str:
    """Refuse if a predicted target is no longer predicted, and few workers are left or steps are not quicker."""
    is_careful = estimate.is_half or not estimate.are_steps_quicker
    is_lost = estimate.is_end_unknown and limits.saw_target and is_careful
    return "the loss curve no longer reaches the target" if is_lost else ""


def target_at_risk(estimate: RemovalEstimate, limits: Limits) -> str:
    """Refuse if no step is predicted for the target, and the effect of fewer workers may put it out of reach."""
    projection = estimate.projection
    if not estimate.is_end_unknown or projection.gap is None:
        return ""
    is_risky = projection.efficiency.worse_by(estimate.n_workers - 1, Z) > UNKNOWN_END_COST * projection.gap
    return "the loss curve does not reach the target, and fewer workers may put it out of reach" if is_risky else ""


def target_far(estimate: RemovalEstimate, limits: Limits) -> str:
    """Keep the last half of the workers while the target is far off."""
    projection = estimate.projection
    is_far = estimate.is_half and projection.target is not None and estimate.steps_to_end > FAR * projection.step
    return "the target is still far off" if is_far else ""


def steps_not_quicker(estimate: RemovalEstimate, limits: Limits) -> str:
    """Refuse if steps do not become quicker: less progress per step then costs time, and this is measured too late."""
    is_slow = estimate.is_half and not estimate.are_steps_quicker
    return "fewer workers do not make steps quicker" if is_slow else ""


def target_out_of_reach(estimate: RemovalEstimate, limits: Limits) -> str:
    """Refuse if the target is predicted to be reached now, and may not be with fewer workers."""
    n_left = estimate.n_workers - 1
    is_broken = not estimate.is_end_unknown and estimate.projection.breaks_target(n_left, Z)
    return f"with {n_left} the target may get out of reach" if is_broken else ""


def takes_longer(estimate: RemovalEstimate, limits: Limits) -> str:
    """Refuse if the run may take much longer than with all its workers."""
    is_longer = not estimate.is_end_unknown and estimate.may_take_longer
    return "with one worker less the run may take longer" if is_longer else ""


def costs_more(estimate: RemovalEstimate, limits: Limits) -> str:
    """Refuse if the cost may rise: the last half of the workers reduces more noise than was observed so far."""
    is_dearer = estimate.is_half and estimate.least_saving < 0
    return "with one worker less the run may cost more" if is_dearer else ""


def saves_too_little(estimate: RemovalEstimate, limits: Limits) -> str:
    """Refuse if the removal saves too little."""
    is_little = estimate.saving < limits.least_saving
    return f"one worker less would save {100 * max(estimate.saving, 0.0):.1f} %" if is_little else ""


#: Guards on the projected loss, in this order.
LOSS_GUARDS: Sequence[Guard] = (
    loss_does_not_fall,
    quarter_stays,
    about_to_end,
    before_knee,
    curve_unreliable,
    loss_uncertain,
    loss_worse,
)
#: Guards on the end of the run (target, time and dollars), applied after these.
END_GUARDS: Sequence[Guard] = (
    target_lost,
    target_at_risk,
    target_far,
    steps_not_quicker,
    target_out_of_reach,
    takes_longer,
    costs_more,
    saves_too_little,
)


def refusal_of(guards: Sequence[Guard], estimate: RemovalEstimate, limits: Limits) -> Refusal | None:
    """The refusal of the first guard that refuses, None if none does."""
    for guard in guards:
        if reason := guard(estimate, limits):
            return Refusal(guard.__name__, reason)
    return None
