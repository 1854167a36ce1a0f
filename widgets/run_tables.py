"""The list of runs, and what was spent by day and project, as text and HTML. Pure."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

from ..plurals import count
from ..tracking.entry import differing, flat
from .comparison import shown
from .format import NOTHING, duration, metric, usd
from .tables import html_table, text_table

#: Most runs that are shown, the newest ones.
SHOWN = 25
_HEAD = ("name", "began", "project", "trained", "best", "last", "time", "cost", "status")
#: Columns of words, which stand first: of runs, and of the trials of a sweep.
_WORDS, _TRIAL_WORDS = 4, 2


def runs_text(runs: Sequence[Any], n_others: int = 0, *, are_trials: bool = False) -> str:
    """The newest of ``runs`` (`mlless_nb.tracking.TrackedRun`) as lines; ``n_others`` are not among them.

    Of the trials of a sweep the best ones, with the settings that differ.
    """
    if not runs:
        return _none(n_others)
    if are_trials:
        return "\n".join([text_table(*_trials(runs), _TRIAL_WORDS), *_note(runs, "other")])
    return "\n".join([text_table(_HEAD, list(map(_row, runs[-SHOWN:])), _WORDS), *_note(runs)])


def runs_html(runs: Sequence[Any], n_others: int = 0, *, are_trials: bool = False) -> str:
    """As `runs_text`, as a table; the best trial of a sweep in bold."""
    if not runs:
        return f"<i>{_none(n_others)}</i>"
    if are_trials:
        best = 0 if any(run.best_loss is not None for run in runs) else None
        return html_table(*_trials(runs), _TRIAL_WORDS, strong=best, note=" ".join(_note(runs, "other")))
    return html_table(_HEAD, list(map(_row, runs[-SHOWN:])), _WORDS, note=" ".join(_note(runs)))


def _none(n_others: int) -> str:
    return f"none of {count(n_others, 'run')}" if n_others else "no run yet: a %%mlless cell starts one"


def _note(runs: Sequence[Any], kind: str = "older") -> list[str]:
    n_hidden = len(runs) - SHOWN
    hidden = [f"{count(n_hidden, f'{kind} run')} not shown; to_pandas() has all."] if n_hidden > 0 else []
    return [*hidden, f"{count(len(runs), 'run')}, {usd(sum(run.usd for run in runs))}"]


def _row(run: Any) -> tuple[str, ...]:
    trained = run.label if len(run.label) <= 48 else f"{run.label[:47]}…"
    return run.name, _began(run), run.project or NOTHING, trained, *_figures(run)


def _rank(run: Any) -> tuple[bool, bool, float, float]:
    """Sorts the ended and live trials of a sweep, the best one first, as `Trial.rank` does."""
    has_loss = run.best_loss is not None
    return not has_loss, has_loss and run.status == "failed", run.best_loss or 0.0, run.began_s


def _trials(runs: Sequence[Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Head and rows of the best trials of a sweep."""
    ended = [run for run in runs if not run.is_live] or runs  # what a live one leaves open may be decided by its end
    names = list(differing([run.settings for run in ended]))
    ranked = sorted(runs, key=_rank)[:SHOWN]
    values = [flat(run.settings) for run in ranked]
    rows = [
        (run.name, _began(run), *(shown(each.get(name)) for name in names), *_figures(run))
        for run, each in zip(ranked, values, strict=True)
    ]
    return (*_HEAD[:_TRIAL_WORDS], *names, *_HEAD[_WORDS:]), rows


def _began(run: Any) -> str:
    return datetime.datetime.fromtimestamp(run.began_s).strftime("%Y-%m-%d %H:%M")


def _figures(run: Any) -> tuple[str, ...]:
    best = f"{run.metric} {metric(run.best_loss)}" if run.best_loss is not None else NOTHING
    return best, metric(run.last_loss), duration(run.seconds), usd(run.usd), run.status


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
