"""One iteration of a stateless run: a flow chart of its functions and objects, and a Gantt chart of their times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from ..errors import CommandError
from ..plurals import count
from .svg import tick_texts, ticks

#: What each stage is called, in the order of an iteration.
STAGES = {"launch": "launcher", "update": "worker", "reduce": "reducer", "merge": "merger"}
#: An entry of a run's trace.
Entry = dict[str, Any]

_WIDTH, _LEFT, _TOP, _BOTTOM = 840, 92, 30, 34
_BOX, _HIGH, _GAP = 112, 52, 56
_STYLE = (
    "text{font:11px system-ui,'DejaVu Sans',sans-serif;fill:#3c4043}.h{font-size:12px;font-weight:600}"
    ".launch{fill:#8e6fc0}.update{fill:#0072b2}.reduce{fill:#d55e00}.merge{fill:#00795a}.lost{fill:#b00020}"
    ".start{opacity:.3}.get,.put{fill:#fff;opacity:.55}.put{fill:#000;opacity:.35}"
    ".g,.a{stroke:#9aa0a6;fill:none}.g{opacity:.4}.o{fill:none;stroke:#5f6368}"
    "@media (prefers-color-scheme:dark){text{fill:#d2d5d9}}"
)


@dataclass(frozen=True)
class Workflow:
    """The charts of one iteration. A notebook shows both.

    Attributes
    ----------
    flow, gantt : str
        SVG documents.
    """

    flow: str
    gantt: str

    def __repr__(self) -> str:
        return "<Workflow: a flow chart and a Gantt chart of one step; a notebook shows them>"

    def _repr_html_(self) -> str:
        return f"<div>{self.flow}</div><div>{self.gantt}</div>"


def workflow(trace: Sequence[Entry], step: int | None = None) -> Workflow:
    """The charts of ``step``, by default the last whole one before the end.

    Parameters
    ----------
    trace : sequence of dict
        See `mlless_nb.TrainingRun.trace`.

    Raises
    ------
    CommandError
        If no function of that step is in the trace.
    """
    if step is None:
        whole = sorted({entry["step"] for entry in trace if entry["stage"] in ("reduce", "merge")})
        step = whole[-2] if len(whole) > 1 else whole[0] if whole else 0
    of_step = [entry for entry in trace if entry["step"] == step and entry["stage"] in STAGES]
    if not of_step:
        raise CommandError(f"step={step}: no function of it is in the trace, which only stateless runs have")
    return Workflow(_flow(of_step, step), _gantt(of_step, step))


# -- the flow chart


def _flow(entries: Sequence[Entry], step: int) -> str:
    """Stages from left to right, with the objects that each reads from an earlier one."""
    done = [entry for entry in entries if not entry["error"]]
    present = [stage for stage in STAGES if any(entry["stage"] == stage for entry in done)]
    boxes = ["model", *present]
    parts = [f'<text class="h" x="4" y="14">Step {step}: functions, and objects between them</text>']
    y = _TOP + 26
    for number, name in enumerate(boxes):
        x = 4 + number * (_BOX + _GAP)
        if name == "model":
            title, below = f"model {step - 1}", "object storage"
        else:
            of_stage = [entry for entry in done if entry["stage"] == name]
            n_lost = sum(entry["stage"] == name and bool(entry["error"]) for entry in entries)
            title = count(len(of_stage), STAGES[name])
            took_ms = 1e3 * max(entry["ended_at_s"] - entry["began_at_s"] for entry in of_stage)
            below = f"{took_ms:.0f} ms" + (f", {n_lost} lost" if n_lost else "")
        parts.append(f'<rect class="o" x="{x}" y="{y}" width="{_BOX}" height="{_HIGH}" rx="6"/>')
        parts += [_centred(x, y + 22, title, "h"), _centred(x, y + 40, below)]
        if number:
            parts += _arrow(x - _GAP, x, y, *_edge(done, boxes[number - 1], name))
    width = 8 + len(boxes) * (_BOX + _GAP)
    parts += _arrow(width - _GAP - 4, width - 8, y, f"model {step}", "")
    return _document("".join(parts), width, y + _HIGH + 14, f"Flow chart of step {step}")


def _edge(done: Sequence[Entry], before: str, after: str) -> tuple[str, str]:
    """What stage ``after`` reads of stage ``before``, in words: the number of reads and their bytes."""
    written = {span[1] for entry in done if entry["stage"] == before for span in entry["objects"] if span[0] == "put"}
    reads = [span for entry in done if entry["stage"] == after for span in entry["objects"] if span[0] == "get"]
    if before == "model":
        reads = [span for span in reads if span[1].endswith("/model")]
    else:
        reads = [span for span in reads if span[1] in written]
    if not reads:
        return count(Counter(entry["stage"] for entry in done)[after], "call"), ""
    return count(len(reads), "get"), _amount(sum(span[4] for span in reads))


def _arrow(x1: float, x2: float, y: float, above: str, below: str) -> list[str]:
    middle, at = (x1 + x2) / 2, y + _HIGH / 2
    return [
        f'<path class="a" d="M{x1 + 3:g},{at:g}H{x2 - 5:g}m-4,-4l5,4l-5,4"/>',
        f'<text x="{middle:g}" y="{y - 10:g}" text-anchor="middle">{escape(above)}</text>',
        f'<text x="{middle:g}" y="{y + 4:g}" text-anchor="middle">{escape(below)}</text>',
    ]


def _centred(x: float, y: float, text: str, kind: str = "") -> str:
    return f'<text class="{kind}" x="{x + _BOX / 2:g}" y="{y:g}" text-anchor="middle">{escape(text)}</text>'


def _amount(n_bytes: int) -> str:
    return f"{n_bytes / 1e6:.1f} MB" if n_bytes >= 1e6 else f"{n_bytes / 1e3:.1f} kB"


# -- the Gantt chart


def _gantt(entries: Sequence[Entry], step: int) -> str:
    """A bar for each function: its start-up pale, reads light and writes dark within it."""
    order = list(STAGES)
    rows = sorted(entries, key=lambda entry: (order.index(entry["stage"]), entry["index"], entry["attempt"]))
    high = 15 if len(rows) <= 40 else 4
    begin = min(entry["launched_at_s"] for entry in rows)
    end = max(float(entry.get("ended_at_s") or begin) for entry in rows)
    span_ms = max(1e3 * (end - begin), 1.0)
    scale = (_WIDTH - _LEFT - 10) / span_ms

    def bar(kind: str, first_s: float, last_s: float, y: float, inset: int = 2) -> str:
        x, wide = _LEFT + scale * 1e3 * (first_s - begin), scale * 1e3 * max(last_s - first_s, 0.0)
        box = f'x="{x:.1f}" y="{y + inset:g}" width="{max(wide, 0.5):.1f}" height="{max(high - 2 * inset, 1):g}"'
        return f'<rect class="{kind}" {box}/>'

    parts = [f'<text class="h" x="4" y="14">Step {step}: milliseconds since its first function was invoked</text>']
    bottom = _TOP + high * len(rows)
    values = ticks(0.0, span_ms)
    for value, text in zip(values, tick_texts(values), strict=True):
        x = _LEFT + scale * value
        parts.append(f'<path class="g" d="M{x:.1f},{_TOP}V{bottom}"/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 15}" text-anchor="middle">{text}</text>')
    for number, entry in enumerate(rows):
        y, stage = _TOP + high * number, entry["stage"]
        if high > 10:
            again = f" ({entry['attempt'] + 1})" if entry["attempt"] else ""
            parts.append(f'<text x="4" y="{y + 11}">{STAGES[stage]} {entry["index"]}{again}</text>')
        # A function that was lost may have told neither.
        began, ended = (float(entry.get(name) or entry["launched_at_s"]) for name in ("began_at_s", "ended_at_s"))
        parts.append(bar(f"{stage} start", entry["launched_at_s"], began, y))
        parts.append(bar("lost" if entry["error"] else stage, began, ended, y))
        for what, _, first_s, last_s, _ in entry.get("objects", ()):
            parts.append(bar(what, first_s, last_s, y, 4))
    return _document("".join(parts), _WIDTH, bottom + _BOTTOM, f"Gantt chart of step {step}")


def _document(body: str, width: float, height: float, label: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" role="img" aria-label="{escape(label)}"><style>{_STYLE}</style>{body}</svg>'
    )
