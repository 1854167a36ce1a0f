"""A worker's newest reports, which its checkpoints keep: the step log is written again from them if its server lost it.

A run then goes on from its newest checkpoint, though nobody has read the reports of the last steps before it.
"""

from __future__ import annotations

import math
import struct
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DecodeError
from .step_report import REPORT_BYTES, Report, StepEntry

#: Reports that a worker keeps. The notebook has those of earlier steps: it reads them within half a second.
KEPT_REPORTS = 1024
#: Step, seconds, updates that the step applied, and the number of workers if that may be more, else 0.
_HEAD = struct.Struct("<qdii")
#: int32 values of a report and what is kept with it.
WIDTH = (_HEAD.size + REPORT_BYTES) // 4

Table = NDArray[Any]


class KeptReports:
    """The newest reports of one worker that count: a late one's, which a quorum has not waited for, does not."""

    def __init__(self) -> None:
        self._packed: deque[bytes] = deque(maxlen=KEPT_REPORTS)
        # A step takes the time of an append only; what is not in a checkpoint is never packed.
        self._new: deque[tuple[int, float, int, int, Report]] = deque(maxlen=KEPT_REPORTS)

    def add(self, step: int, at_s: float, n_updates: int, n_workers: int, report: Report) -> None:
        """Keep the report of a complete step.

        Parameters
        ----------
        step : int
        at_s : float
            When it was complete, seconds after the run began.
        n_updates : int
            That the step applied: so many workers have a report of it.
        n_workers : int
            Those that took part if the step may not have waited for all of them, else 0.
        report : Report
        """
        self._new.append((step, at_s, n_updates, n_workers, report))

    def table(self) -> Table:
        """The reports, oldest first, int32 of shape (n, WIDTH)."""
        self._packed.extend(_HEAD.pack(*head) + report.encode() for *head, report in self._new)
        self._new.clear()
        return np.frombuffer(b"".join(self._packed), "<i4").reshape(-1, WIDTH)

    def go_on_from(self, table: Table) -> None:
        """Keep the reports of ``table`` instead."""
        self._new.clear()
        self._packed.clear()
        self._packed.extend(row.tobytes() for row in table)


def newest_entries(after: int, newest: int, tables: Mapping[int, Table], began_s: float) -> list[StepEntry]:
    """The entries of the step log up to step ``newest``, oldest first: those after ``after`` that have all reports.

    None is left out between two of them. Reports that are missing are those of a worker that has left, or of steps
    which are older than `KEPT_REPORTS`.

    Parameters
    ----------
    after, newest : int
    tables : mapping of int to ndarray
        By slot, as of `KeptReports.table`.
    began_s : float
        When the run began, on the coordinator's clock.

    Raises
    ------
    DecodeError
        A table is not one of reports.
    """
    found: dict[int, dict[int, Report]] = {}
    facts: dict[int, tuple[float, int, int]] = {}
    for slot, table in sorted(tables.items()):
        if table.dtype != np.int32 or table.ndim != 2 or table.shape[1] != WIDTH:
            raise DecodeError(f"reports of shape {table.shape}: must be int32 of shape (n, {WIDTH})")
        steps = np.ascontiguousarray(table[:, :2]).view("<i8")[:, 0]
        for row in table[(after < steps) & (steps <= newest)]:  # few of them
            packed = row.tobytes()
            step, *fact = _HEAD.unpack_from(packed)
            found.setdefault(step, {})[slot] = Report.decode(packed[_HEAD.size :])
            facts[step] = min(facts.get(step, (math.inf, 0, 0)), (fact[0], fact[1], fact[2]))
    entries: list[StepEntry] = []
    at_s = math.inf
    for step in range(newest, after, -1):
        since_s, n_updates, n_workers = facts.get(step, (0.0, -1, 0))
        if len(found.get(step, ())) != n_updates:
            break
        at_s = min(began_s + since_s, at_s)  # workers' clocks differ a little
        entries.append(StepEntry(step, at_s, found[step], n_workers))
    return entries[::-1]
