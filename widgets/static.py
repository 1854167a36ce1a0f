"""The static view of a run for a saved notebook: SVG, table and text, without a widget and without scripts.

For an output whose widget model no longer exists, JupyterLab shows an error line instead of text/html. So this view
replaces the widget at the end of a run. Each form is readable by itself: text/plain in a log, text/html without styles.
"""

from __future__ import annotations

import base64
from html import escape
from typing import Any

import numpy as np

from ..plain_text import PlainText
from .access import access_to
from .forecast import forecast_lines
from .format import metric, usd
from .rows import VIEW_COLUMNS, ViewRows, view_rows
from .svg import label_of, svg, svg_panels
from .view_model import RECENT_ROWS, cost_text, view_of

_MUTED = "color:var(--jp-ui-font-color2,#5f6368)"
_RULE = "1px solid var(--jp-border-color2,#d8dadd)"
_CARD = (
    f"border:{_RULE};border-radius:8px;padding:14px 16px 10px;"
    "background:var(--jp-layout-color1,#fff);font-size:13px;line-height:1.45"
)
_CELL = "border:0;background:none;max-width:none;font-size:12px"
_TABLE = "border:0;margin:4px 0 0;table-layout:auto"
_ROW = '<tr style="background:none;border:0">'
#: Colours that are readable on white and on JupyterLab's dark grey.
_ACCENTS = {"finished": "#00855f", "stopped": "#7a7d82", "capped": "#c26a00", "failed": "#dd3a50"}
_SHOWN_EVENTS = 12
#: Rows of the table of steps.
_SHOWN_STEPS = 8


def static_bundle(run: Any, card: str = "") -> dict[str, str]:
    """The run now as a mime bundle: image/svg+xml, text/html and text/plain.

    ``card``: a class of the text/html, by which a living widget finds it.
    """
    state, rows = run.telemetry.state, run.telemetry.rows_since(0)
    view = view_of(state, rows[-RECENT_ROWS:], access=access_to(run))
    drawn = view_rows(rows)
    return {
        "image/svg+xml": svg(state, drawn),
        "text/html": _html(view, drawn, svg_panels(state, drawn), label_of(state), cost_text(run.cost), card),
        "text/plain": text_summary(run),
    }


def text_summary(run: Any, next_text: str | None = None) -> PlainText:
    """The run now in a few lines of plain text.

    ``next_text`` says what may be done after the end; None: what can be done here.
    """
    state, rows = run.telemetry.state, run.telemetry.rows_since(max(run.telemetry.n_rows - RECENT_ROWS, 0))
    view = view_of(state, rows, access=access_to(run))
    lines = [
        f"{view['name'] or view['run_id']}: {view['word'].lower()}" + (f". {view['reason']}" if view["reason"] else "")
    ]
    lines += [f"  {label:<20}{text}" for label, text in _facts(view)]
    if view["exchange"]:
        lines.append(f"  {'Exchange':<20}{view['exchange']['text']} · step {view['exchange']['step_text']}")
    lines += [f"  {'Forecast':<20}{sentence}" for sentence in forecast_lines(state)]
    lines += [f"  {'Asked for':<20}{sentence}" for sentence in view["pending"]]
    if not state.is_live:
        lines += [f"  {name:<20}{text}" for name, text in _last_lines(view, cost_text(run.cost), next_text) if text]
    return PlainText("\n".join(lines))


def _last_lines(view: dict[str, Any], cost: str, next_text: str | None) -> list[tuple[str, str]]:
    return [
        ("Cost", cost.removeprefix("Cost: ")),
        ("Left", view["left_text"].partition(": ")[2]),
        ("Next", view["next_text"] if next_text is None else next_text),
    ]


def _facts(view: dict[str, Any]) -> list[tuple[str, str]]:
    """The figures of ``view``, as pairs of label and text."""
    note = f" ({view['metric_note']})" if view["metric_note"] else ""
    price = view["spent_label"].partition("(")[2].rstrip(")")
    return [
        ("Job", view["about"]),
        *([("Expected", view["estimate"].partition(": ")[2])] if view["estimate"] else []),
        (view["metric_label"], view["metric_text"] + note),
        *([("Best", view["best_text"].removeprefix("best "))] if view["best_text"] else []),
        *([("Compare", view["base_text"])] if view["base_text"] else []),
        *([("Result", view["shortfall"])] if view["shortfall"] else []),
        ("Workers", f"{view['workers_text']} {view['workers_note']}"),
        ("Spent", f"{view['spent_text']} {view['spent_note']}, {price}"),
        ("Time", view["time_text"]),
    ]


def _html(view: dict[str, Any], rows: ViewRows, charts: list[str], label: str, cost: str, card: str) -> str:
    accent = _ACCENTS.get(view["status"], "#00855f")
    parts = [
        f'<div class="mathjax_ignore tex2jax_ignore {card}" style="{_CARD}">',  # dollar signs are not formulas
        f'<div><b style="font-size:15px">{escape(view["name"] or view["run_id"])}</b> &nbsp;',
        f'<span style="border:{_RULE};border-radius:10px;padding:1px 9px;font-size:12px;white-space:nowrap">',
        f'<b style="color:{accent}">{view["icon"]}</b> {escape(view["word"])}</span> &nbsp;',
        f'<span style="{_MUTED}">{escape(view["about"])}</span></div>',
        f'<div style="margin-top:2px">{escape(view["reason"])}</div>' if view["reason"] else "",
        f'<div style="margin-top:2px"><b>{escape(view["shortfall"])}</b></div>' if view["shortfall"] else "",
        _figures(view),
        _charts(charts, label) or f'<div style="{_MUTED};margin-bottom:8px">{escape(label)}</div>',
        _steps(view["metric"], rows, view["best_step"]) if len(rows) else "",
        *(
            f'<div style="margin-top:4px;font-size:12px;overflow-wrap:anywhere;{_MUTED}">{escape(text)}</div>'
            for text in (view["estimate"], cost, view["next_text"])
            if text
        ),
        _events(view),
        "</div>",
    ]
    return "".join(parts)


def _figures(view: dict[str, Any]) -> str:
    figures = [
        (view["metric_label"], view["metric_text"], view["metric_note"], view["best_text"]),
        ("Workers", view["workers_text"], view["workers_note"], ""),
        (view["spent_label"], view["spent_text"], view["spent_note"], ""),
        ("Time", view["time_text"], "", ""),
    ]
    # blocks, not a table: on a narrow page they wrap
    blocks = "".join(
        f'<div style="display:inline-block;vertical-align:top;white-space:nowrap;margin:0 30px 6px 0">'
        f'<div style="font-size:12px;{_MUTED}">{escape(label)}</div>'
        f'<div style="font-size:19px">{escape(text)} '
        f'<span style="font-size:12px;{_MUTED}">{escape(note)}</span></div>'
        + (f'<div style="font-size:12px;{_MUTED}">{escape(below)}</div></div>' if below else "</div>")
        for label, text, note, below in figures
    )
    return f'<div style="margin:10px 0 6px">{blocks}</div>'


def _charts(charts: list[str], label: str) -> str:
    """Three charts side by side, fewer per row on a narrow page; the first one's alternative text covers all."""
    texts = (label, "Workers against the step", "Dollars against the step")
    shares = ((50, 320), (25, 150), (25, 150))  # percent of the width, least pixels
    return "".join(
        f'<img alt="{escape(text)}" style="width:{share}%;min-width:min(100%,{least}px);vertical-align:top" '
        f'src="data:image/svg+xml;base64,{base64.b64encode(chart.encode()).decode()}">'
        for text, (share, least), chart in zip(texts, shares, charts, strict=False)
    )


def _steps(metric_name: str, rows: ViewRows, best_step: int | None) -> str:
    """A table of evenly spaced steps, evaluated ones if possible, with the best one in bold and the last one."""
    column = dict(zip(VIEW_COLUMNS, rows.T, strict=True))
    evaluated = np.flatnonzero(np.isfinite(column["validation_loss"]))
    among = evaluated if len(evaluated) >= _SHOWN_STEPS else np.arange(len(rows))
    chosen = among[np.linspace(0, len(among) - 1, min(_SHOWN_STEPS, len(among))).astype(np.intp)]
    cell = f"{_CELL};text-align:right;padding:0 0 0 8px"
    heads = ("step", "epoch", "seconds", f"training {metric_name}", f"validation {metric_name}", "workers", "spent")
    head = "".join(f'<th style="{cell};font-weight:400;{_MUTED}">{escape(text)}</th>' for text in heads)
    body = ""
    best = np.flatnonzero(column["step"] == best_step)
    for i in np.unique([*chosen, *best, len(rows) - 1]):
        step, epoch, time_s, loss, validation, workers, spent, _ = (float(value) for value in rows[i])
        held_out = metric(validation) if np.isfinite(validation) else ""
        when = (f"{step:,.0f}", f"{epoch:.1f}", f"{time_s:,.1f}")
        texts = (*when, metric(loss), held_out, f"{workers:.0f}", usd(spent))
        weight = ";font-weight:600" if i in best else ""
        body += _ROW + "".join(f'<td style="{cell}{weight}">{text}</td>' for text in texts) + "</tr>"
    head = f'<thead style="border:0">{_ROW}{head}</tr></thead>'
    table = f'<table style="{_TABLE};width:100%;max-width:560px">{head}<tbody>{body}</tbody></table>'
    return _folded("Steps", table, is_open=True)


def _folded(title: str, table: str, *, is_open: bool) -> str:
    return (
        f'<details{" open" if is_open else ""} style="border-top:{_RULE};margin-top:6px;padding-top:6px;font-size:12px;'
        f'overflow-x:auto"><summary style="cursor:pointer">{title}</summary>{table}</details>'
    )


def _events(view: dict[str, Any]) -> str:
    """The newest events and the exchange; collapsed unless the run failed, when they are most important."""
    cell = f"{_CELL};text-align:left;padding:1px 14px 1px 0"
    rows = [(time, text) for time, text in view["events"][:_SHOWN_EVENTS]]
    if view["exchange"]:
        rows.append(("exchange", f"{view['exchange']['text']} · step {view['exchange']['step_text']}"))
    if not rows:
        return ""
    shown = "".join(
        f'{_ROW}<td style="{cell};{_MUTED};white-space:nowrap">{escape(time)}</td>'
        f'<td style="{cell}">{escape(text)}</td></tr>'
        for time, text in rows
    )
    table = f'<table style="{_TABLE}"><tbody>{shown}</tbody></table>'
    return _folded("Events", table, is_open=view["status"] == "failed")
