"""Rows of the list of runs from the records on disk: of runs from before there was a list, and of killed ones."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..telemetry import record
from ..telemetry.live import LIVE
from .entry import TrackedRun, losses_of

#: Most records that a new list is filled from, the newest ones.
MOST_RECORDS = 2_000


def entries_on_disk() -> Iterator[TrackedRun]:
    """The ended runs that have a record."""
    for path in sorted(record.runs_folder().glob(f"*/{record.END}"), reverse=True)[:MOST_RECORDS]:
        ended = ended_by_record(path.parent)
        if ended is not None:
            run_id = path.parent.name
            named = {name: ended[name] for name in ("name", "model", "data", "metric", "settings")}
            yield TrackedRun(run_id, began_s=_began_s(path.parent), **named, **figures_of(ended))


def ended_by_record(folder: Path) -> dict[str, Any] | None:
    """What the record ``folder`` says about a run that has ended, by column; None if it has not, or is damaged.

    A run whose process was killed ended with its last recorded row.
    """
    try:
        driven = record.is_driven(folder)
        summary = record.read_summary(folder)
        if summary["state"]["status"] in LIVE:
            if driven:
                return None
            summary = record.completed(summary, folder)
        state = summary["state"]
        model, data = [*str(state["description"]).split(" · "), "", ""][:2]
        resume = summary.get("resume") or {}
        return {
            "name": str(state["name"]),
            "model": model,
            "data": data,
            "metric": str(state["metric"]),
            "settings": {
                name: resume[name] for name in ("model", "optimizer", "algorithm", "workers") if name in resume
            },
            "steps": int(state["step"]),
            "seconds": float(state["time_s"]),
            "usd": _sum_of(summary["cost"]),
            "status": str(state["status"]),
            "reason": str(state["reason"]),
            **losses_of(state),
        }
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def figures_of(ended: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of ``ended`` that are known only at a run's end."""
    names = ("steps", "seconds", "usd", "status", "reason", "best_loss", "last_loss")
    return {name: ended[name] for name in names}


def _sum_of(cost: Mapping[str, Any]) -> float:
    total = math.fsum(float(usd) for usd in cost.values())
    return total if math.isfinite(total) else 0.0


def _began_s(folder: Path) -> float:
    """When the run began: its id begins with the date."""
    with contextlib.suppress(ValueError, OverflowError):
        return time.mktime(time.strptime(folder.name[:15], "%Y%m%d-%H%M%S"))
    return folder.stat().st_mtime
