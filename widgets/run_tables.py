"""The list of runs, and what was spent by day and project, as text and HTML. Pure."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

from ..plurals import count
from .format import NOTHING, duration, metric, usd
from .tables import html_table, text_table

#: Most runs that are shown, the newest ones.
SHOWN = 25
_HEAD = ("name", "began", "project", "trained", "best", "last", "time", "cost", "status")
_WORDS = 4


def runs_text(runs: Sequence[Any], n_others: int = 0) -> str:
    """The newest of ``runs`` (`mlless_nb.tracking.TrackedRun`) as lines; ``n_others`` are not among them."""
    if not runs:
        return _none(n_others)
    return "\n".join([text_table(_HEAD, list(map(_row, runs[-SHOWN:])), _WORDS), *_note(runs)])


def runs_html(runs: Sequence[Any], n_others: int = 0) -> str:
    """As `runs_text`, as a table."""
    if not runs:
        return f"<i>{_none(n_others)}</i>"
    return html_table(_HEAD, list(map(_row, runs[-SHOWN:])), _WORDS, note=" ".join(_note(runs)))


def _none(n_others: int) -> str:
    return f"none of {count(n_others, 'run')}" if n_others else "no run yet: a %%mlless cell starts one"


def _note(runs: Sequence[Any]) -> list[str]:
    older = len(runs) - SHOWN
    shown = [f"{count(older, 'older run')} not shown; to_pandas() has all."] if older > 0 else []
    return [*shown, f"{count(len(runs), 'run')}, {usd(sum(run.usd for run in runs))}"]


def _row(run: Any) -> tuple[str, ...]:
    began = datetime.datetime.fromtimestamp(run.began_s).strftime("%Y-%m-%d %H:%M")
    trained = run.label if len(run.label) <= 48 else f"{run.label[:47]}…"
    best = f"{run.metric} {metric(run.best_loss)}" if run.best_loss is not None else NOTHING
    figures = (best, metric(run.last_loss), duration(run.seconds), usd(run.usd), run.status)
    return run.name, began, run.project or NOTHING, trained, *figures


def spend_text(spend: Any) -> str:
    """`mlless_nb.tracking.listing.Spend` as lines, with the sum."""
    if not spend.rows:
        return "nothing was spent yet"
    return text_table(_SPEND_HEAD, _spend_rows(spend), 2)


def spend_html(spend: Any) -> str:
    """`mlless_nb.tracking.listing.Spend` as a table, with the sum."""
    if not spend.rows:
        return "<i>nothing was spent yet</i>"
    return html_table(_SPEND_HEAD, _spend_rows(spend), 2, strong=len(spend.rows))


_SPEND_HEAD = ("day", "project", "runs", "cost")


def _spend_rows(spend: Any) -> list[tuple[str, ...]]:
    rows = [(row.day.isoformat(), row.project or NOTHING, f"{row.n_runs:,}", usd(row.usd)) for row in spend.rows]
    return [*rows, ("total", "", f"{sum(row.n_runs for row in spend.rows):,}", usd(spend.total))]
