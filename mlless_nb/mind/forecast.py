"""Where a run is going: the loss its cap pays for, what its target takes, the price of a lower loss. Pure."""

from __future__ import annotations

import math
from typing import Any

from .curves import fit
from .history import History
from .outlook import Outlook

#: Half of an 80 % interval, in standard deviations.
Z = 1.2816
#: Records, or evaluations, from which on there is a forecast.
LEAST_RECORDS = 10
#: A forecast looks no further ahead than so many times the steps done.
FARTHEST = 20.0


def forecast(history: History, outlook: Outlook, cap_usd: float | None) -> dict[str, Any] | None:
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
        ``usd_to_target`` and ``s_to_target``: [low, expected, high] of the whole run, an 80 % interval, high None where
        it may never get there; ``usd_per_percent``: dollars that the next 1 % of loss costs. What is unknown is None.
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
        "usd_to_target": None,
        "s_to_target": None,
        "usd_per_percent": None,
    }
    lower = outlook.steps_to(0.99 * outlook.loss_in(0, p), p)
    if lower <= farthest:
        found["usd_per_percent"] = lower * usd_step
    if outlook.target is not None:
        steps = _steps_to_target(outlook.target, outlook, farthest)
        if steps is not None:
            found["usd_to_target"] = [None if n is None else spent + n * usd_step for n in steps]
            found["s_to_target"] = [None if n is None else time_s + n * step_s for n in steps]
    return found


def _steps_to_target(target: float, outlook: Outlook, farthest: float) -> tuple[float, float, float | None] | None:
    """Steps to ``target`` with an 80 % interval; None where the curve does not come down to it."""
    curve, judged, step, p = outlook.curve, outlook.judged, outlook.step, outlook.n_workers
    assert curve is not None
    steps = outlook.steps_to(target, p)
    if steps > farthest:
        return None
    if steps < 1:
        return 0.0, 1.0, 1.0 + step / 10
    # The curve's own sd does not know that the curve may be of another kind: how wrong an earlier one is now tells.
    n_before = int(len(judged.steps) * 0.7)
    before = fit(judged.steps[:n_before], judged.losses[:n_before], "reference")
    wrong_by = abs(before.at(step) - outlook.loss_in(0, p)) if before is not None else 0.0
    wrong_by *= steps / max(step - float(judged.steps[max(n_before - 1, 0)]), 1.0)

    def edge(sign: float) -> float:
        shift = sign * Z * math.hypot(curve.sd(outlook.moved + steps), wrong_by)
        return outlook.steps_to(target - shift, p)

    low, high = max(min(edge(-1.0), steps), 0.0), max(edge(1.0), steps)
    return low, steps, high if high <= 2 * farthest else None
