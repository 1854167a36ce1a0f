"""How far a run is and what is ahead of it, in words and as shares. Pure."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from ..telemetry.live import COLUMNS, RunState
from .format import duration, metric, reached, rounded, usd
from .rows import Rows

#: Least rows for a statement on how fast a run is.
LEAST_ROWS = 8


class End(NamedTuple):
    """An end that is ahead: ``text`` says how near it is, ``left_s`` seconds are left (infinite: unknown)."""

    text: str
    share: float
    left_s: float


def forecast_lines(state: RunState) -> list[str]:
    """The forecast of a live run, one sentence each; empty once the run has ended.

    A loss is told only where the curve is reliable that far ahead: a rough one may lie below what the data allow.
    """
    forecast = state.forecast
    if forecast is None or not state.is_live:
        return []
    lines = []
    dollars, seconds = forecast["usd_to_target"], forecast["s_to_target"]
    if dollars is not None and seconds is not None:
        most = f"{usd(dollars[2])}" if dollars[2] is not None else "no upper limit"
        longest = duration(seconds[2]) if seconds[2] is not None else "no upper limit"
        lines.append(
            f"target {metric(state.target)} after {usd(dollars[1])} ({usd(dollars[0])} to {most}), "
            f"{duration(seconds[1])} ({duration(seconds[0])} to {longest}); 80 % intervals"
        )
    elif state.target is not None:
        lines.append(_unknown(state))
    if told := loss_text(state):
        lines.append(told)
    if forecast["usd_per_percent"] is not None:
        lines.append(f"1 % less {state.metric} costs {usd(forecast['usd_per_percent'])} from here")
    return lines


def progress_of(state: RunState, recent: Rows) -> dict[str, Any]:
    """The bar of progress: ``share`` of the run's time that is over, None if unknown, and its ``text``.

    After the end ``share`` is how far the run came: all of the way, unless it was stopped or has failed.

    Parameters
    ----------
    state : RunState
    recent : ndarray, float64, shape (n, len(COLUMNS))
        The newest rows; there may be none.
    """
    if state.status in ("finished", "capped"):
        return {"share": 1.0, "text": ""}
    if not len(recent):
        return {"share": None, "text": ""}
    ends = _ends(state, recent)
    if not state.is_live:
        return {"share": max((one.share for one in ends), default=None), "text": ""}
    end = min(ends, key=lambda one: one.left_s, default=None)
    if end is None:
        return {"share": None, "text": f"epoch {reached(state.epoch)} · ends when you stop it"}
    parts = [end.text]
    may = state.stop_rules.get("may_settle", False) or state.target is not None
    if math.isfinite(end.left_s):
        about = "at most" if may else "about"
        least = state.spent_usd + end.left_s * state.rate_usd_s
        most = min(least, state.budget_usd) if state.budget_usd is not None else least
        parts.append(f"{about} {duration(end.left_s)} left")
        if state.rate_usd_s > 0:
            parts.append(f"{about} {rounded(most)} at the end")
    return {"share": end.share, "text": " · ".join(parts)}


def target_text(state: RunState) -> str:
    """When the target will be reached, in short: ``target 0.8680 in about 6 s (4.0 s to 11 s), at about $0.0161``."""
    forecast = state.forecast
    if forecast is None or not state.is_live or state.target is None:
        return ""
    seconds, dollars = forecast["s_to_target"], forecast["usd_to_target"]
    if seconds is None or dollars is None:
        return _unknown(state)
    low, middle, high = (None if s is None else max(s - state.time_s, 0.0) for s in seconds)
    if middle is None or low is None:
        return ""
    if state.budget_usd is not None and dollars[0] is not None and dollars[0] > state.budget_usd:
        return f"target {metric(state.target)}: beyond the budget, by the present forecast"
    upto = f"{duration(low)} to {duration(high)}" if high is not None else f"at least {duration(low)}"
    return f"target {metric(state.target)} in about {duration(middle)} ({upto}), at about {rounded(dollars[1])}"


def _unknown(state: RunState) -> str:
    """Why nothing is said of when the target will be reached."""
    forecast = state.forecast or {}
    since, best = forecast.get("stalled_since"), forecast.get("stalled_at")
    if since is None or best is None:
        return f"target {metric(state.target)}: too early to say when"
    stalled = f"{state.metric} no better than {metric(best)} since step {since:,}"
    return f"target {metric(state.target)}: not in sight, {stalled}"


def loss_text(state: RunState) -> str:
    """The loss at the end where the forecast of it is reliable: ``RMSE 0.8655 when the budget is used up``."""
    forecast = state.forecast
    if forecast is None or not state.is_live or forecast["is_rough"]:
        return ""
    ends = {"loss_at_cap": "when the budget is used up", "loss_at_end": "at the end"}
    when = next((name for name in ends if forecast[name] is not None), None)
    return f"{state.metric} {metric(forecast[when])} {ends[when]}" if when is not None else ""


def _ends(state: RunState, recent: Rows) -> list[End]:
    """The ends that are ahead, each with the share that is over by its own measure."""
    passed = dict(zip(COLUMNS, (recent[-1] - recent[0]).tolist(), strict=True))
    passed_s = passed["time_s"]
    is_known = len(recent) >= LEAST_ROWS and passed_s > 0
    rules = state.stop_rules

    def left(name: str, rest: float) -> float:
        pace = passed[name] / passed_s if is_known else 0.0
        return max(rest, 0.0) / pace if pace > 0 else math.inf

    ends: list[End] = []
    upto = "of at most" if rules.get("may_settle") else "of"
    if (epochs := rules.get("epochs")) is not None:
        text = f"epoch {reached(state.epoch)} {upto} {epochs:g}"
        ends.append(End(text, min(state.epoch / epochs, 1.0), left("epoch", epochs - state.epoch)))
    if (steps := rules.get("steps")) is not None:
        text = f"step {state.step:,} {upto} {steps:,}"
        ends.append(End(text, min(state.step / steps, 1.0), left("step", steps - state.step)))
    if (limit_s := rules.get("time_s")) is not None:
        text = f"{duration(state.time_s)} {upto} {duration(limit_s)}"
        ends.append(End(text, min(state.time_s / limit_s, 1.0), max(limit_s - state.time_s, 0.0)))
    if state.budget_usd is not None:
        rest_s = (state.budget_usd - state.spent_usd) / state.rate_usd_s if state.rate_usd_s > 0 else math.inf
        share = min(state.spent_usd / state.budget_usd, 1.0)
        spent = f"{rounded(state.spent_usd)} of {usd(state.budget_usd, trim=True)}"
        ends.append(End(f"epoch {reached(state.epoch)} · {spent}", share, max(rest_s, 0.0)))
    return ends
