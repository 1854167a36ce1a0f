"""Where each worker's time goes, and which workers have left or were replaced: for a view's strip of workers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ..exchange.step_report import Report
from .incoming import IncomingMessages
from .worker_watch import WorkerWatch

#: Most entries; of more workers several share one.
MOST_ENTRIES = 64
#: Seconds between two new entries: workers are watched by eye, and every entry travels to the browser.
EVERY_S = 1.0
#: The weight of the newest times in the moving mean.
NEWEST = 0.3

#: Means of compute, exchange and wait, seconds of a step.
Times = tuple[float, float, float]


class WorkerTimes:
    """The workers of one run, one entry each, or one for several neighbours if there are more than `MOST_ENTRIES`.

    Parameters
    ----------
    workers : WorkerWatch
    incoming : IncomingMessages
    """

    def __init__(self, workers: WorkerWatch, incoming: IncomingMessages) -> None:
        self._workers, self._incoming = workers, incoming
        self._means: dict[int, Times] = {}
        self._due_s, self._n_taken, self._n_left = -math.inf, 0, 0

    def state(self, reports: Mapping[int, Report], time_s: float) -> dict[str, Any]:
        """Fields of `mlless_nb.telemetry.live.RunState` on the workers.

        Parameters
        ----------
        reports : Mapping
            The newest step's reports, by slot.
        time_s : float
            Seconds since the invocation; ``worker_times`` is made anew every `EVERY_S`.
        """
        state: dict[str, Any] = {
            "n_workers_started": len(self._workers.started),
            "leaving": sorted(self._incoming.leaving),
        }
        # The times of a step come with the report of the next one.
        are_told = self._n_taken > 0 or any(report.compute_s for report in reports.values())
        if reports and are_told and time_s >= self._due_s:
            self._due_s = time_s + EVERY_S
            # The first step waits for the last worker to come, and who has left is waited for no more.
            begins_anew = self._n_taken < 2 or self._n_left != len(self._workers.ended)
            self._n_taken, self._n_left = self._n_taken + 1, len(self._workers.ended)
            for slot, report in reports.items():
                before = None if begins_anew else self._means.get(slot)
                self._means[slot] = _mean(before, (report.compute_s, report.exchange_s, report.wait_s))
            left = {slot: end.step for slot, end in self._workers.ended.items()}
            state["worker_times"] = entries(self._means, left, self._incoming.leaving, self._incoming.replacements)
        return state


def entries(
    means: Mapping[int, Times], left: Mapping[int, int], leaving: set[int], replacements: Mapping[int, int]
) -> list[list[Any]]:
    """The entries, see `mlless_nb.telemetry.live.RunState.worker_times`; pure.

    Parameters
    ----------
    means : Mapping
        Mean times by slot, also of those that have left.
    left : Mapping
        The last step of each slot that has left.
    leaving : set of int
        Slots that have left or leave.
    replacements : Mapping
        How often the function of a slot was replaced.
    """
    slots = sorted(means)
    size = -(-len(slots) // MOST_ENTRIES)
    found: list[list[Any]] = []
    for at in range(0, len(slots), size or 1):
        group = slots[at : at + size]
        here = [slot for slot in group if slot not in left]
        times = [math.fsum(means[slot][part] for slot in here) / len(here) if here else 0.0 for part in range(3)]
        found.append(
            [
                *(group[0], len(group)),
                *(round(seconds, 6) for seconds in times),
                sum(slot in left for slot in group),
                max((left[slot] for slot in group if slot in left), default=0),
                sum(slot in leaving and slot not in left for slot in group),
                sum(replacements.get(slot, 0) for slot in group),
            ]
        )
    return found


def _mean(before: Times | None, newest: Times) -> Times:
    if before is None:
        return newest
    compute, exchange, wait = (old + NEWEST * (new - old) for old, new in zip(before, newest, strict=True))
    return compute, exchange, wait
