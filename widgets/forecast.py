"""A run's forecast in words. Pure."""

from __future__ import annotations

from ..telemetry.live import RunState
from .format import duration, metric, usd


def forecast_lines(state: RunState) -> list[str]:
    """The forecast of a live run, one sentence each; empty once the run has ended."""
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
        lines.append(f"target {metric(state.target)}: no prediction yet")
    about = "about " if forecast["is_rough"] else ""
    if forecast["loss_at_cap"] is not None:
        lines.append(f"{state.metric} {about}{metric(forecast['loss_at_cap'])} when the budget is used up")
    elif forecast["loss_at_end"] is not None:
        lines.append(f"{state.metric} {about}{metric(forecast['loss_at_end'])} at the end")
    if forecast["usd_per_percent"] is not None:
        lines.append(f"1 % less {state.metric} costs {usd(forecast['usd_per_percent'])} from here")
    return lines
