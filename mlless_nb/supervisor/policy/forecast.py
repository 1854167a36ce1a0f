"""Forecasts of a run: the loss at its cap, time and cost to its target, the price of a lower loss. Pure."""

from __future__ import annotations

import math
from typing import Any

from .curve_fit import Z
from .loss_history import History
from .projection import RECENT, Projection

#: Records, or evaluations, from which on there is a forecast.
LEAST_RECORDS = 10
#: A forecast looks no further ahead than so many times the steps done.
FARTHEST = 20.0


def forecast(history: History, outlook: Projection, cap_usd: float | None) -> dict[str, Any] | None:
    """The forecast at the newest row, None while there is too little to go by.

    Parameters
    ----------
    history : History
    outlook : Outlook
        Of the same rows.
    cap_usd : float, optional
        What the run may cost.

    Returns
    -------
    dict
        ``loss_at_end`` and ``loss_at_cap``: the loss when another rule than the target, or the cap, ends the run;
        ``is_rough``: whether that is further ahead than the curve can be relied on, or not closely known;
        ``usd_to_target`` and ``s_to_target``: [low, expected, high] of the whole run, an 80 % interval, high None where
        it may never get there; ``usd_per_percent``: dollars that the next 1 % of loss costs, where the curve can be
        relied on as far ahead. What is unknown is None.
    """
    curve, judged = outlook.curve, outlook.judged
    if curve is None or len(judged.steps) < LEAST_RECORDS:
        return None
    p, step_s = outlook.n_workers, outlook.step_s
    usd_step = step_s * outlook.prices.usd_s(p)
    if not math.isfinite(step_s) or step_s <= 0:
        return None
    spent, time_s, step = history.last("spent_usd"), history.last("time_s"), outlook.step
    farthest = step * FARTHEST

    def loss_in(steps: float) -> float | None:
        return outlook.loss_in(min(steps, farthest), p) if math.isfinite(steps) else None

    affordable = max(cap_usd - spent, 0.0) / usd_step if cap_usd is not None and usd_step > 0 else math.inf
    found: dict[str, Any] = {
        "step": int(step),
        "loss_at_end": loss_in(min(outlook.steps_left(p), affordable)),
        "loss_at_cap": loss_in(affordable),
        "is_rough": False,
        "usd_to_target": None,
        "s_to_target": None,
        "usd_per_percent": None,
    }
    horizon = affordable if math.isfinite(affordable) else outlook.steps_left(p)
    if math.isfinite(horizon):
        found["is_rough"] = not outlook.is_reliable(horizon, p)
    lower = outlook.steps_to(0.99 * outlook.loss_in(0, p), p)
    if outlook.is_reliable(lower, p):
        found["usd_per_percent"] = lower * usd_step
    if outlook.target is not None:
        steps = _steps_to_target(outlook.target, outlook, farthest)
        if steps is not None:
            variation = history.step_variation(max(history.since_change(), history.n - RECENT))
            found["usd_to_target"] = _interval(spent, steps, usd_step, variation)
            found["s_to_target"] = _interval(time_s, steps, step_s, variation)
    return found


def _steps_to_target(target: float, outlook: Projection, farthest: float) -> tuple[float, float, float] | None:
    """Steps until ``target`` ends the run, with an 80 % interval, infinite where it may not; None where that is likely.

    That is with the evaluation that comes next after the loss is there, or as many more as must confirm it.
    """
    mixture, judged, p = outlook.mixture, outlook.judged, outlook.n_workers
    if mixture is None:
        return None
    newest = float(judged.steps[-1])
    every = newest - float(judged.steps[-2])

    def until(there: float) -> float:
        since = (there - mixture.now) / outlook.effort.pace(p)
        n_evaluations = max(math.ceil(since / every - 1e-9), 1) if math.isfinite(since) else math.inf
        return max(newest + (n_evaluations + outlook.confirmations - 1) * every - outlook.step, 0.0)

    low, steps, high = map(until, mixture.steps_to(target - outlook.effort.worse_by(p)))
    return (low, steps, high) if steps <= farthest else None


def _interval(done: float, steps: tuple[float, float, float], unit: float, variation: float) -> list[float | None]:
    """``done`` and what the steps add at ``unit`` each, whose mean may yet vary: low, expected, high."""
    low, expected, high = (n * unit for n in steps)
    varies = Z * variation * expected
    low = max(expected - math.hypot(expected - low, varies), 0.0)
    high = expected + math.hypot(high - expected, varies)
    return [done + low, done + expected, done + high if math.isfinite(high) else None]
