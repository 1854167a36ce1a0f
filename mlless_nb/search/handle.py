"""The handle on a sweep: wait, stop, change the budget, read its trials and the best model."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
import uuid
from collections.abc import Mapping
from typing import Any

from ..driver import spending
from ..driver.interrupts import is_interactive
from ..driver.run import TrainingRun
from ..errors import BudgetError, CommandError, MllessError, RunError, WaitInterrupted
from ..job.limits import Budget
from ..money.book import MOST_NUSD
from ..money.meter import NUSD, to_nusd
from ..plurals import count
from ..telemetry.live import LIVE
from ..validation import plain
from .space import Space
from .study import Study
from .trial import Trial


class Sweep:
    """A sweep, as `sweep` returns it. Every method may be called from any thread.

    Attributes
    ----------
    id, name : str
    metric : str
        Of the held-out losses.
    spaces : dict
        What the settings are drawn from.
    sampler : str
        "tpe", "random" or "grid".
    n_trials : int
        Most trials.
    parallel : int
        Most trials at once.
    """

    def __init__(self, name: str, metric: str, spaces: Mapping[str, Space], study: Study, parallel: int) -> None:
        self.id, self.name, self.metric = f"{name}-{uuid.uuid4().hex[:8]}", name, metric
        self.spaces, self.sampler, self.n_trials, self.parallel = dict(spaces), study.sampler, study.n_trials, parallel
        self._trials: dict[int, Trial] = {}
        self._status, self._reason, self._budget_usd = "running", "", 0.0
        self._best_run: TrainingRun | None = None
        self._best_kept: Trial | None = None  # the trial of that run
        self._changes, self._changed, self._over = 0, threading.Condition(), threading.Event()
        self._began_at, self._seconds = time.monotonic(), 0.0
        self.is_stop_asked = False

    # -- reading

    @property
    def status(self) -> str:
        """One of running, finished, stopped, capped, failed."""
        return self._status

    @property
    def reason(self) -> str:
        """One sentence on why it is in its status."""
        return self._reason

    @property
    def is_live(self) -> bool:
        """Whether trials may still run."""
        return self._status in LIVE

    @property
    def trials(self) -> list[Trial]:
        """All trials so far, in the order in which they began."""
        with self._changed:
            return [self._trials[number] for number in sorted(self._trials)]

    @property
    def ranked(self) -> list[Trial]:
        """All trials so far, the best one first; failed ones after others with a loss, those without a loss last."""
        return sorted(self.trials, key=lambda trial: trial.rank)

    @property
    def best_so_far(self) -> Trial | None:
        """The first of `ranked`, if it has a loss; None before there is one. Does not wait."""
        return next((trial for trial in self.ranked if trial.loss is not None), None)

    @property
    def best_trial(self) -> Trial:
        """The first of `ranked`; waits for the end of the sweep.

        Raises
        ------
        RunError
            If no trial has a loss.
        """
        self.wait()
        if (found := self.best_so_far) is None:
            raise RunError(f"sweep {self.name!r} has no trial with a loss: {self.reason}")
        return found

    @property
    def best(self) -> TrainingRun:
        """The run of the best trial, ``sweep.best.model`` its model; waits for the end of the sweep.

        Raises
        ------
        RunError
            If no trial has left a model.
        """
        self.wait()
        if self._best_run is None:
            raise RunError(f"sweep {self.name!r} left no model: {self.reason}")
        return self._best_run

    @property
    def spent(self) -> float:
        """What its trials have cost so far, US dollars; exact once it has ended."""
        return round(sum(trial.usd for trial in self.trials), 9)

    @property
    def seconds(self) -> float:
        """How long it has taken."""
        return time.monotonic() - self._began_at if self.is_live else self._seconds

    @property
    def budget(self) -> float:
        """The most that all trials may cost together, US dollars. Assign to change it while the sweep is live."""
        return self._budget_usd

    @budget.setter
    def budget(self, usd: float) -> None:
        cap_nusd = cap_nusd_of(usd)
        if not self.is_live:
            raise CommandError(f"sweep {self.name!r} has ended ({self.status}); its budget cannot change")
        with spending.opened() as book:
            book.set_cap("sweep", self.id, cap_nusd)
        self._budget_usd = cap_nusd / NUSD

    def wait(self, timeout_s: float | None = None) -> str:
        """Wait for the end, at most ``timeout_s`` seconds; returns the status.

        Raises
        ------
        WaitInterrupted
            On an interrupt (it is a KeyboardInterrupt). The sweep goes on as long as this process.
        """
        deadline = time.monotonic() + (threading.TIMEOUT_MAX if timeout_s is None else timeout_s)
        try:
            # Short waits, so that an interrupt is handled between them.
            while not self._over.wait(max(min(deadline - time.monotonic(), 0.05), 0.0)) and time.monotonic() < deadline:
                pass
        except KeyboardInterrupt:
            raise WaitInterrupted(self._interrupted_line()) from None
        return self.status

    def _interrupted_line(self) -> str:
        """What becomes of the sweep when an interrupt has ended the waiting for it."""
        if not self.is_live:
            return f"sweep {self.name!r} has ended: {self.status}"
        done = f"{len(self.trials)} of {count(self.n_trials, 'trial')}"
        so_far = f"{done}, ${self.spent:.4g} of ${self.budget:.4g}"
        if is_interactive():
            return f"sweep {self.name!r} goes on ({so_far}); its stop() ends it"
        kept = f"mlless_nb.runs(sweep={self.name!r}) lists its trials"
        return f"sweep {self.name!r} ends with this script ({so_far}); {kept}"

    def wait_for_change(self, seen: int, timeout_s: float) -> int:
        """Wait until there is a change after change number ``seen``; returns the number of the latest one."""
        with self._changed:
            self._changed.wait_for(lambda: self._changes != seen, timeout_s)
            return self._changes

    # -- commands

    def stop(self) -> None:
        """Stop its live trials in good order, and start no others; what was found is kept. Returns at once."""
        self.is_stop_asked = True
        self._notify()

    # -- showing

    def to_pandas(self) -> Any:
        """The trials as a ``pandas.DataFrame`` (needs pandas), a column for each setting.

        One that has the name of another column, e.g. "loss", is called "settings.loss".
        """
        try:
            import pandas as pd
        except ModuleNotFoundError:
            raise MllessError("sweep.to_pandas() needs pandas; install it: pip install pandas") from None
        names = [entry.name for entry in dataclasses.fields(Trial) if entry.name != "settings"]
        columns = {name: f"settings.{name}" if name in names else name for name in self.spaces}
        rows = [
            {name: getattr(trial, name) for name in names}
            | {column: trial.settings.get(name) for name, column in columns.items()}
            for trial in self.trials
        ]
        return pd.DataFrame(rows, columns=[*names, *columns.values()])

    def plot(self) -> Any:
        """The trials as a plotly ``Figure`` of parallel coordinates: a line for each, an axis for each setting."""
        from ..widgets.parallel_coordinates import parallel_coordinates

        return parallel_coordinates(self)

    def report(self) -> str:
        """The leaderboard as plain text."""
        from ..widgets.leaderboard import as_text

        return as_text(self)

    def dashboard(self) -> None:
        """Show the leaderboard in this cell, live until the sweep has ended. Returns at once."""
        from ..widgets.leaderboard import show

        show(self)

    def _repr_html_(self) -> str:
        from ..widgets.leaderboard import as_html

        return as_html(self)

    def __repr__(self) -> str:
        best, found = self.best_so_far, ""
        if best is not None and best.loss is not None:
            found = f", best {self.metric} {best.loss:.4g} of {best.name}"
        return f"<Sweep {self.name!r}: {self.status}, {len(self.trials)} of {count(self.n_trials, 'trial')}{found}>"

    # -- the runner's side

    def _put(self, trial: Trial) -> None:
        with self._changed:
            self._trials[trial.number] = trial
        self._notify()

    def _keep(self, run: TrainingRun, trial: Trial) -> None:
        """Keep the handle of an ended trial's run if it is the best one that left a model."""
        has_model = run._model is not None and trial.loss is not None
        if has_model and (self._best_kept is None or trial.rank < self._best_kept.rank):
            self._best_run, self._best_kept = run, trial

    def _end(self, status: str, reason: str) -> None:
        with contextlib.suppress(MllessError), spending.opened() as book:
            book.close("sweep", self.id)
        self._status, self._reason, self._seconds = status, reason, time.monotonic() - self._began_at
        self._over.set()
        self._notify()

    def _notify(self) -> None:
        with self._changed:
            self._changes += 1
            self._changed.notify_all()


def cap_nusd_of(usd: float | None) -> int:
    """The cap of a sweep in nano-dollars, checked."""
    if usd is None:
        raise BudgetError("budget", None, "what all trials may cost together, US dollars, e.g. 0.05")
    return min(to_nusd(Budget(plain(usd)).usd), MOST_NUSD)
