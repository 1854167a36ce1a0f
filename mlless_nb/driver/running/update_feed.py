"""Passes the supervisor's updates to the run's telemetry and record, and settles commands that were handled."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from typing import Any

from ...bus.messages import Update
from ...money import Rates
from ...telemetry import record
from ...telemetry.live import Row, Telemetry
from ...telemetry.record import Record
from ..launch.resumption import Start
from .commands import Commands
from .told_costs import ToldCosts

#: What is said where the last steps are, or may be, missing.
LAST_MISSING = "missing in its history"
_WHY_LAST = "the server that had their reports has lost them; the model is not affected"
_WHY_MISSING = (
    "not every worker took them, or the supervisor could not read their reports in time; the model is not affected"
)

#: Seconds that rows wait for those before them, which a server has lost: the supervisor sends them again.
LOST_S = 10.0


class UpdateFeed:
    """Takes in the updates of one run.

    Parameters
    ----------
    telemetry : Telemetry
    commands : Commands
    start : Start or None
        The start of a resumed run: the earlier best model stays the best one while the new run has no better one.
    rates : Rates
    clock : callable
        Monotonic clock, seconds.

    Attributes
    ----------
    costs : ToldCosts
    record : Record or None
        Receives rows and decisions; None before the launch.
    tells : bool
        Whether events are added; False while updates are read again, since some events were added before.
    """

    def __init__(
        self,
        telemetry: Telemetry,
        commands: Commands,
        start: Start | None,
        rates: Rates,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._telemetry, self._commands, self._start = telemetry, commands, start
        self._newest_step, self._clock, self._followed_at = 0.0, clock, -math.inf
        self._waiting: list[tuple[float, float, list[Row]]] = []  # the step before the rows, since when, and the rows
        self._n_missing = self._n_told = 0  # steps that the history lacks, and how many when that was told last
        self.costs = ToldCosts(rates)
        self.record: Record | None = None
        self.tells = True

    def take(self, update: Update) -> None:
        """Take in ``update``; rows that were received before are skipped, and those before which others lack wait."""
        telemetry, now = self._telemetry, self._clock()
        if update.rows:
            self._waiting.append((update.after, now, list(itertools.starmap(Row, update.rows))))
        self._append_waiting(now - LOST_S)
        if update.state:
            loss = update.state.get("best_loss")
            if loss is not None and self._start is not None and self._start.is_better(loss):
                for name in ("best_loss", "best_step", "best_epoch"):  # those of the earlier run stay
                    del update.state[name]
            self.costs.take(update.state)
            telemetry.update(**update.state)
        if self.record is not None:
            self.record.append_events(update.decisions)
        for time_s, text in update.sentences if self.tells else ():
            telemetry.add_event(time_s, text)
        if update.done:
            self._commands.settle(update.done)

    def close(self, last_step: int) -> None:
        """Say how many steps the history lacks in all, if there are more than was said, and whether it lacks the last.

        ``last_step`` is that of a run that is finished; 0: it may be a later one than is known.
        """
        self._append_waiting(math.inf)
        state = self._telemetry.state
        if last_step > self._newest_step and not any(LAST_MISSING in event.text for event in state.events):
            text = f"The run's last steps are {LAST_MISSING} after step {int(self._newest_step)}: {_WHY_LAST}"
            self._telemetry.add_event(state.time_s, text)
        if self._n_missing > self._n_told:
            text = f"{self._n_missing} steps in all are missing in the history: {_WHY_MISSING}"
            self._telemetry.add_event(self._telemetry.state.time_s, text)

    def _append_waiting(self, since: float) -> None:
        """Append the rows whose turn it is, and, if there were none ``since`` then, those that wait since then."""
        self._waiting.sort(key=lambda one: one[2][0].step)
        while self._waiting:
            after, waits_since, rows = self._waiting[0]
            if after > self._newest_step and max(waits_since, self._followed_at) > since:
                return
            del self._waiting[0]
            if rows := [row for row in rows if row.step > self._newest_step]:
                self._append(rows)
            self._followed_at = self._clock()  # of what is sent again, the next part may come now

    def _append(self, rows: list[Row]) -> None:
        if rows[-1].step - self._newest_step != len(rows):
            self._tell_gaps(rows)
        self._telemetry.append(record.to_array(rows))
        if self.record is not None:
            self.record.append(rows)
        last = rows[-1]
        self._newest_step = last.step
        losses: dict[str, Any] = {"loss": last.loss}
        held_out = [row.validation_loss for row in rows if row.validation_loss is not None]
        if held_out:
            losses["validation_loss"] = held_out[-1]
        self._telemetry.update(**losses)

    def _tell_gaps(self, rows: list[Row]) -> None:
        """Say which steps before these ``rows``, and between them, the history will not have.

        Where there are many such gaps, as in a run that is quicker than its supervisor, each told number is at least
        twice the one before; `close` tells the last one.
        """
        newest = int(self._newest_step)
        for row in rows:
            first, last = newest + 1, int(row.step) - 1
            if first <= last:
                self._n_missing += last - first + 1
                if self._n_missing >= 2 * self._n_told:
                    steps = f"Step {first} is" if first == last else f"Steps {first} to {last} are"
                    in_all = f", {self._n_missing} steps so far" if self._n_told else ""
                    self._telemetry.add_event(row.time_s, f"{steps} missing in the history{in_all}: {_WHY_MISSING}")
                    self._n_told = self._n_missing
            newest = int(row.step)
