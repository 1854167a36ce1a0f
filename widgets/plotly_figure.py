"""A run as a plotly figure, which users can change further."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..errors import JobError
from ..telemetry.live import History, RunState
from .format import usd
from .loss_range import loss_range, padded
from .plotly_style import styled
from .view_model import base_text, best_text, is_base_in_range, is_cap_in_range, loss_title

_AXES = {"step": ("step", "step"), "seconds": ("time_s", "seconds"), "dollars": ("spent_usd", "US dollars")}
_BLUE, _ORANGE, _GREEN, _RED = "#0072B2", "#D55E00", "#00795a", "#B00020"


def plot(run: Any, against: str = "step") -> Any:
    """Loss, workers and dollars as a ``plotly.graph_objects.Figure`` of three panels, like those of the dashboard.

    Parameters
    ----------
    run : TrainingRun
    against : {"step", "seconds", "dollars"}
        The x axis; dollars are drawn against seconds rather than against themselves.

    Raises
    ------
    JobError
        If ``against`` is none of these.
    """
    if against not in _AXES:
        raise JobError("against", against, "step, seconds or dollars")
    from plotly.subplots import make_subplots

    state, history = run.telemetry.state, run.telemetry.history()
    column, title = _AXES[against]
    money_column, money_title = _AXES["seconds" if against == "dollars" else against]
    x, x_money = history[column], history[money_column]
    is_in_range = is_cap_in_range(float(history["spent_usd"].max(initial=0.0)), state.budget_usd)
    is_far = state.budget_usd is not None and not is_in_range
    dollars = f"US dollars (cap {usd(state.budget_usd, trim=True)})" if is_far else "US dollars"
    titles, widths = (loss_title(state.metric), "Workers", dollars), [0.5, 0.25, 0.25]
    figure = make_subplots(rows=1, cols=3, subplot_titles=titles, column_widths=widths)
    evaluated = np.isfinite(history["validation_loss"])

    def add(col: int, name: str, xs: Any, ys: Any, line: dict[str, Any], **more: Any) -> None:
        figure.add_scatter(row=1, col=col, name=name, x=xs, y=ys, line=line, mode="lines", **more)

    add(1, "training", x, history["loss"], {"color": _BLUE, "width": 1}, opacity=0.4)
    add(1, "validation", x[evaluated], history["validation_loss"][evaluated], {"color": _BLUE, "width": 2.5})
    best = np.flatnonzero((history["step"] == state.best_step) & evaluated)
    if len(best):
        marker = {"symbol": "circle-open", "size": 11, "color": _BLUE, "line": {"width": 2}}
        at = {"x": x[best], "y": history["validation_loss"][best]}
        figure.add_scatter(row=1, col=1, name=best_text(state), mode="markers", marker=marker, **at)
    workers = history["n_workers"]
    add(2, "workers", x, workers, {"color": _ORANGE, "width": 2.5, "shape": "hv"})
    fewer = np.flatnonzero(np.diff(workers) < 0)
    if len(fewer):
        marker = {"symbol": "triangle-down", "size": 8, "color": _ORANGE}
        at = {"x": x[fewer + 1], "y": workers[fewer]}
        figure.add_scatter(row=1, col=2, name="removed", mode="markers", marker=marker, **at)
    add(3, "servers", x_money, history["servers_usd"], {"color": _GREEN, "width": 1}, fill="tozeroy")
    add(3, "spent", x_money, history["spent_usd"], {"color": _GREEN, "width": 2.5}, fill="tonexty")
    _draw_loss_axis(figure, state, history)
    if is_in_range:
        figure.add_hline(state.budget_usd, row=1, col=3, line_dash="dash", line_color=_RED, annotation_text="cap")
    figure.update_xaxes(title_text=title)
    figure.update_xaxes(title_text=money_title, row=1, col=3)
    figure.update_yaxes(rangemode="tozero", row=1, col=2)
    figure.update_yaxes(rangemode="tozero", tickprefix="$", exponentformat="none", row=1, col=3)
    return styled(figure, 360, title_text=state.name or state.run_id, margin={"t": 110, "b": 50, "l": 60, "r": 20})


def _draw_loss_axis(figure: Any, state: RunState, history: History) -> None:
    """The range of the first panel's axis, as in the dashboard, and the target and the baseline."""
    steps = history["step"]
    curves = [(steps, history[name]) for name in ("loss", "validation_loss")]
    levels = [] if state.target is None else [state.target]
    low, high, is_log, clipped = loss_range(curves, 1.04 * float(steps.max(initial=0.0)), levels)

    def tell(text: str, **where: Any) -> None:
        figure.add_annotation(text=text, xref="x domain", x=1, xanchor="right", showarrow=False, **where)

    def level(y: float, text: str, **line: Any) -> None:
        figure.add_hline(y, row=1, col=1, **line)
        tell(text, y=math.log10(y) if is_log else y, yref="y", yanchor="bottom")  # a line has its value on either axis

    if state.target is not None:
        level(state.target, "target", line_dash="dash")
    base = state.baseline_loss
    if base is not None and len(steps) and is_base_in_range(low, high, base):
        level(base, base_text(state), line_dash="dot", line_width=1)
        low, high = min(low, base), max(high, base)
    if clipped is not None:
        tell(f"↑ up to {clipped:.2g}", y=1, yref="y domain", yanchor="top")
    ends = padded(low, high, is_log)
    if is_log:
        ticks = {"dtick": 1 if high > 100 * low else "D2", "tickformat": "~g"}
        figure.update_yaxes(type="log", range=[math.log10(end) for end in ends], **ticks, row=1, col=1)
    else:
        figure.update_yaxes(range=list(ends), row=1, col=1)
