"""Asks the protocol's rule how many updates the next steps wait for, and tells it what the steps measured. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from ..exchange import LateArrival, StepEntry
from ..job.sync import sync_from_json
from .policy.backup_workers import rule_of
from .policy.decision import Decision

#: Seconds between two sentences about the quorum; changes in between are recorded without one.
TELL_S = 2.0


class QuorumControl:
    """The quorum of one run.

    Parameters
    ----------
    sync : dict
        The protocol, as JSON.
    n_workers : int
        Workers at the start.
    """

    def __init__(self, sync: dict[str, Any], n_workers: int) -> None:
        self._rule, self._n_workers = rule_of(sync, n_workers), n_workers
        self._quorum = self._first = getattr(sync_from_json(sync), "first_quorum", int)(n_workers)
        self._is_forgotten = False
        self._n_before = 0  # updates of the newest step
        self._step = 0
        self._told_at_s = -math.inf

    def repeat(self) -> None:
        """The coordinator has forgotten the quorum, unless it is that of the first steps: it is decided again."""
        self._is_forgotten = self._quorum != self._first

    @property
    def is_dynamic(self) -> bool:
        """Whether the quorum may change."""
        return self._rule is not None

    def note(self, entries: Sequence[StepEntry], late: Sequence[LateArrival]) -> None:
        """Take in complete steps and late arrivals, both in their order."""
        if self._rule is None:
            return
        for entry in entries:
            self._take(entry)
        for arrival in late:
            self._rule.note_late(arrival.step, arrival.rank, arrival.at_s)

    def _take(self, entry: StepEntry) -> None:
        rule, reports = self._rule, entry.reports.values()
        assert rule is not None
        measured = next((report for report in reports if report.mean_square >= 0), None)
        if measured is not None and self._n_before:  # else the log begins with a later step than the first
            rule.rate = measured.learning_rate
            variance = measured.variance if measured.variance >= 0 else None
            rule.note_gradients(self._n_before, measured.mean_square, variance)
        self._n_before, self._step = len(entry.reports), entry.step
        count = math.fsum(report.loss_count for report in reports)
        loss = math.fsum(report.loss_sum for report in reports) / count if count else math.nan
        means = [report.loss_sum / report.loss_count for report in reports if report.loss_count]
        variance = statistics.variance(means) if len(means) > 1 and math.isfinite(loss) else None
        rule.note_step(entry.step, len(entry.reports), loss, entry.arrived_s, entry.at_s, variance=variance)

    def decide(self, time_s: float) -> tuple[int, Decision] | None:
        """A new quorum for the steps to come, and the decision that tells why; None if it stays.

        Parameters
        ----------
        time_s : float
            Seconds since the run began.
        """
        if self._rule is None or not self._step:
            return None
        quorum = self._rule.quorum()
        if quorum == self._quorum and not self._is_forgotten:
            return None
        self._quorum, self._is_forgotten, text = quorum, False, ""
        if time_s - self._told_at_s >= TELL_S:
            self._told_at_s = time_s
            text = f"From about step {self._step + 1} on, steps wait for {quorum} of {self._n_workers} updates"
        numbers = {name: value if value is None or math.isfinite(value) else None for name, value in self._numbers()}
        return quorum, Decision("quorum", self._step, time_s, text, {"quorum": float(quorum), **numbers})

    def _numbers(self) -> Sequence[tuple[str, float | None]]:
        assert self._rule is not None
        return list(self._rule.numbers().items())
