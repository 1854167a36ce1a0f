"""The three curves as SVG, for a saved notebook. Needs only the standard library and NumPy, no fonts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ..plurals import count
from ..telemetry.live import RunState
from .format import metric, usd
from .loss_range import PAD, loss_range, padded
from .rows import VIEW_COLUMNS, ViewRows, decimate
from .view_model import base_text, best_text, is_base_in_range, is_cap_in_range, loss_title

#: Widths of the panels: the loss gets half of the drawing.
_WIDTHS, _GAP = (456, 228, 228), 20
WIDTH, HEIGHT = sum(_WIDTHS) + 2 * _GAP, 200
_LEFT, _RIGHT, _TOP, _BOTTOM = 50, 17, 30, 37
#: Most rows that are drawn: one per unit of the drawing's width, which keeps the saved notebook small.
_ROWS = 240
#: Largest distance between a simplified curve and one of its points, in units of the drawing.
_NEAR = 0.2
#: Width of a character, about.
_CHARACTER = 6.0
#: Room above the losses for the words on a baseline, as a share of their range.
_REMARK_ROOM = 0.16

# Light by default; dark if the page is dark and the image may follow it (color-scheme).
_STYLE = (
    "text{font:10px system-ui,'DejaVu Sans',sans-serif;fill:#5f6368}.h{font-size:12px;font-weight:600;fill:#1b1b1b}"
    ".n{font-size:12px}"
    "path,line{fill:none}.g{stroke:#e3e5e8}.t{stroke:#0072b2;opacity:.45}.v{stroke:#0072b2;stroke-width:2}"
    ".e{font-size:11px;font-weight:600;fill:#1b1b1b}"
    ".d{fill:#0072b2}.b{fill:none;stroke:#0072b2;stroke-width:1.5}.z{stroke:#5f6368;stroke-dasharray:2 3}"
    ".y{stroke:#5f6368;stroke-dasharray:5 3}.w{stroke:#d55e00;stroke-width:2}.m{fill:#d55e00}"
    ".u{stroke:#00795a;stroke-width:2}.r{stroke:#00795a}.f{fill:#00795a2e}.s{fill:#00795a5c}"
    ".c{stroke:#b00020;stroke-width:1.4;stroke-dasharray:6 3}.ct{fill:#b00020}"
    ".o{paint-order:stroke;stroke:#fffc;stroke-width:3px}"
    "@media (prefers-color-scheme:dark){text{fill:#adb1b6}.h,.e{fill:#e8e8e8}.g{stroke:#3a3d42}.t,.v{stroke:#56b4e9}"
    ".d{fill:#56b4e9}.b{stroke:#56b4e9}.z,.y{stroke:#a4a8ad}.w{stroke:#e88a3c}.m{fill:#e88a3c}.u,.r{stroke:#2bb38a}.f{fill:#2bb38a30}"
    ".s{fill:#2bb38a66}.c{stroke:#ff8296}.ct{fill:#ff8296}.o{stroke:#212121cc}}"
)

_SWATCHES = {
    "validation": '<line class="v" x1="{x:g}" x2="{x2:g}" y1="{y:g}" y2="{y:g}"/>',
    "training alone": '<line class="v" x1="{x:g}" x2="{x2:g}" y1="{y:g}" y2="{y:g}"/>',
    "training": '<line class="t" x1="{x:g}" x2="{x2:g}" y1="{y:g}" y2="{y:g}"/>',
    "removed": '<path class="m" d="M{x:g},5h8l-4,7z"/>',
    "spent": '<path class="f" d="M{x:g},4h12v8h-12z"/><line class="u" x1="{x:g}" x2="{x2:g}" y1="4" y2="4"/>',
    "servers": ('<path class="s" d="M{x:g},4h12v8h-12z"/><line class="r" x1="{x:g}" x2="{x2:g}" y1="4" y2="4"/>'),
}


def ticks(low: float, high: float, about: int = 7) -> list[float]:
    """At most ``about`` + 1 round numbers within [low, high], in steps of 1, 2 or 5 times a power of ten."""
    if not (math.isfinite(low) and math.isfinite(high)) or high <= low:
        return [low] if math.isfinite(low) else []
    power = 10 ** math.floor(math.log10((high - low) / about))
    step = next(factor * power for factor in (1, 2, 5, 10) if (high - low) / (factor * power) <= about)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(k * step, 12) for k in range(first, last + 1)]


def decades(low: float, high: float) -> list[float]:
    """Powers of ten within [low, high], at most eight; round numbers if there are none two of them."""
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    powers = [10.0**k for k in range(first, last + 1, max((last - first) // 7 + 1, 1))]
    return powers if len(powers) > 1 else ticks(low, high)


def tick_texts(values: Sequence[float], dollars: bool = False) -> list[str]:
    """``values`` with the same number of decimals, enough to distinguish them."""
    if max(map(abs, values), default=0.0) >= 1e5:  # in short, so that nothing is cut
        return [f"{'$' if dollars else ''}{v:.3g}".replace("e+0", "e").replace("e+", "e") for v in values]
    gap = min((abs(b - a) for a, b in pairwise(values)), default=abs(values[0]) if values else 1.0)
    decimals = min(max(0, -math.floor(math.log10(gap) + 1e-9)), 9) if gap > 0 else 0
    if any(abs(round(v, decimals) - v) > 1e-12 for v in values):
        decimals += 1
    return [f"{'$' if dollars else ''}{v:,.{decimals}f}" for v in values]


@dataclass
class _Panel:
    """One chart: its position, the ranges of its axes, and the SVG written so far."""

    left: float
    width: float
    x: tuple[float, float]
    y: tuple[float, float]
    is_log: bool = False

    def __post_init__(self) -> None:
        self.parts: list[str] = []
        self._levels: list[float] = []
        self._curves: list[list[tuple[float, float]]] = []

    def at(self, x: float, y: float) -> tuple[float, float]:
        x0, y0 = self.left + _LEFT, HEIGHT - _BOTTOM
        across, up = self.width - _LEFT - _RIGHT, HEIGHT - _BOTTOM - _TOP
        return x0 + across * (x - self.x[0]) / (self.x[1] - self.x[0]), y0 - up * self.share(y)

    def share(self, y: float) -> float:
        """How high ``y`` is in the chart, from 0 to 1; what lies outside of it is at its edge."""
        low, high = (math.log10(v) for v in self.y) if self.is_log else self.y
        at = math.log10(max(y, 1e-300)) if self.is_log else y
        return min(max((at - low) / (high - low), 0.0), 1.0)

    def frame(self, title: str, notes: Sequence[str], *, dollars: bool = False, whole: bool = False) -> None:
        self.parts.append(f'<text class="h" x="{self.left:g}" y="12">{escape(title)}</text>')
        x = self.left + 8 * len(title) + 8
        for note in notes:
            self.parts.append(_SWATCHES[note].format(x=x, x2=x + 12, y=8.5))
            self.parts.append(f'<text class="n" x="{x + 17:g}" y="12">{note}</text>')
            x += 17 + 6.6 * len(note) + 10
        heights = decades(*self.y) if self.is_log else [v for v in ticks(*self.y) if not whole or v == int(v)]
        for value, text in zip(heights, tick_texts(heights, dollars), strict=True):
            x, y = self.at(self.x[0], value)
            x2, _ = self.at(self.x[1], value)
            self.parts.append(f'<line class="g" x1="{x:.1f}" x2="{x2:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>')
            self.parts.append(f'<text x="{x - 6:.1f}" y="{y + 3.5:.1f}" text-anchor="end">{text}</text>')
        along = ticks(*self.x, about=6 if self.width > 300 else 3)
        for value, text in zip(along, tick_texts(along), strict=True):
            x, y = self.at(value, self.y[0])
            self.parts.append(f'<text x="{x:.1f}" y="{y + 15:.1f}" text-anchor="middle">{text}</text>')
        x = self.left + (_LEFT + self.width - _RIGHT) / 2
        self.parts.append(f'<text x="{x:g}" y="{HEIGHT - 8}" text-anchor="middle">step</text>')

    def line(self, kind: str, xs: NDArray[np.float64], ys: NDArray[np.float64], *, stair: bool = False) -> None:
        points = [self.at(x, y) for x, y in zip(xs, ys, strict=True) if math.isfinite(y)]
        if not points:
            return
        points = points if stair else _bends(points)
        self._curves.append(points)
        path = f"M{points[0][0]:.1f},{points[0][1]:.1f}"
        for (_, before), (x, y) in pairwise(points):
            path += f"L{x:.1f},{y:.1f}" if not stair else f"H{x:.1f}V{y:.1f}" if y != before else ""
        if stair:
            path += f"H{points[-1][0]:.1f}"
        self.parts.append(f'<path class="{kind}" d="{path}"/>')

    def area(self, kind: str, xs: NDArray[np.float64], ys: NDArray[np.float64]) -> None:
        if len(xs) > 1:
            points = _bends([self.at(x, y) for x, y in zip(xs, ys, strict=True)])
            floor = self.at(0, 0)[1]
            path = f"M{points[0][0]:.1f},{floor:.1f}" + "".join(f"L{x:.1f},{y:.1f}" for x, y in points)
            self.parts.append(f'<path style="stroke:none" class="{kind}" d="{path}V{floor:.1f}Z"/>')

    def level(self, kind: str, value: float, text: str, *, last: float | None = None) -> None:
        """A line across the chart, its text at the left, or across no curve if the ``last`` value of one is given."""
        (x1, y), (x2, _) = self.at(self.x[0], value), self.at(self.x[1], value)
        self.parts.append(f'<line class="{kind}" x1="{x1:.1f}" x2="{x2:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>')
        self._levels.append(y)
        # at the left, where the loss is still high and the cost low
        below = self.share(value) > 0.18
        if last is not None:
            # at the right, where the loss is low, or above the line if the curve's last value is right below it
            is_near = 0 <= self.at(0, last)[1] - y < 30 and y > _TOP + 14
            shifts = (12, -4) if below and not is_near else (-4, 12)
            begins = ((x2 - 3, "end", 1.0), (x1 + 5, "start", 0.0), ((x1 + x2) / 2, "middle", 0.5))
            places = [(x, anchor, share, y + shift) for x, anchor, share in begins for shift in shifts]
            places += [(x1 + 5, "start", 0.0, _TOP + 10.0), (x2 - 3, "end", 1.0, _TOP + 10.0)]  # it tells the value
            x, anchor, _, at = next((place for place in places if self._is_free(text, *place)), places[0])
            self._levels.append(at)
            where = f'x="{x:.1f}" y="{at:.1f}" text-anchor="{anchor}"'
        else:
            where = f'x="{x1 + 5:.1f}" y="{y + (12 if below else -4):.1f}"'
        self.parts.append(f'<text class="o {kind}t" {where}>{escape(text)}</text>')

    def _is_free(self, text: str, x: float, _anchor: str, share: float, y: float) -> bool:
        """Whether ``text``, of which a ``share`` is left of ``x``, is written in the chart and across no curve."""
        left = x - share * _CHARACTER * len(text)
        right, top, bottom = left + _CHARACTER * len(text), y - 10, y + 2
        is_inside = top >= _TOP and bottom <= HEIGHT - _BOTTOM
        return is_inside and not any(_crosses(curve, left, right, top, bottom) for curve in self._curves)

    def end(self, x: float, y: float, text: str) -> None:
        """Write the last value of a line above its end, or below it if a level or words are above; these come first."""
        x, y = self.at(x, y)
        y += 17 if any(y - 20 < level < y for level in self._levels) else -7
        self.parts.append(f'<text class="e o" x="{x + 4:.1f}" y="{y:.1f}" text-anchor="end">{escape(text)}</text>')


def _crosses(curve: Sequence[tuple[float, float]], left: float, right: float, top: float, bottom: float) -> bool:
    """Whether a curve of points passes through a box."""
    for (x0, y0), (x1, y1) in pairwise(curve):
        if x1 >= left and x0 <= right:
            ends = [y0 + (y1 - y0) * (min(max(x, x0), x1) - x0) / ((x1 - x0) or 1.0) for x in (left, right)]
            if max(ends) >= top and min(ends) <= bottom:
                return True
    return False


def svg(state: RunState, rows: ViewRows) -> str:
    """Loss, workers and dollars against the step, side by side, as a standalone SVG document.

    Parameters
    ----------
    state : RunState
    rows : ndarray, float32, shape (n, len(VIEW_COLUMNS))
        All rows of the run; they are decimated here.
    """
    if not len(rows):
        return _document(f'<text class="n" x="0" y="14">{label_of(state)}</text>', label_of(state), height=24)
    return _document("".join(part for panel in _panels(state, rows) for part in panel.parts), label_of(state))


def svg_panels(state: RunState, rows: ViewRows) -> list[str]:
    """The three charts as separate SVG documents, which wrap on a narrow page."""
    if not len(rows):
        return []
    panels, titles = _panels(state, rows), (loss_title(state.metric), "Workers", "Dollars")
    return [
        _document("".join(panel.parts), f"{title} against the step", left=panel.left, width=panel.width)
        for title, panel in zip(titles, panels, strict=True)
    ]


def label_of(state: RunState) -> str:
    """The curves in one sentence, as alternative text for screen readers."""
    if not state.step:
        return "No step was taken."
    loss = state.validation_loss if state.validation_loss is not None else state.loss
    best = f"{best_text(state)}, " if state.best else ""
    return (
        f"{state.metric} {metric(loss)} after {count(state.step, 'step')}, {best}"
        f"{count(state.n_workers_started, 'worker')} at the start, {usd(state.spent_usd)} spent"
    )


def _panels(state: RunState, rows: ViewRows) -> list[_Panel]:
    column = dict(zip(VIEW_COLUMNS, decimate(rows, _ROWS).astype(np.float64).T, strict=True))
    span = (0.0, max(float(column["step"][-1]) * 1.04, 1.0))
    return [_loss(state, column, span), _workers(column, span), _dollars(state, column, span)]


def _document(body: str, label: str, *, left: float = 0, width: float = WIDTH, height: int = HEIGHT) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{left:g} 0 {width:g} {height}" '
        f'width="{width:g}" height="{height}" '
        f'role="img" aria-label="{escape(label)}"><style>{_STYLE}</style>{body}</svg>'
    )


def _bends(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """``points`` without those within `_NEAR` of a straight line between the others, to save space."""
    kept = points[:1]
    passed: list[tuple[float, float]] = []
    for point, after in pairwise(points[1:]):
        passed.append(point)
        (x0, y0), (x1, y1) = kept[-1], after
        if any(abs(y0 + (y1 - y0) * (x - x0) / max(x1 - x0, 1e-9) - y) > _NEAR for x, y in passed):
            kept.append(point)
            passed = []
    return kept + points[1:][-1:]


def _loss(state: RunState, column: dict[str, NDArray[np.float64]], span: tuple[float, float]) -> _Panel:
    curves = [(column["step"], column[name]) for name in ("loss", "validation_loss")]
    low, high, is_log, clipped = loss_range(curves, span[1], [] if state.target is None else [state.target])
    base = state.baseline_loss
    if base is not None and is_base_in_range(float(low), float(high), base):
        # with room for its label if it is the lowest line
        under = base / (high / base) ** 0.2 if is_log else base - 0.2 * (high - base)
        low, high = under if base < low else low, max(high, base)
    else:
        base = None
    above = _REMARK_ROOM if state.baseline_loss is not None and clipped is None else PAD
    y_range = padded(float(low), float(high), is_log, above)
    panel = _Panel(0, _WIDTHS[0], span, y_range, is_log)
    evaluated = np.isfinite(column["validation_loss"])
    panel.frame(loss_title(state.metric), ["validation", "training"] if evaluated.any() else ["training alone"])
    panel.line("t" if evaluated.any() else "v", column["step"], column["loss"])
    panel.line("v", column["step"][evaluated], column["validation_loss"][evaluated])
    if state.target is not None:
        panel.level("y", state.target, f"target {metric(state.target)}")
    if evaluated.any():
        x, y = panel.at(column["step"][evaluated][-1], column["validation_loss"][evaluated][-1])
        panel.parts.append(f'<circle class="d" cx="{x:.1f}" cy="{y:.1f}" r="3"/>')
        _mark_best(panel, state, column, x)
    shown = column["validation_loss"][evaluated] if evaluated.any() else column["loss"]
    at = column["step"][evaluated] if evaluated.any() else column["step"]
    if base is not None:
        panel.level("z", base, base_text(state), last=float(shown[-1]) if math.isfinite(shown[-1]) else base)
    remark = f"up to {clipped:.2g}" if clipped is not None else ""
    if not remark and state.baseline_loss is not None and state.baseline_loss > panel.y[1]:
        remark = base_text(state)
    if remark:
        x, y = panel.at(span[1], panel.y[1])
        panel._levels.append(y + 9)
        panel.parts.append(f'<text class="o" x="{x:.1f}" y="{y + 9:.1f}" text-anchor="end">↑ {escape(remark)}</text>')
    if math.isfinite(shown[-1]):
        panel.end(float(at[-1]), float(shown[-1]), metric(float(shown[-1])))
    return panel


def _mark_best(panel: _Panel, state: RunState, column: dict[str, NDArray[np.float64]], end: float) -> None:
    """A ring around the best evaluation, labelled unless the curve ends there, at ``end`` units from the left."""
    for i in np.flatnonzero((column["step"] == state.best_step) & np.isfinite(column["validation_loss"])):
        x, y = panel.at(column["step"][i], column["validation_loss"][i])
        panel.parts.append(f'<circle class="b" cx="{x:.1f}" cy="{y:.1f}" r="4.5"/>')
        if end - x > 12:
            panel.parts.append(f'<text class="o" x="{x:.1f}" y="{y + 17:.1f}" text-anchor="middle">best</text>')


def _workers(column: dict[str, NDArray[np.float64]], span: tuple[float, float]) -> _Panel:
    workers = column["n_workers"]
    panel = _Panel(_WIDTHS[0] + _GAP, _WIDTHS[1], span, (0.0, max(float(workers.max()), 1.0) * 1.12))
    fewer = np.flatnonzero(np.diff(workers) < 0) + 1
    panel.frame("Workers", ["removed"] if len(fewer) else [], whole=True)
    panel.line("w", column["step"], workers, stair=True)
    panel.end(float(column["step"][-1]), float(workers[-1]), f"{workers[-1]:.0f}")
    for step in column["step"][fewer]:
        x, _ = panel.at(step, 0)
        panel.parts.append(f'<path class="m" d="M{x - 4:.1f},{_TOP - 8}h8l-4,7z"/>')
    return panel


def _dollars(state: RunState, column: dict[str, NDArray[np.float64]], span: tuple[float, float]) -> _Panel:
    spent, budget = column["spent_usd"], state.budget_usd
    most = float(spent.max()) or 1e-6
    is_in_range = budget is not None and is_cap_in_range(most, budget)
    top = max(most, budget or 0.0) * 1.1 if is_in_range else most * 1.25
    panel = _Panel(_WIDTHS[0] + _WIDTHS[1] + 2 * _GAP, _WIDTHS[2], span, (0.0, top))
    panel.frame("Dollars", ["spent", "servers"], dollars=True)
    panel.area("f", column["step"], spent)
    panel.area("s", column["step"], column["servers_usd"])
    panel.line("u", column["step"], spent)
    panel.line("r", column["step"], column["servers_usd"])
    if budget is not None and is_in_range:
        panel.level("c", budget, f"cap {usd(budget, trim=True)}")
    elif budget is not None:
        x, y = panel.at(0, top)
        text = f"↑ cap {usd(budget, trim=True)}"
        panel.parts.append(f'<text class="o ct" x="{x + 5:.1f}" y="{y + 9:.1f}">{text}</text>')
    # includes costs after the last step, like the figures beside it
    panel.end(float(column["step"][-1]), float(spent[-1]), usd(state.spent_usd))
    return panel
