"""Several runs beside each other: their losses as a plotly figure, their figures and settings as tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .format import NOTHING, duration, metric, usd
from .loss_range import DIVERGES
from .plotly_style import styled
from .tables import html_table, text_table

#: Colours of curves, readable on white and on dark grey; after these they begin anew, dashed.
COLOURS = ("#0072B2", "#D55E00", "#00795a", "#CC79A7", "#8a5a9e", "#b8860b", "#7a7d82", "#c2185b")
_DASHES = ("solid", "dash", "dot")
_HEAD = ("run", "best", "last", "steps", "time", "cost", "status")
#: Most runs that have a column each.
_COLUMNS = 4
_SAME = "their settings are the same"


def plotly_figure(comparison: Any) -> Any:
    """Losses against seconds and against dollars as a ``plotly.graph_objects.Figure`` of two panels."""
    from plotly.subplots import make_subplots

    metrics = dict.fromkeys(run.entry.metric or "loss" for run in comparison.runs)
    drawn = make_subplots(rows=1, cols=2, shared_yaxes=True, horizontal_spacing=0.06)
    for number, run in enumerate(comparison.runs):
        colour, dash = COLOURS[number % len(COLOURS)], _DASHES[number // len(COLOURS) % len(_DASHES)]
        line = {"color": colour, "width": 2.5 if run.is_validation else 1, "dash": dash}
        mode = "lines" if len(run.losses) > 1 else "markers"
        for col, xs in ((1, run.seconds), (2, run.dollars)):
            drawn.add_scatter(
                row=1,
                col=col,
                name=run.label,
                x=xs,
                y=run.losses,
                mode=mode,
                line=line,
                legendgroup=str(number),
                showlegend=col == 1,
            )
    drawn.update_xaxes(rangemode="tozero")
    drawn.update_xaxes(title_text="seconds", row=1, col=1)
    drawn.update_yaxes(title_text=f"Loss ({', '.join(metrics)})", row=1, col=1)
    losses = [loss for run in comparison.runs for loss in run.losses.tolist() if math.isfinite(loss)]
    low = min(losses, default=0.0)
    if 0 < DIVERGES * low < max(losses):  # a diverged run leaves the axis, where the others would be one line
        ends = [math.log10(low) - 0.05, math.log10(DIVERGES * low)]
        drawn.update_yaxes(type="log", range=ends, dtick="D2", tickformat="~g")  # 0.5, 1, 2, 5, 10
    styled(drawn, 340)
    dollars = {"tickprefix": "$", "exponentformat": "none", "nticks": 5, "tickfont": {"size": 10}}  # $0.0005, not $500µ
    return drawn.update_xaxes(title_text="US dollars", row=1, col=2, **dollars)


def as_text(comparison: Any) -> str:
    """Figures and differing settings as lines."""
    parts = [text_table(head, rows) for head, rows in _tables(comparison)]
    if not comparison.settings:
        parts.append(_SAME)
    return "\n\n".join(parts)


def as_html(comparison: Any) -> str:
    """Figures and differing settings as tables; the run with the best loss in bold."""
    runs = comparison.runs
    losses = [(run.entry.best_loss, number) for number, run in enumerate(runs) if run.entry.best_loss is not None]
    is_one_metric = len({run.entry.metric for run in runs}) == 1
    best = min(losses)[1] if losses and is_one_metric else None
    if _is_sheet(comparison):
        tables = [html_table(*table, strong_column=None if best is None else best + 1) for table in _tables(comparison)]
    else:
        figures, *settings = _tables(comparison)
        tables = [html_table(*figures, strong=best), *(html_table(*table) for table in settings)]
    if not comparison.settings:
        tables.append(f"<div>{_SAME}</div>")
    return '<div style="height:8px"></div>'.join(tables)


def show(comparison: Any) -> None:
    """Show the tables and, in a notebook, the figure."""
    from IPython.display import display

    from .frontend import detect

    display({"text/html": as_html(comparison), "text/plain": as_text(comparison)}, raw=True)
    if detect() not in ("terminal", "none"):
        display(plotly_bundle(plotly_figure(comparison), "losses against seconds and dollars"), raw=True)


def plotly_bundle(drawn: Any, told: str) -> dict[str, Any]:
    """A plotly figure as a mime bundle without scripts; ``told`` stands for it in a log."""
    import json

    return {"application/vnd.plotly.v1+json": json.loads(drawn.to_json()), "text/plain": f"[figure: {told}]"}


def _is_sheet(comparison: Any) -> bool:
    """Whether there is a column for each run, with all of it: then a narrow page has room for it."""
    return len(comparison.runs) <= _COLUMNS


def _tables(comparison: Any) -> list[tuple[tuple[str, ...], list[tuple[str, ...]]]]:
    """Heads and rows: a table with a column for each run, or one with a row for each and one of the settings."""
    rows = [_row(run) for run in comparison.runs]
    settings = [(name, *map(shown, values)) for name, values in comparison.settings.items()]
    labels = tuple(run.label for run in comparison.runs)
    if _is_sheet(comparison):
        return [(("run", *labels), [*list(zip(_HEAD, *rows, strict=True))[1:], *settings])]
    return [(_HEAD, rows), *([(("setting", *labels), settings)] if settings else [])]


def _row(run: Any) -> tuple[str, ...]:
    entry = run.entry
    figures = (f"{entry.steps:,}", duration(entry.seconds), usd(entry.usd), entry.status)
    return run.label, metric(entry.best_loss), metric(entry.last_loss), *figures


def shown(value: Any) -> str:
    """A setting's value in a few letters."""
    if value is None:
        return NOTHING
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(shown, value))
    text = str(value)
    return text if len(text) <= 32 else f"{text[:31]}…"
