"""A run as it stays in a saved notebook: picture, table and text, without a widget and without scripts.

JupyterLab shows an error line instead of the text/html of an output whose widget model is gone, so at the end of a run
this replaces the widget. It reads on its own in each of its forms: text/plain in a log, text/html without its styles.
"""

from __future__ import annotations

import base64
from html import escape
from typing import Any

from .forecast import forecast_lines
from .picture import label_of, picture
from .rows import view_rows
from .state import RECENT_ROWS, view_of

_MUTED = "color:var(--jp-ui-font-color2,#5f6368)"
_RULE = "1px solid var(--jp-border-color2,#d8dadd)"
_CARD = (
    f"max-width:946px;border:{_RULE};border-radius:8px;padding:14px 16px 10px;"
    "background:var(--jp-layout-color1,#fff);font-size:13px;line-height:1.45"
)
_CELL = "text-align:left;border:0;background:none;max-width:none"
_ROW = '<tr style="background:none;border:0">'
#: Colours that read on white and on JupyterLab's dark grey alike.
_ACCENTS = {"finished": "#00855f", "stopped": "#7a7d82", "capped": "#c26a00", "failed": "#dd3a50"}
_SHOWN_EVENTS = 12


def static_bundle(run: Any) -> dict[str, str]:
    """The run now as a mime bundle: image/svg+xml, text/html and text/plain."""
    state, rows = run.telemetry.state, run.telemetry.rows_since(0)
    view = view_of(state, rows[-RECENT_ROWS:])
    drawing = picture(state, view_rows(rows))
    return {
        "image/svg+xml": drawing,
        "text/html": _html(view, drawing, label_of(state)),
        "text/plain": text_summary(run),
    }


def text_summary(run: Any) -> str:
    """The run now in a few lines of plain text."""
    state, rows = run.telemetry.state, run.telemetry.rows_since(max(run.telemetry.n_rows - RECENT_ROWS, 0))
    view = view_of(state, rows)
    lines = [
        f"{view['name'] or view['run_id']}: {view['word'].lower()}" + (f". {view['reason']}" if view["reason"] else "")
    ]
    lines += [f"  {label:<20}{text}" for label, text in _facts(view)]
    if view["exchange"]:
        lines.append(f"  {'Exchange':<20}{view['exchange']['text']} · step {view['exchange']['step_text']}")
    lines += [f"  {'Forecast':<20}{sentence}" for sentence in forecast_lines(state)]
    lines += [f"  {'Asked for':<20}{sentence}" for sentence in view["pending"]]
    return "\n".join(lines)


def _facts(view: dict[str, Any]) -> list[tuple[str, str]]:
    """What the figures of ``view`` say, as pairs of label and text."""
    note = f" ({view['metric_note']})" if view["metric_note"] else ""
    price = view["spent_label"].partition("(")[2].rstrip(")")
    return [
        ("Job", view["about"]),
        (view["metric_label"], view["metric_text"] + note),
        ("Workers", f"{view['workers_text']} {view['workers_note']}"),
        ("Spent", f"{view['spent_text']} {view['spent_note']}, {price}"),
        ("Time", view["time_text"]),
    ]


def _html(view: dict[str, Any], drawing: str, label: str) -> str:
    encoded = base64.b64encode(drawing.encode()).decode()
    image = f'<img alt="{escape(label)}" style="width:100%" src="data:image/svg+xml;base64,{encoded}">'
    accent = _ACCENTS.get(view["status"], "#00855f")
    parts = [
        f'<div style="{_CARD}">',
        f'<div><b style="font-size:15px">{escape(view["name"] or view["run_id"])}</b> &nbsp;',
        f'<span style="border:{_RULE};border-radius:10px;padding:1px 9px;font-size:12px">',
        f'<b style="color:{accent}">{view["icon"]}</b> {escape(view["word"])}</span> &nbsp;',
        f'<span style="{_MUTED}">{escape(view["about"])}</span></div>',
        f'<div style="margin-top:2px">{escape(view["reason"])}</div>' if view["reason"] else "",
        _figures(view),
        image if view["exchange"] else f'<div style="{_MUTED};margin-bottom:8px">{escape(label)}</div>',
        _events(view),
        "</div>",
    ]
    return "".join(parts)


def _figures(view: dict[str, Any]) -> str:
    figures = [
        (view["metric_label"], view["metric_text"], view["metric_note"]),
        ("Workers", view["workers_text"], view["workers_note"]),
        (view["spent_label"], view["spent_text"], view["spent_note"]),
        ("Time", view["time_text"], ""),
    ]
    labels = values = ""
    for label, text, note in figures:
        small = f'<span style="font-size:12px;{_MUTED}">{escape(note)}</span>'
        labels += f'<th style="{_CELL};padding:0 30px 0 0;font-weight:400;font-size:12px;{_MUTED}">{escape(label)}</th>'
        values += f'<td style="{_CELL};padding:0 30px 0 0;font-size:19px">{escape(text)} {small}</td>'
    return (
        f'<table style="border:0;margin:10px 0 12px"><thead style="border:0">{_ROW}{labels}</tr></thead>'
        f"<tbody>{_ROW}{values}</tr></tbody></table>"
    )


def _events(view: dict[str, Any]) -> str:
    """The newest events and the exchange, folded away unless they are what is to be read."""
    cell = f"{_CELL};padding:1px 14px 1px 0;font-size:12px"
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
    opened = " open" if view["status"] == "failed" else ""
    return (
        f'<details{opened} style="border-top:{_RULE};margin-top:6px;padding-top:6px;font-size:12px">'
        '<summary style="cursor:pointer">Events</summary>'
        f'<table style="border:0;margin:4px 0 0"><tbody>{shown}</tbody></table></details>'
    )
