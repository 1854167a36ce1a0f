"""The strip of workers: where the time of each goes, and who has left, was replaced or is slow. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from .format import short_time

#: A worker is called slow if it computes so many times as long as the median worker.
SLOW = 1.5
#: Signs beside the hue, so that nothing is told by colour alone.
MARKS = {"left": "✕", "leaving": "▾", "slow": "!", "replaced": "↻", "": ""}


def strip_of(worker_times: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    """One entry for each of `mlless_nb.telemetry.live.RunState.worker_times`.

    Each has a ``label``, the ``shares`` of the longest step that it computes, exchanges and waits, its ``kind`` ("" or
    left, leaving, slow, replaced), a ``mark`` and a ``text``.
    """
    computing = [entry[2] for entry in worker_times if entry[5] < entry[1]]
    usual = median(computing) if computing else 0.0
    longest = max((sum(entry[2:5]) for entry in worker_times), default=0.0) or 1.0
    return [_entry(entry, usual, longest) for entry in worker_times]


def note_of(worker_times: Sequence[Sequence[Any]], strip: Sequence[dict[str, Any]]) -> str:
    """What is unusual about the workers of a ``strip``, in one line: ``Worker 3 computes 1.8x as long · 2 removed``."""
    notes = []
    slow = [entry for entry in strip if entry["kind"] == "slow"]
    if slow:
        notes.append(slow[0]["text"].partition(";")[0] + (f" and {len(slow) - 1} more" if len(slow) > 1 else ""))
    for at, word in ((7, "leaving"), (5, "removed"), (8, "replaced")):
        if n := sum(entry[at] for entry in worker_times):
            notes.append(f"{n} {word}")
    return " · ".join(notes)


def _entry(entry: Sequence[Any], usual_s: float, longest_s: float) -> dict[str, Any]:
    first, n, compute, exchange, wait, n_left, last_step, n_leaving, n_replaced = entry
    who = f"workers {first} to {first + n - 1}" if n > 1 else f"worker {first}"
    times = f"computes {short_time(compute)}, exchanges {short_time(exchange)}, waits {short_time(wait)}"
    kind, note = "", times
    if n_left == n:
        kind, note, compute, exchange, wait = "left", f"left after step {last_step}", 0.0, 0.0, 0.0
    elif n_leaving:
        kind, note = "leaving", f"{'is' if n == 1 else f'{n_leaving} are'} leaving"
    elif usual_s > 0 and compute >= SLOW * usual_s:
        kind, note = "slow", f"computes {compute / usual_s:.1f}x as long as the median; {times}"
    elif n_replaced:
        times_over = "" if n_replaced == 1 else f" {n_replaced} times"
        kind, note = "replaced", f"was replaced{times_over}"
    if 0 < n_left < n:
        note += f"; {n_left} of them have left"
    return {
        "label": str(first) if n == 1 else f"{first}-{first + n - 1}",
        "shares": [round(seconds / longest_s, 3) for seconds in (compute, exchange, wait)],
        "kind": kind,
        "mark": MARKS[kind],
        "text": f"{who[:1].upper()}{who[1:]} {note}",
    }
