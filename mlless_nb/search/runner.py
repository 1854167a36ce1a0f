"""Runs the trials of a sweep: starts them, follows their losses, stops weak ones, and ends within the budget."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import threading
from typing import TYPE_CHECKING

import numpy as np

from ..driver import spending
from ..driver.launch.allowance import Within
from ..driver.run import TrainingRun
from ..driver.running.stop_requests import asks_sweep
from ..driver.runs import start
from ..errors import BudgetError, MllessError, ServiceError
from ..job.job import TrainingJob
from ..money.meter import NUSD
from ..plurals import all_done
from ..telemetry.live import COLUMNS
from ..tracking import RunLedger
from .recipe import Recipe
from .rungs import TrialLength
from .study import Asked, Study
from .trial import PRUNED, Trial

if TYPE_CHECKING:
    from .handle import Sweep

#: Longest wait for a trial's next row, seconds: so soon a stop is seen.
ROW_WAIT_S = 0.1
#: Trials in a row without a loss after which the sweep ends: what fails them is not their settings.
MOST_FAILED = 3
_VALIDATION = COLUMNS.index("validation_loss")


class Runner:
    """The threads of one sweep.

    Parameters
    ----------
    sweep : Sweep
    study : Study
    recipe : Recipe
    factor : int
        Of the distances between comparisons.
    """

    def __init__(self, sweep: Sweep, study: Study, recipe: Recipe, factor: int) -> None:
        self._sweep, self._study, self._recipe, self._factor = sweep, study, recipe, factor
        self._starting = threading.Lock()  # one trial is asked for and started at a time
        self._n_asked = self._n_live = self._n_failed = 0
        self._costs: list[float] = []  # of trials that came to a comparison
        self._over: tuple[str, str] | None = None  # status and reason
        self._is_ready, self._error = threading.Event(), None

    _error: BaseException | None

    def start(self) -> None:
        """Return once the first trial has begun; raise what has kept it from beginning."""
        thread = threading.Thread(target=self._run, name=f"mlless-sweep-{self._sweep.name}", daemon=True)
        thread.start()
        while not self._is_ready.wait(0.05):  # short waits, so that an interrupt is handled between them
            pass
        if self._error is not None:
            thread.join()  # it has nothing left to do
            raise self._error

    def _run(self) -> None:
        others = [
            threading.Thread(target=self._work, name=f"mlless-trials-{number}", daemon=True)
            for number in range(1, self._sweep.parallel)
        ]
        for thread in others:
            thread.start()
        self._work()
        for thread in others:
            thread.join()
        told = all_done(self._n_asked, "trial")
        self._sweep._end(*(self._over or ("finished", told)))
        self._is_ready.set()

    def _work(self) -> None:
        """Run trials until there is none left."""
        try:
            while (begun := self._begin()) is not None:
                try:
                    self._follow(*begun)
                except BaseException:
                    begun[2].stop()
                    raise
        except BaseException as error:
            with self._starting:
                self._end("failed", f"{type(error).__name__}: {error}", error)

    def _end(self, status: str, reason: str, error: BaseException | None = None) -> None:
        """Begin no further trial."""
        self._over = self._over or (status, reason)
        if not self._is_ready.is_set():
            self._error = error
            if error is not None:
                self._is_ready.set()

    def _begin(self) -> tuple[Trial, Asked, TrainingRun] | None:
        """Start the next trial; None if there is none."""
        with self._starting:
            while self._may_begin():
                self._n_asked += 1
                asked = self._study.ask(self._recipe)
                number = self._n_asked
                trial = Trial(number, f"{self._sweep.name}-{number}", settings=asked.settings)
                error: MllessError | None = asked.error
                if asked.job is not None:
                    job = dataclasses.replace(asked.job, name=trial.name, detach=False)
                    try:
                        run = self._started(job)
                    except (BudgetError, ServiceError) as refusal:  # the next trial would be refused, too
                        self._study.tell(asked, None)
                        self._n_asked -= 1
                        if isinstance(refusal, ServiceError):
                            self._end("failed", str(refusal), refusal)
                        elif not self._n_live:  # else there is more left once the others have ended
                            told = f"what is left of the budget pays for no further trial ({refusal})"
                            self._end("capped", told, refusal)
                        return None
                    except MllessError as refusal:
                        error = refusal
                    else:
                        self._n_live += 1
                        self._is_ready.set()
                        trial = dataclasses.replace(trial, run_id=run.id)
                        self._sweep._put(trial)
                        return trial, asked, run
                self._study.tell(asked, None)
                self._sweep._put(dataclasses.replace(trial, status="failed", reason=str(error)))
                self._note_failure(str(error), error)
        return None

    def _started(self, job: TrainingJob) -> TrainingRun:
        """Start a trial with its part of the budget; with all that is left if that is too little, and no other runs."""
        sweep, share = self._sweep, self._sweep.parallel - self._n_live
        try:
            return start(job, within=Within(sweep.id, share))
        except BudgetError:
            if share == 1 or self._n_live:
                raise
        return start(job, within=Within(sweep.id))

    def _may_begin(self) -> bool:
        """Whether another trial is to begin."""
        sweep = self._sweep
        if sweep.is_stop_asked:
            self._end("stopped", "stopped by you")
        elif not threading.main_thread().is_alive():
            self._end("stopped", "the process that started the sweep ended")
        elif self._costs and not self._n_live and self._left_usd() < min(self._costs):
            self._end("capped", "what is left of the budget brings no further trial to a comparison")
        return self._over is None and self._n_asked < sweep.n_trials

    def _left_usd(self) -> float:
        with spending.opened() as book:
            return book.standing("sweep", self._sweep.id).left_nusd / NUSD

    def _note_failure(self, reason: str, error: BaseException | None = None) -> None:
        """A trial has ended without a loss."""
        self._n_failed += 1
        if self._n_failed >= MOST_FAILED:
            self._end("failed", f"{self._n_failed} trials in a row came to no loss, the last one: {reason}", error)

    def _follow(self, trial: Trial, asked: Asked, run: TrainingRun) -> None:
        """Follow a trial to its end."""
        sweep, length = self._sweep, None
        n_rows = seen = last = 0
        loss, is_stopped = math.inf, False
        weak_at: float | None = None  # the epoch of the comparison that it lost
        while True:
            seen = run.telemetry.wait_for_change(seen, ROW_WAIT_S)
            is_live = run.telemetry.state.is_live  # before the rows: those of the end are read, too
            rows = run.telemetry.rows_since(n_rows)
            n_rows += len(rows)
            length = length or TrialLength.of(run.job or asked.job, self._factor)  # type: ignore[arg-type]
            for values in rows[np.isfinite(rows[:, _VALIDATION])]:
                row = dict(zip(COLUMNS, values.tolist(), strict=True))
                loss = min(loss, row["validation_loss"])
                if length.resource(row) > last and not length.is_over(row):
                    last = length.resource(row)
                    if self._study.report(asked, loss, last) and is_live and not is_stopped:
                        weak_at, is_stopped = row["epoch"], True
                        run.stop()
            if len(rows):
                trial = self._seen(trial, run, length, loss, dict(zip(COLUMNS, rows[-1].tolist(), strict=True)))
                sweep._put(trial)
            if run.stops_sweep:
                sweep.stop()
            if sweep.is_stop_asked and not is_stopped:
                is_stopped = True
                run.stop()
            if not is_live:
                break
        run.wait()
        if asks_sweep(run):
            sweep.stop()
        self._conclude(trial, asked, run, weak_at, last)

    def _seen(self, trial: Trial, run: TrainingRun, length: TrialLength, loss: float, row: dict[str, float]) -> Trial:
        return dataclasses.replace(
            trial,
            status="running",
            loss=loss if math.isfinite(loss) else None,
            share=length.share(row),
            epoch=row["epoch"],
            seconds=row["time_s"],
            usd=run.telemetry.state.spent_usd,
        )

    def _conclude(self, trial: Trial, asked: Asked, run: TrainingRun, weak_at: float | None, last: int) -> None:
        state, status, reason = run.telemetry.state, run.status, run.reason
        if weak_at is not None and status == "stopped":
            status = PRUNED
            reason = f"others were better at epoch {weak_at:.3g}; it ended at epoch {trial.epoch:.3g}"
            with contextlib.suppress(Exception):  # whatever it is, the sweep is worth more than this entry
                RunLedger().change(run.id, status=status, reason=reason)
        trial = dataclasses.replace(
            trial,
            status=status,
            reason=reason,
            loss=run.best.loss if run.best is not None and math.isfinite(run.best.loss) else None,
            seconds=state.time_s,
            usd=run.cost.total,
        )
        with self._starting:
            self._n_live -= 1
            self._study.tell(asked, trial.loss if run.status == "finished" else None)
            self._sweep._keep(run, trial)
            self._sweep._put(trial)
            if last:
                self._costs.append(trial.usd)
            if trial.loss is not None:
                self._n_failed = 0
            elif not self._sweep.is_stop_asked:
                self._note_failure(trial.reason)
