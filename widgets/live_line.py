"""A live run in one line of a terminal: rewritten where that is possible, else a line every few seconds."""

from __future__ import annotations

import shutil
import time
from typing import Any, TextIO

from ..plurals import count
from ..telemetry.live import Event, RunState
from .forecast import progress_of
from .format import rough_metric, rounded, usd
from .rows import Rows
from .view_model import RECENT_ROWS, WORDS, estimate_text, line_of

#: Seconds between two drawings of a line that is rewritten.
REDRAW_S = 0.25
#: First and longest interval between two lines elsewhere, seconds; it doubles each time.
FIRST_LINE_S, LINE_EVERY_S = 1.0, 10.0
#: Longest sleep of the main thread while it waits, seconds, so that an interrupt is handled at once.
_POLL_S = 0.05
_CLEAR = "\r\x1b[K"
#: Events that are printed at a time, the newest ones: a fault may bring many.
MOST_EVENTS = 5


def live_parts(state: RunState, recent: Rows) -> list[str]:
    """The run in parts of a line, the most important first.

    Parameters
    ----------
    state : RunState
    recent : ndarray, float64, shape (n, len(COLUMNS))
        The newest rows; there may be none.
    """
    progress = progress_of(state, recent)["text"]
    parts = [state.name or state.run_id, *(progress.split(" · ") if progress else [WORDS[state.status].lower()])]
    newest = state.validation_loss if state.validation_loss is not None else state.loss
    if newest is not None:
        target = f" (target {state.target:g})" if state.target is not None else ""
        parts.append(f"{state.metric} {rough_metric(newest)}{target}")
    if state.n_workers:
        parts.append(count(state.n_workers, "worker"))
    cap = f" of {usd(state.budget_usd, trim=True)}" if state.budget_usd is not None else ""
    if (spent := f"{rounded(state.spent_usd)}{cap}") not in parts:
        parts.append(spent)
    return [*parts, *state.pending]


def live_line(state: RunState, recent: Rows, width: int = 0) -> str:
    """`live_parts` in one line of at most ``width`` characters (0: of any length); what does not fit is left out."""
    line = ""
    for part in live_parts(state, recent):
        longer = f"{line} · {part}" if line else part
        if width and len(longer) > width:
            continue
        line = longer
    return line[:width] if width else line


def follow(run: Any, to: TextIO) -> None:
    """Show ``run`` on ``to`` until its end; a KeyboardInterrupt is raised at once, below the line.

    Parameters
    ----------
    run : TrainingRun
    to : text file
        Rewritten if it is a terminal.
    """
    is_rewritten = to.isatty()
    gap_s = REDRAW_S if is_rewritten else FIRST_LINE_S
    clear = _CLEAR if is_rewritten else ""
    seen, is_foretold, next_line = 0, False, time.monotonic() + (0.0 if is_rewritten else gap_s)
    told: tuple[Event, ...] = ()
    try:
        if not is_rewritten:
            print(line_of(run.telemetry.state), file=to, flush=True)
        while (state := run.telemetry.state).is_live:
            seen = run.telemetry.wait_for_change(seen, _POLL_S)
            if state.estimate and not is_foretold:
                is_foretold = True
                print(f"{clear}{state.name}: {estimate_text(state)}", file=to, flush=True)
            for event in _newer(state.events, told)[-MOST_EVENTS:]:
                print(f"{clear}{state.name}: {event.text}", file=to, flush=True)
            told = state.events
            if time.monotonic() < next_line:
                continue
            recent = run.telemetry.rows_since(max(run.telemetry.n_rows - RECENT_ROWS, 0))
            if is_rewritten:
                width = shutil.get_terminal_size().columns - 1
                print(f"{_CLEAR}{live_line(state, recent, width)}", end="", file=to, flush=True)
            else:
                gap_s = min(2 * gap_s, LINE_EVERY_S)
                print(live_line(state, recent), file=to, flush=True)
            next_line = time.monotonic() + gap_s
    finally:
        if is_rewritten:
            print(_CLEAR, end="", file=to, flush=True)


def _newer(events: tuple[Event, ...], told: tuple[Event, ...]) -> tuple[Event, ...]:
    """Those of ``events`` that came after ``told``, of which the oldest may not be kept any more."""
    newest = told[-1] if told else None
    after = next((at + 1 for at in reversed(range(len(events))) if events[at] is newest), 0)
    return events[after:]
