"""The trials of a live sweep as parallel coordinates, drawn small as SVG: what the figure shows that stays at the end.

The drawing has the page's width, and its texts their own size: places across are percentages. Its height does not
depend on the trials, so that nothing moves on the page when there are more. Pure.
"""

from __future__ import annotations

from html import escape
from itertools import pairwise
from typing import Any

from ..plurals import count
from .parallel_coordinates import Axis, Line, coordinates
from .tables import broken

#: Height of the drawing, and the room above and below the axes, pixels.
HEIGHT, _TOP, _BOTTOM = 150, 8, 8
#: Room left and right of the axes for their numbers, in distances between two axes.
_SIDE = 0.62
#: Most trials that are drawn, the best ones, and most letters of a tick's text.
MOST_LINES, MOST_LETTERS = 100, 10


def live_coordinates(sweep: Any) -> str:
    """The axes and, as far as there are some, the trials with a loss, as HTML for ``leaderboard.css``."""
    axes, lines = coordinates(sweep)
    room = len(axes) - 1 + 2 * _SIDE
    xs = [f"{100 * (number + _SIDE) / room:.4g}%" for number in range(len(axes))]
    margin = 100 * (_SIDE - 0.5) / room
    labels = "".join(f"<span>{broken(axis.label)}</span>" for axis in axes)
    parts = [f'<line class="axis" x1="{x}" x2="{x}" y1="{_y(1)}" y2="{_y(0)}"/>' for x in xs]
    parts += [_line(line, xs) for line in lines[-MOST_LINES:]]
    parts += [_ticks(axis, x, is_last=x == xs[-1]) for axis, x in zip(axes, xs, strict=True)]
    told = f"parallel coordinates of {count(len(lines), 'trial')}"
    if lines:
        told += f"; the best one: {lines[-1].told}"
    return (
        f'<div class="mlless-labels" style="padding:0 {margin:.3g}%">{labels}</div>'
        f'<svg role="img" aria-label="{escape(told)}" width="100%" height="{HEIGHT}">{"".join(parts)}</svg>'
    )


def _y(place: float) -> str:
    """How far below the top of the drawing a place on an axis is, pixels."""
    return f"{HEIGHT - _BOTTOM - place * (HEIGHT - _BOTTOM - _TOP):.4g}"


def _line(line: Line, xs: list[str]) -> str:
    points = list(zip(xs, map(_y, line.places), strict=True))
    drawn = "".join(f'<line x1="{x0}" y1="{y0}" x2="{x1}" y2="{y1}"/>' for (x0, y0), (x1, y1) in pairwise(points))
    drawn += "".join(f'<circle cx="{x}" cy="{y}" r="2.5"/>' for x, y in points)
    style = f"stroke:{line.colour};fill:{line.colour};stroke-width:{line.width:g};opacity:{line.opacity:.2f}"
    style += f";stroke-dasharray:{line.dashes[1]}"
    return f'<g class="trial" style="{style}"><title>{escape(f"{line.name}: {line.told}")}</title>{drawn}</g>'


def _ticks(axis: Axis, x: str, *, is_last: bool) -> str:
    side = 'dx="6"' if is_last else 'dx="-6" text-anchor="end"'
    texts = [text if len(text) <= MOST_LETTERS else f"{text[: MOST_LETTERS - 1]}…" for text in axis.tick_texts]
    return "".join(
        f'<text x="{x}" y="{_y(place)}" dy=".35em" {side}>{escape(text)}</text>'
        for place, text in zip(axis.tick_places, texts, strict=True)
    )
