"""Forecasts of a run: the loss at the budget cap, time and cost to the target, the price of a lower loss. Pure."""

from __future__ import annotations

import math
from typing import Any

from .curve_fit import Z
from .hindcast import lateness, optimism, stalled_since
from .loss_history import History
from .projection import RECENT, Projection

#: Least records, or evaluations, for a forecast.
LEAST_RECORDS = 10
#: Most steps that a forecast looks ahead, as a multiple of the steps done.
FARTHEST = 20.0
#: The path of the forecast that is drawn: so many points, at most so far ahead, as a multiple of the steps done.
PATH_POINTS, PATH_FARTHEST = 8, 1.0


def forecast(history: History, projection: Projection, cap_usd: float | None) -> dict[str, Any] | None:
    """The forecast at the newest row, None while there are too few records.

    Parameters
    ----------
    history : History
    projection : Projection
        Of the same rows.
    cap_usd : float, optional
        The budget cap.

    Returns
    -------
    dict
        ``loss_at_end``: the loss when the cap or a rule other than the target ends the run; ``loss_at_cap``: when the
        cap does; ``is_rough``: whether the curve is not reliable that far ahead; ``usd_to_target`` and ``s_to_target``:
        [low, expected, high] of the whole run, an 80 % interval, high is None if the target may never be reached;
        ``stalled_since`` and ``stalled_at``: step and value of the best validation loss, if the target is below it and
        it is long ago: then no time is told, nor before there are enough validation losses where the target is for
        these.
        ``usd_per_percent``: dollars that the next 1 % of loss costs, if the curve is reliable that far ahead. Unknown
        values are None. ``path``, where there is a target: what is ahead until the cap or another rule ends the run, as
        [step, seconds, dollars, loss, and low and high of its 80 % interval].
    """
    curve, judged = projection.curve, projection.judged
    if curve is None or len(judged.steps) < LEAST_RECORDS:
        return None
    p, step_s = projection.n_workers, projection.step_s
    usd_step = step_s * projection.prices.usd_s(p)
    if not math.isfinite(step_s) or step_s <= 0:
        return None
    spent, time_s, step = history.last("spent_usd"), history.last("time_s"), projection.step
    farthest = step * FARTHEST

    def loss_in(steps: float) -> float | None:
        return projection.loss_in(min(steps, farthest), p) if math.isfinite(steps) else None

    affordable = max(cap_usd - spent, 0.0) / usd_step if cap_usd is not None and usd_step > 0 else math.inf
    found: dict[str, Any] = {
        "step": int(step),
        "loss_at_end": loss_in(min(projection.steps_left(p), affordable)),
        "loss_at_cap": loss_in(affordable),
        "is_rough": False,
        "usd_to_target": None,
        "s_to_target": None,
        "stalled_since": None,
        "stalled_at": None,
        "usd_per_percent": None,
        "path": [],
    }
    horizon = affordable if math.isfinite(affordable) else projection.steps_left(p)
    if math.isfinite(horizon):
        found["is_rough"] = not projection.is_reliable(horizon, p)
    lower = projection.steps_to(0.99 * projection.loss_in(0, p), p)
    if projection.is_reliable(lower, p):
        found["usd_per_percent"] = lower * usd_step
    if projection.target is not None:
        is_judged = judged.is_validation or not history.has_held_out
        if is_judged and projection.target < judged.losses.min():
            found["stalled_since"] = stalled_since(judged)
            found["stalled_at"] = float(judged.losses.min()) if found["stalled_since"] is not None else None
        is_told = is_judged and found["stalled_since"] is None
        steps = _steps_to_target(projection.target, projection, farthest) if is_told else None
        if steps is not None:
            variation = history.step_variation(max(history.since_change(), history.n - RECENT))
            found["usd_to_target"] = _interval(spent, steps, usd_step, variation)
            found["s_to_target"] = _interval(time_s, steps, step_s, variation)
        ahead = min(affordable, projection.steps_left(p), PATH_FARTHEST * step)
        found["path"] = [
            [step + n, time_s + n * step_s, spent + n * usd_step, *_band(projection, n)]
            for n in (ahead * k / (PATH_POINTS - 1) for k in range(PATH_POINTS))
        ]
    return found


def _band(projection: Projection, steps: float) -> tuple[float, float, float]:
    """The projected loss after ``steps`` more steps, and the low and the high end of its 80 % interval."""
    loss = projection.loss_in(steps, projection.n_workers)
    there = projection.moved + steps * projection.efficiency.pace(projection.n_workers)
    spread = projection.mixture.spread(there, loss) if projection.mixture is not None else 0.0
    return loss, loss * (1 - spread), loss * (1 + spread)


def _steps_to_target(target: float, projection: Projection, farthest: float) -> tuple[float, float, float] | None:
    """Steps until ``target`` ends the run, with an 80 % interval: low, expected, high.

    The run ends with the first evaluation after the loss is reached, or as many later as ``confirmations`` requires.
    ``high`` is infinite if the target may never be reached; None is returned if that is likely. It is as late as if the
    loss ended above the curves by as much as it now is above those of an earlier step; and as many times later as the
    second half of the steps so far took longer than the curves through the first half had said.
    """
    mixture, judged, p = projection.mixture, projection.judged, projection.n_workers
    if mixture is None:
        return None
    newest = float(judged.steps[-1])
    every = newest - float(judged.steps[-2])

    def until(there: float) -> float:
        since = (there - mixture.now) / projection.efficiency.pace(p)
        n_evaluations = max(math.ceil(since / every - 1e-9), 1) if math.isfinite(since) else math.inf
        return max(newest + (n_evaluations + projection.confirmations - 1) * every - projection.step, 0.0)

    wanted = target - projection.efficiency.worse_by(p)
    low, steps, high = map(until, mixture.steps_to(wanted))
    _, later, latest = map(until, mixture.steps_to(wanted - optimism(projection.effective, mixture.pace.level)))
    if steps > farthest or not math.isfinite(later):
        return None
    return low, steps, max(high, latest) * lateness(projection.effective, mixture.pace.level)


def _interval(done: float, steps: tuple[float, float, float], unit: float, variation: float) -> list[float | None]:
    """``done`` plus the steps at ``unit`` each, whose mean varies by ``variation``: low, expected, high."""
    low, expected, high = (n * unit for n in steps)
    varies = Z * variation * expected
    low = max(expected - math.hypot(expected - low, varies), 0.0)
    high = expected + math.hypot(high - expected, varies)
    return [done + low, done + expected, done + high if math.isfinite(high) else None]
