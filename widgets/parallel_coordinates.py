"""The trials of a sweep as parallel coordinates: a line for each trial, an axis for each setting and for the loss."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple

from ..search.trial import FAILED, PRUNED
from .comparison import shown
from .format import metric
from .loss_range import DIVERGES
from .plotly_style import styled
from .svg import tick_texts, ticks

#: The best trial, and the others, which are the paler the worse they are.
_BEST, _OTHERS = "#D55E00", "#2e86c1"
_PALEST, _DARKEST = 0.5, 0.9
#: Lines of trials that did not get to their end: the dashes of plotly and of SVG.
DASHES = {PRUNED: ("dot", "2 3"), FAILED: ("dash", "7 4")}
#: Where the losses that are too high for the axis begin, in lengths of the part for the others.
_ABOVE = 1.15


class Axis(NamedTuple):
    """One axis: what it is called, the places of the trials and of its ticks, 0 (lowest) to 1, and their texts."""

    label: str
    places: list[float]
    tick_places: list[float]
    tick_texts: list[str]


class Line(NamedTuple):
    """One trial: its name, its settings and loss as text, its places on the axes, and how it is drawn.

    ``dashes`` are those of plotly and of SVG.
    """

    name: str
    told: str
    places: list[float]
    colour: str
    width: float
    opacity: float
    dashes: tuple[str, str]


def coordinates(sweep: Any) -> tuple[list[Axis], list[Line]]:
    """The axes, and a line for each trial with a loss, the best one last."""
    trials = [trial for trial in reversed(sweep.ranked) if trial.loss is not None]
    settings = {name: [trial.settings.get(name) for trial in trials] for name in sweep.spaces}
    axes = [axis_of(name, space, settings[name]) for name, space in sweep.spaces.items()]
    axes.append(_losses(f"best {sweep.metric}", [trial.loss for trial in trials]))
    lines = []
    for number, trial in enumerate(trials):
        places, told = [axis.places[number] for axis in axes], _told(trial, sweep.metric)
        opacity = _PALEST + (_DARKEST - _PALEST) * (number + 1) / len(trials)
        lines.append(Line(trial.name, told, places, _OTHERS, 1.5, opacity, DASHES.get(trial.status, ("solid", "none"))))
    if lines:
        lines[-1] = lines[-1]._replace(colour=_BEST, width=3.0, opacity=1.0)
    return axes, lines


def parallel_coordinates(sweep: Any) -> Any:
    """The trials with a loss as a plotly ``Figure``, the best one on top."""
    import plotly.graph_objects as go

    axes, lines = coordinates(sweep)
    figure = go.Figure()
    for line in lines:
        figure.add_scatter(
            x=list(range(len(axes))),
            y=line.places,
            mode="lines+markers",
            name=line.name,
            line={"color": line.colour, "width": line.width, "dash": line.dashes[0]},
            marker={"size": 5},
            opacity=line.opacity,
            hovertemplate=f"{escape(line.told)}<extra>{escape(line.name)}</extra>",
            showlegend=False,
        )
    for x, axis in enumerate(axes):
        figure.add_vline(x, line_width=1, line_color="rgba(128,128,128,0.6)", layer="below")
        side = {"xanchor": "left", "xshift": 5} if x == len(axes) - 1 else {"xanchor": "right", "xshift": -5}
        for place, text in zip(axis.tick_places, axis.tick_texts, strict=True):
            figure.add_annotation(x=x, y=place, text=escape(text), showarrow=False, font={"size": 11}, **side)
    styled(figure, 320, title_text=sweep.name, margin={"t": 80, "b": 20, "l": 12, "r": 12})
    figure.update_xaxes(
        tickvals=list(range(len(axes))),
        ticktext=[escape(axis.label) for axis in axes],
        side="top",
        range=[-0.35, len(axes) - 0.65],
        showgrid=False,
        zeroline=False,
    )
    figure.update_yaxes(visible=False, range=[-0.06, 1.06])
    return figure


def axis_of(name: str, space: Any, values: Sequence[Any]) -> Axis:
    """The axis of a setting: its numbers, the logarithms of these, or words one above the other."""
    is_numeric = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)
    if hasattr(space, "options") or not is_numeric:
        words = {repr(value): value for value in getattr(space, "options", values)}
        if not words.keys() >= set(map(repr, values)):  # options that hold other settings, or none was drawn
            words = {repr(value): value for value in values}
        step = 1 / max(len(words) - 1, 1)
        place_of = {word: number * step for number, word in enumerate(words)}
        texts = [shown(value) for value in words.values()]
        return Axis(name, [place_of[repr(value)] for value in values], list(place_of.values()), texts)
    if space.is_log:
        low, high = math.log10(space.low), math.log10(space.high)
        parts = [number / 4 for number in range(5)]
        texts = [f"{float(f'{10 ** (low + (high - low) * part):.3g}'):,g}" for part in parts]  # 2,000, not 2e+03
        return Axis(name, [(math.log10(value) - low) / (high - low) for value in values], parts, texts)
    return _numbers(name, values, space.low, space.high)


def _numbers(name: str, values: Sequence[float], low: float | None = None, high: float | None = None) -> Axis:
    """An axis from ``low`` to ``high``, by default of the values."""
    low, high = min(values) if low is None else low, max(values) if high is None else high
    if not high > low:
        return Axis(name, [0.5] * len(values), [0.5], [metric(low)])
    at = ticks(low, high, 5)
    return Axis(
        name, [(v - low) / (high - low) for v in values], [(v - low) / (high - low) for v in at], tick_texts(at)
    )


def _losses(name: str, losses: Sequence[float]) -> Axis:
    """The axis of the loss. Those of diverged trials are at its top: in their range the others would be one point."""
    if not losses:
        return Axis(name, [], [], [])
    low = min(losses)
    near = [loss for loss in losses if low <= 0 or loss <= DIVERGES * low]
    if len(near) == len(losses):
        return _numbers(name, losses)
    length = _ABOVE * (max(near) - low) or low
    at = ticks(low, max(near), 5)
    places = [min((loss - low) / length, 1.0) for loss in losses]
    return Axis(name, places, [*((v - low) / length for v in at), 1.0], [*tick_texts(at), "more"])


def _told(trial: Any, metric_name: str) -> str:
    told = [f"{name} {shown(value)}" for name, value in trial.settings.items()]
    told.append(f"{metric_name} {metric(trial.loss)}")
    if trial.status in DASHES:
        told.append(trial.status)
    return ", ".join(told)
