"""Advice as a chart: seconds against dollars, both on logarithmic axes, as SVG. No script, no fonts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

from ..plurals import count
from .format import usd

if TYPE_CHECKING:
    from ..adviser import Advice, Option

_WIDTH, _HEIGHT = 640, 330
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 16, 44, 40
#: Colours by place, readable on white and on dark grey.
_COLOURS = ("#0072b2", "#d55e00", "#00795a", "#8a5a9e", "#7a7d82", "#b8860b", "#c2185b", "#9c6b55")
_MUTED = "var(--jp-ui-font-color2,#5f6368)"
#: Radius of a point, and the room that a digit and the line of a number take, generously; the fonts are not known here.
_RADIUS, _DIGIT, _LINE = 4, 6.6, 9
#: What options that are not offered are called; their points are hollow.
_WHAT_IFS = "what-ifs"
#: Left, top, right and bottom.
Box = tuple[float, float, float, float]


def advice_chart(advice: Advice) -> str:
    """The options of ``advice`` and its what-ifs; a line joins those to which none is both quicker and cheaper."""
    shown = [option for option in (*advice.possible, *advice.what_ifs) if option.time_s > 0 and option.usd > 0]
    if not shown:
        return ""
    x, y = _Axis([option.time_s for option in shown]), _Axis([option.usd for option in shown])
    series = dict.fromkeys(_series(option) for option in shown)
    colours = {name: _COLOURS[number % len(_COLOURS)] for number, name in enumerate(series)}
    colours |= {_WHAT_IFS: _MUTED} if _WHAT_IFS in series else {}
    parts = [*_grid(x, y), _front(advice.pareto, x, y)]
    numbers = _numbers(sorted(shown, key=lambda one: one not in advice.pareto), x, y, colours)
    parts += [*(_dot(option, x, y, colours[_series(option)]) for option in shown), *numbers]
    parts += _legend(colours)
    label = escape(f"Seconds against US dollars: {advice.sentence}", quote=True)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{label}" '
        f'style="width:100%;max-width:{_WIDTH}px;font:11px system-ui,sans-serif">{"".join(parts)}</svg>'
    )


class _Axis:
    """A logarithmic axis that contains ``values``."""

    def __init__(self, values: Sequence[float]) -> None:
        self.low, self.high = math.log10(min(values)) - 0.12, math.log10(max(values)) + 0.12

    def share(self, value: float) -> float:
        """Where ``value`` lies, from 0 to 1."""
        return (math.log10(value) - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        """Round numbers on the axis: of each decade its first, and its second and fifth part if there is room."""
        decades = range(math.floor(self.low), math.ceil(self.high) + 1)
        factors = (1, 2, 5) if self.high - self.low < 3 else (1,)
        found = [factor * 10.0**decade for decade in decades for factor in factors]
        return [value for value in found if self.low <= math.log10(value) <= self.high]


def _at(option: Option, x: _Axis, y: _Axis) -> tuple[float, float]:
    across, up = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    return _LEFT + across * x.share(option.time_s), _HEIGHT - _BOTTOM - up * y.share(option.usd)


def _grid(x: _Axis, y: _Axis) -> list[str]:
    parts = []
    floor, across, up = _HEIGHT - _BOTTOM, _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    line = '<line stroke="var(--jp-border-color2,#e0e2e5)" x1="{:.1f}" x2="{:.1f}" y1="{:.1f}" y2="{:.1f}"/>'
    for value in x.ticks():
        at = _LEFT + across * x.share(value)
        parts.append(line.format(at, at, _TOP, floor))
        parts.append(f'<text fill="{_MUTED}" x="{at:.1f}" y="{floor + 16}" text-anchor="middle">{value:g}</text>')
    for value in y.ticks():
        at = floor - up * y.share(value)
        parts.append(line.format(_LEFT, _WIDTH - _RIGHT, at, at))
        parts.append(
            f'<text fill="{_MUTED}" x="{_LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{usd(value, trim=True)}</text>'
        )
    middle = _LEFT + across / 2
    parts.append(f'<text fill="{_MUTED}" x="{middle:g}" y="{_HEIGHT - 6}" text-anchor="middle">seconds</text>')
    return parts


def _front(options: Sequence[Option], x: _Axis, y: _Axis) -> str:
    points = " ".join(f"{across:.1f},{up:.1f}" for across, up in (_at(option, x, y) for option in options))
    return f'<polyline fill="none" stroke="{_MUTED}" stroke-dasharray="4 3" points="{points}"/>'


def _dot(option: Option, x: _Axis, y: _Axis, colour: str) -> str:
    across, up = _at(option, x, y)
    told = escape(f"{option.place}, {count(option.workers, 'worker')}: {option.time_s:.3g} s, {usd(option.usd)}")
    look = _look(colour, _series(option))
    return f'<circle {look} cx="{across:.1f}" cy="{up:.1f}" r="{_RADIUS}"><title>{told}</title></circle>'


def _look(colour: str, series: str) -> str:
    """How a point of ``series`` is filled."""
    return f'fill="none" stroke="{colour}"' if series == _WHAT_IFS else f'fill="{colour}"'


def _numbers(options: Sequence[Option], x: _Axis, y: _Axis, colours: Mapping[str, str]) -> Iterator[str]:
    """The points' numbers of workers, each beside its point; the first ones choose, and who finds no room has none."""
    points = [_at(option, x, y) for option in options]
    taken = [(across - _RADIUS, up - _RADIUS, across + _RADIUS, up + _RADIUS) for across, up in points]
    for option, point in zip(options, points, strict=True):
        text = str(option.workers)
        box = next((one for one in _beside(*point, _DIGIT * len(text)) if _is_free(one, taken)), None)
        if box is not None:
            taken.append(box)
            yield f'<text fill="{colours[_series(option)]}" x="{box[0]:.1f}" y="{box[3]:.1f}">{text}</text>'


def _beside(across: float, up: float, width: float) -> Iterator[Box]:
    """Where a number of this width may be written, the best place first: right of its point, left, above, below."""
    right, left, middle = across + _RADIUS + 2, across - _RADIUS - 2 - width, across - width / 2
    for begin, floor in (
        *((begin, up + shift) for begin in (right, left) for shift in (-4, 4, _LINE + 4)),
        (middle, up - _RADIUS - 2),
        (middle, up + _RADIUS + 2 + _LINE),
    ):
        yield begin, floor - _LINE, begin + width, floor


def _is_free(box: Box, taken: Sequence[Box]) -> bool:
    """Whether ``box`` lies on the chart and touches none of those that are ``taken``."""
    left, top, right, bottom = box
    is_inside = left >= _LEFT and right <= _WIDTH and top >= _TOP and bottom <= _HEIGHT - _BOTTOM
    return is_inside and all(
        right <= other[0] or other[2] <= left or bottom <= other[1] or other[3] <= top for other in taken
    )


def _legend(colours: dict[str, str]) -> list[str]:
    parts, x, y = [], 4.0, 12.0
    for name, colour in colours.items():
        width = 24 + 6.2 * len(name)
        if x + width > _WIDTH:
            x, y = 4.0, y + 16
        parts.append(f'<circle {_look(colour, name)} cx="{x + 4:g}" cy="{y - 4:g}" r="4"/>')
        parts.append(f'<text fill="var(--jp-ui-font-color1,#1b1b1b)" x="{x + 12:g}" y="{y:g}">{escape(name)}</text>')
        x += width
    return parts


def _series(option: Option) -> str:
    """Options of one colour: the same place, clusters by their machine; all that are not offered."""
    if option.kind == "what-if":
        return _WHAT_IFS
    return f"cluster of {option.place.split(' x ')[-1]}" if option.kind == "cluster" else option.place
