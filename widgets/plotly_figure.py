"""A run as a plotly figure, which users can change further."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import JobError
from .format import usd
from .plotly_style import styled
from .view_model import base_text, best_text, is_base_in_range, is_cap_in_range, loss_title

_AXES = {"step": ("step", "step"), "seconds": ("time_s", "seconds"), "dollars": ("spent_usd", "US dollars")}
_BLUE, _ORANGE, _GREEN, _RED = "#0072B2", "#D55E00", "#00795a", "#B00020"


def plot(run: Any, against: str = "step") -> Any:
    """Loss, workers and dollars as a ``plotly.graph_objects.Figure`` of three panels.

    Parameters
    ----------
    run : TrainingRun
    against : {"step", "seconds", "dollars"}
        The x axis.

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
    x = history[column]
    is_in_range = is_cap_in_range(float(history["spent_usd"].max(initial=0.0)), state.budget_usd)
    is_far = state.budget_usd is not None and not is_in_range
    dollars = f"US dollars (cap {usd(state.budget_usd, trim=True)})" if is_far else "US dollars"
    figure = make_subplots(rows=1, cols=3, subplot_titles=(loss_title(state.metric), "Workers", dollars))
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
    add(2, "workers", x, history["n_workers"], {"color": _ORANGE, "width": 2.5, "shape": "hv"})
    add(3, "servers", x, history["servers_usd"], {"color": _GREEN, "width": 1}, fill="tozeroy")
    add(3, "spent", x, history["spent_usd"], {"color": _GREEN, "width": 2.5}, fill="tonexty")
    if state.target is not None:
        figure.add_hline(state.target, row=1, col=1, line_dash="dash", annotation_text="target")
    losses = np.concatenate([history["loss"], history["validation_loss"]])
    losses = losses[np.isfinite(losses)]
    if len(losses) and is_base_in_range(float(losses.min()), float(losses.max()), state.baseline_loss):
        figure.add_hline(
            state.baseline_loss, row=1, col=1, line_dash="dot", line_width=1, annotation_text=base_text(state)
        )
    if is_in_range:
        figure.add_hline(state.budget_usd, row=1, col=3, line_dash="dash", line_color=_RED, annotation_text="cap")
    figure.update_xaxes(title_text=title)
    figure.update_yaxes(rangemode="tozero", row=1, col=2)
    figure.update_yaxes(rangemode="tozero", tickprefix="$", exponentformat="none", row=1, col=3)
    return styled(figure, 360, title_text=state.name or state.run_id, margin={"t": 110, "b": 50, "l": 60, "r": 20})
