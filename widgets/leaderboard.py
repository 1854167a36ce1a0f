"""A sweep as a leaderboard, live or static."""

from __future__ import annotations

import time
from collections.abc import Mapping
from html import escape
from typing import Any

from ..plain_text import PlainText
from ..plurals import count
from ..telemetry.live import LIVE
from .comparison import plotly_bundle, shown
from .display import FIRST_LINE_S, LINE_EVERY_S
from .format import duration, metric, percent, usd
from .frontend import Frontend, can_click, detect
from .parallel_coordinates import parallel_coordinates
from .tables import html_table, text_table

#: Most trials in a table: the best ones, and those that are live.
SHOWN = 25
#: Most failed trials below it whose reasons are told.
FAILURES = 3
#: Longest wait for a change, seconds: so soon an interrupt is handled.
_POLL_S = 0.05
_WORDS = {"capped": "budget reached"}


def sentence(sweep: Any) -> str:
    """How far a sweep is, in one line."""
    trials, best = sweep.trials, sweep.best_so_far
    parts = [f"{sweep.name}: {sweep.status}, {len(trials)} of {count(sweep.n_trials, 'trial')} ({sweep.sampler})"]
    if best is not None:
        parts.append(f"best {sweep.metric} {metric(best.loss)} of trial {best.number} ({settings_text(best.settings)})")
    pruned = sum(trial.status == "pruned" for trial in trials)
    if pruned:
        parts.append(f"{pruned} pruned")
    parts.append(f"{usd(sweep.spent)} of {usd(sweep.budget, trim=True)}")
    return ", ".join(parts)


def settings_text(settings: Mapping[str, Any]) -> str:
    """``learning_rate=3.2, workers=4``."""
    return ", ".join(f"{name}={shown(value)}" for name, value in settings.items())


def trial_line(sweep: Any, trial: Any) -> str:
    """One line on a trial that has ended."""
    loss = f"{sweep.metric} {metric(trial.loss)}" if trial.loss is not None else trial.reason
    word = _WORDS.get(trial.status, trial.status)
    drawn = settings_text(trial.settings)
    return f"{trial.name}: {drawn}: {loss}, {word} after {_done(trial)}, {usd(trial.usd)}"


def _failures(sweep: Any) -> list[str]:
    """Why its first failed trials have failed, a line for each."""
    failed = [trial for trial in sweep.trials if trial.status == "failed" and trial.reason]
    return [f"{trial.name} failed: {trial.reason}" for trial in failed[:FAILURES]]


def as_text(sweep: Any) -> PlainText:
    """The leaderboard as lines."""
    lines = [sentence(sweep)]
    if not sweep.is_live and sweep.reason:
        lines.append(sweep.reason)
    rows = _rows(sweep)
    return PlainText("\n".join([*lines, text_table(_head(sweep), rows, 1), *_failures(sweep)] if rows else lines))


def as_html(sweep: Any) -> str:
    """The leaderboard as a table, the best trial in bold."""
    head = f'<div style="margin-bottom:4px"><b>{escape(sentence(sweep))}</b></div>'
    rows = _rows(sweep)
    note = "" if sweep.is_live else sweep.reason
    table = html_table(_head(sweep), rows, 1, strong=0 if sweep.best_so_far is not None else None, note=note)
    kinds = "mlless-leaderboard mathjax_ignore tex2jax_ignore"  # dollar signs are not formulas
    # a notebook's widgets have other line heights than its outputs
    failures = "".join(f"<div>{escape(line)}</div>" for line in _failures(sweep))
    return f'<div class="{kinds}" style="line-height:1.45" role="status">{head}{table if rows else ""}{failures}</div>'


def if_restarted(sweep: Any) -> dict[str, Any]:
    """What a browser shows when it notices that the sweep's kernel is gone.

    A ``text`` in place of the `sentence`, and ``words`` in place of the statuses of live trials.
    """
    text = f"{sweep.name}: the kernel was restarted; its trials were stopped and saved: "
    return {"text": f"{text}mlless_nb.runs(sweep={sweep.name!r})", "words": dict.fromkeys(LIVE, "stopped")}


def _head(sweep: Any) -> tuple[str, ...]:
    return ("trial", *sweep.spaces, f"best {sweep.metric}", "done", "time", "cost", "status")


def _rows(sweep: Any) -> list[tuple[str, ...]]:
    ranked = sweep.ranked
    kept = [trial for place, trial in enumerate(ranked) if place < SHOWN or trial.is_live]
    return [
        (
            trial.name,
            *(shown(trial.settings.get(name)) for name in sweep.spaces),
            metric(trial.loss),
            _done(trial),
            duration(trial.seconds),
            usd(trial.usd),
            _WORDS.get(trial.status, trial.status),
        )
        for trial in kept
    ]


def _done(trial: Any) -> str:
    return f"epoch {trial.epoch:.3g}" if trial.share is None else percent(trial.share)


def show(sweep: Any, wait: bool = False, frontend: Frontend | None = None) -> None:
    """Show ``sweep`` from now on: in an interactive notebook a live leaderboard, elsewhere lines.

    Parameters
    ----------
    sweep : Sweep
    wait : bool
        Return when it has ended. ``KeyboardInterrupt`` is raised within 50 ms and does not affect it.
    frontend : Frontend, optional
        Replaces the result of `detect`.
    """
    kind = frontend or detect()
    if can_click(kind):
        from .live_leaderboard import Leaderboard

        board = Leaderboard(sweep)
        board.display()
        if wait:
            sweep.wait()
            board.join()
        return
    if kind != "none":
        print(sentence(sweep), flush=True)
    if wait:
        _follow(sweep, may_print=kind != "none")
        if kind == "batch":
            publish(sweep)
        elif kind != "none":
            print(as_text(sweep), flush=True)


def publish(sweep: Any) -> None:
    """Show the ended sweep in this cell's output: what stays in a saved notebook."""
    from IPython.display import display

    for bundle in static_bundles(sweep):
        display(bundle, raw=True)


def static_bundles(sweep: Any) -> list[dict[str, Any]]:
    """The leaderboard and, if a trial has a loss, the parallel coordinates as mime bundles without a widget."""
    bundles: list[dict[str, Any]] = [{"text/html": as_html(sweep), "text/plain": as_text(sweep)}]
    if sweep.best_so_far is not None:
        bundles.append(plotly_bundle(parallel_coordinates(sweep), f"parallel coordinates of {sweep.name}"))
    return bundles


def _follow(sweep: Any, *, may_print: bool) -> None:
    """Wait for the end; print a line for each trial that has ended, and one now and then."""
    told: set[int] = set()
    gap_s, seen, next_line = FIRST_LINE_S, 0, time.monotonic() + FIRST_LINE_S
    while True:
        is_live = sweep.is_live
        for trial in sweep.trials:
            if not trial.is_live and trial.number not in told:
                told.add(trial.number)
                if may_print:
                    print(trial_line(sweep, trial), flush=True)
        if not is_live:
            return
        if may_print and time.monotonic() >= next_line:
            gap_s = min(2 * gap_s, LINE_EVERY_S)
            next_line = time.monotonic() + gap_s
            print(sentence(sweep), flush=True)
        seen = sweep.wait_for_change(seen, _POLL_S)
