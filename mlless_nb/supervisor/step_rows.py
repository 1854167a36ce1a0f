"""Turns step reports into telemetry rows. A step's row is complete when the next step has been reported."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ..bus.messages import Invocation
from ..data.prepare import Manifest
from ..exchange import StepEntry
from ..exchange.step_report import REQUESTED, Report
from ..job.sync import sync_from_json
from ..models import Model, model_from_json
from ..money import Rates
from ..money.meter import NUSD
from ..telemetry.live import Row
from .bill import Bill


class _Step(NamedTuple):
    """The part of a step's row that the step's own reports give."""

    step: int
    epoch: float
    at_s: float
    loss: float
    n_workers: int
    sent_bytes: int
    sent_fraction: float
    staleness: float
    n_updates: int


class _NextReports(NamedTuple):
    """The part of a step's row that the next step's reports give, e.g. validation loss and mean seconds."""

    validation_loss: float | None = None
    interaction: float | None = None
    compute_s: float = math.nan
    exchange_s: float = math.nan
    wait_s: float = math.nan
    compute_cpu_s: float = math.nan
    merged_bytes: int = 0
    primal_residual: float | None = None
    dual_residual: float | None = None


class StepRows:
    """The rows of one run, in the order of its steps.

    Parameters
    ----------
    invocation : Invocation
        The supervisor's.
    rates : Rates
    bill : Bill
        Receives the cost of the workers' requests, and returns the run's cost.

    Attributes
    ----------
    step, epoch, n_workers
        Of the newest step; 0, 0.0 and all workers before the first one.
    reports : dict
        The newest step's reports, by slot.
    n_rows : int
    step_s, exit_s : float
        Seconds that recent steps took, and that the slowest worker needs to exit.
    """

    def __init__(self, invocation: Invocation, rates: Rates, bill: Bill) -> None:
        self._job, self._rates, self._bill = invocation, rates, bill
        self.model = model_from_json(invocation.model)
        self._n_minibatches = Manifest.from_json(invocation.manifest).n_minibatches
        self._spent = 0  # nano-dollars in the newest row
        self._held: _Step | None = None  # the newest step: its validation loss and timings come with the next one
        self._early: dict[int, StepEntry] = {}  # complete steps that follow a step which is not complete yet
        # No step that is further ahead can be complete before the one after the newest.
        self._most_ahead = 2 + sync_from_json(invocation.sync).staleness
        self.reports: dict[int, Report] = {}
        self.step, self.epoch, self.n_workers = 0, 0.0, invocation.n_workers
        self.n_rows = 0
        self.step_s = self.exit_s = 0.0

    def append(self, entries: Iterable[StepEntry]) -> Iterator[Row]:
        """Take in complete steps, and yield the rows that they complete. Steps that are taken again have their rows.

        Steps that the log has lost are left out. It keeps the newest ones only, and a supervisor that takes over a run,
        or gets no time for long, reads the others too late.
        """
        self._early |= {entry.step: entry for entry in entries if entry.step > self.step}
        yield from self._next()
        while self._early and max(self._early) > self.step + self._most_ahead:
            yield from self._leave_out()

    def _next(self) -> Iterator[Row]:
        """The rows that are complete by the steps which follow the newest one."""
        # Under bounded staleness the remaining workers may be past a leaving worker's last step before it is complete.
        while (entry := self._early.pop(self.step + 1, None)) is not None:
            held, later = self._held, self._take(entry)
            if held is not None:
                self.step_s = max(entry.at_s - held.at_s, 0.9 * self.step_s)
                yield self._row(held, later)

    def _leave_out(self) -> Iterator[Row]:
        """Go on after the steps that are missing."""
        if self._held is not None:
            yield self._row(self._held, _NextReports())
        self.begin_at(min(self._early) - 1)
        yield from self._next()

    def begin_at(self, step: int) -> None:
        """Begin after ``step`` if it is a later one: the step log has no earlier steps any more."""
        if step > self.step:
            self.step, self._held = step, None
            self._early = {at: entry for at, entry in self._early.items() if at > step}

    def last(self, validation_loss: float | None, merged_bytes: int) -> Iterator[Row]:
        """The last step's row; no step follows it, so the missing part comes from the workers' final messages."""
        while self._early:
            yield from self._leave_out()
        if self._held is not None:
            yield self._row(self._held, _NextReports(validation_loss, merged_bytes=merged_bytes))

    def _take(self, entry: StepEntry) -> _NextReports:
        """Make ``entry`` the newest step; returns the part that it adds to the previous step's row."""
        n_counted = len(entry.reports)
        n_workers = entry.n_workers or n_counted
        all_of: Any = Report._make(zip(*entry.reports.values(), strict=True))  # a tuple for each field
        self._held = _Step(
            entry.step,
            max(all_of.position) / self._n_minibatches,
            entry.at_s,
            self.model.metric_value(math.fsum(all_of.loss_sum), math.fsum(all_of.loss_count)),
            n_workers,
            sum(all_of.sent_bytes),
            sum(all_of.n_sent) / max(sum(all_of.n_made), 1),
            sum(all_of.staleness) / n_counted,
            n_counted,
        )
        self.step, self.epoch, self.n_workers = entry.step, self._held.epoch, n_workers
        # With a quorum, the others' newest reports are older ones.
        self.reports = {**self.reports, **entry.reports} if n_counted < n_workers else entry.reports
        self.exit_s = max(all_of.exit_s)
        time_s, note_requests = entry.at_s - self._job.launched_at_s, self._bill.note_requests
        for slot, report in entry.reports.items():
            requested: Any = report[REQUESTED]  # integers, which no type of a slice says
            note_requests(slot, requested, time_s)
        # False for NaN, where the run has diverged. A function that has just taken over a slot has none yet.
        has_residuals = all_of.dual_residual[0] >= 0 and all(one >= 0 for one in all_of.dual_residual)
        evaluated: list[float] = []
        if any(all_of.val_count):  # few steps have an evaluation
            evaluated = [one for one, rows in zip(all_of.interaction, all_of.val_count, strict=True) if rows]
        return _NextReports(
            mean_loss(self.model, all_of.val_sum, all_of.val_count) if evaluated else None,
            math.fsum(evaluated) / len(evaluated) if evaluated else None,
            math.fsum(all_of.compute_s) / n_counted,
            math.fsum(all_of.exchange_s) / n_counted,
            math.fsum(all_of.wait_s) / n_counted,
            math.fsum(all_of.compute_cpu_s) / n_counted,
            sum(all_of.merged_bytes),
            math.sqrt(math.fsum(all_of.primal_square)) if has_residuals else None,
            all_of.dual_residual[0] if has_residuals else None,
        )

    def _row(self, step: _Step, later: _NextReports) -> Row:
        time_s = step.at_s - self._job.launched_at_s
        n_peers = step.n_workers - 1
        # If updates are merged, each is read by one worker, in parts or as a whole, and a sum by all others.
        n_readers = 1 if self._job.merges(step.n_workers) else n_peers
        self.n_rows += 1
        # A function may say after the first step that it began later than assumed; what was shown stays.
        self._spent = max(self._spent, self._bill.spent(time_s))
        return Row(
            step=step.step,
            epoch=step.epoch,
            time_s=time_s,
            loss=step.loss,
            validation_loss=later.validation_loss,
            n_workers=step.n_workers,
            spent_usd=self._spent / NUSD,
            servers_usd=self._rates.servers_nusd(time_s) / NUSD,
            sent_bytes=step.sent_bytes + later.merged_bytes,
            received_bytes=n_readers * step.sent_bytes + n_peers * later.merged_bytes,
            sent_fraction=step.sent_fraction,
            compute_s=later.compute_s,
            exchange_s=later.exchange_s,
            wait_s=later.wait_s,
            staleness=step.staleness,
            interaction=later.interaction,
            compute_cpu_s=later.compute_cpu_s,
            primal_residual=later.primal_residual,
            dual_residual=later.dual_residual,
            n_updates=step.n_updates,
        )


def mean_loss(model: Model, sums: Iterable[float], counts: Iterable[float]) -> float | None:
    """The loss over all workers' rows, in the model's metric; None if there are no rows."""
    count = math.fsum(counts)
    return model.metric_value(math.fsum(sums), count) if count else None
