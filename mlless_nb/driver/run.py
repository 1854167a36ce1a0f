"""The user's handle on a run: wait, stop, scale in, change the budget, read the model, history and cost."""

from __future__ import annotations

import dataclasses
import threading
import uuid
from collections.abc import Callable
from typing import Any

from ..bus.messages import Command
from ..errors import CommandError, JobError, RunError, WaitInterrupted
from ..job.job import TrainingJob
from ..job.limits import Budget
from ..models import FittedModel
from ..money import Cost
from ..money.meter import NUSD, to_nusd
from ..plurals import count
from ..telemetry import record
from ..telemetry.live import ENDED, Best, History, Telemetry
from ..validation import plain
from .interrupts import interrupted_line

#: Sends a command to the run, with the sentence that is shown while it is pending.
Send = Callable[[Command, str], None]


class TrainingRun:
    """One run of a job, as `train` returns it. Every method may be called from any thread.

    Attributes
    ----------
    id, name : str
    job : TrainingJob or None
        None for a run that was attached to after its end. That of a live run in another process is fetched from there.
    n_slots : int
        Workers that it began with.
    telemetry : Telemetry
        The rows and the state that views read.
    """

    def __init__(self, job: TrainingJob | None, run_id: str, name: str, send: Send | None = None) -> None:
        self._job, self.id, self.name = job, run_id, name
        self._find_job: Callable[[], TrainingJob | None] | None = None
        self.n_slots = (job.workers if job is not None else 0) or 0
        self.telemetry = Telemetry()
        self._send = send
        self._over = threading.Event()
        self.stops_sweep = False  # whether another process has asked to stop the sweep that this is a trial of
        self._model: FittedModel | None = None
        self._last: FittedModel | None = None
        self._cost: Cost | None = None

    # -- reading

    @property
    def job(self) -> TrainingJob | None:
        """See above."""
        if self._job is None and self._find_job is not None:
            self._job = self._find_job()
        return self._job

    @job.setter
    def job(self, job: TrainingJob) -> None:
        self._job, self.n_slots = job, job.workers

    @property
    def status(self) -> str:
        """One of starting, running, finished, stopped, capped, failed."""
        return self.telemetry.state.status

    @property
    def reason(self) -> str:
        """One sentence on why the run is in its status."""
        return self.telemetry.state.reason

    @property
    def resumed_from(self) -> str | None:
        """The name of the run that this one resumes from, None if it does not resume."""
        return self.telemetry.state.resumed_from or None

    @property
    def history(self) -> History:
        """One row per step: ``run.history["loss"]`` is a 1-D float64 array."""
        return self.telemetry.history()

    @property
    def trace(self) -> list[dict[str, Any]]:
        """What each function of a stateless run did: its part of which step, when, and its requests; else empty."""
        return record.read_trace(self.id)

    def workflow(self, step: int | None = None) -> Any:
        """A flow chart and a Gantt chart of one step of a stateless run, for a notebook; by default of a late one.

        Raises
        ------
        CommandError
            If the trace has no such step.
        """
        from ..widgets.workflow import workflow

        return workflow(self.trace, step)

    @property
    def best(self) -> Best | None:
        """The lowest validation loss so far, with its step and epoch: ``run.best.loss``. None before an evaluation."""
        return self.telemetry.state.best or self.history.best

    @property
    def cost(self) -> Cost:
        """The run's cost, US dollars by component; exact once the run has ended.

        Until then it is an estimate in two parts: ``redis`` holds all servers, ``workers`` all functions and requests
        to the object storage.
        """
        if self._cost is not None:
            return self._cost
        state, rows = self.telemetry.state, self.telemetry.rows_since(max(self.telemetry.n_rows - 1, 0))
        servers = float(rows[-1, 7]) if len(rows) else 0.0
        return Cost(workers=max(state.spent_usd - servers, 0.0), redis=servers)

    @property
    def left(self) -> dict[str, int]:
        """What was left of the run after its end, by its kind: ``{"processes": 0, "keys": 0, "queues": 0, ...}``.

        Counted once all was shut down; {} before. Kinds that would be slow or dear to look for are missing.
        """
        return dict(self.telemetry.state.left)

    @property
    def n_bytes(self) -> int:
        """Bytes of memory that the run's rows and models take."""
        models = [model for model in (self._model, self._last) if model is not None]
        return self.telemetry.n_bytes + sum(array.nbytes for model in models for array in model.params.values())

    @property
    def model(self) -> FittedModel:
        """The trained model: the best one by validation loss if rows are held out; waits for the end of the run.

        Raises
        ------
        RunError
            If the run failed before there was a checkpoint.
        """
        self.wait()
        if self._model is None:
            raise RunError(f"run {self.name!r} left no model: {self.reason}")
        return self._model

    @property
    def last_model(self) -> FittedModel:
        """The model after the last step; waits for the end of the run and raises like `model`."""
        model = self.model
        return model if self._last is None else self._last

    def wait(self, timeout_s: float | None = None) -> str:
        """Wait for the end, at most ``timeout_s`` seconds; returns the status.

        Raises
        ------
        WaitInterrupted
            On an interrupt (it is a KeyboardInterrupt). The run goes on as long as this process, or longer with
            ``detach``.
        """
        give_up = threading.TIMEOUT_MAX if timeout_s is None else timeout_s
        try:
            # Short waits, so that an interrupt is handled between them.
            while not self._over.wait(min(give_up, 0.05)) and give_up > 0:
                give_up -= 0.05
        except KeyboardInterrupt:
            raise WaitInterrupted(interrupted_line(self.telemetry.state)) from None
        return self.status

    # -- going on

    def resume(self, **changes: Any) -> TrainingRun:
        """Resume from this ended run with the same job except for ``changes``; returns the new run at once.

        E.g. with more budget, ``run.resume(budget=0.01)``, more epochs or another learning rate. See `mlless_nb.train`.

        Raises
        ------
        JobError
            If a change is invalid.
        CommandError
            If the run is live or left no model, or its job is not known here because the run was attached to: use
            `mlless_nb.train` with a job then.
        """
        from ..starting import warn
        from .runs import train

        if self.job is None:
            raise CommandError(
                f"run {self.name!r} was read from its record, which does not hold its data: "
                f"mlless_nb.train(job, resume=run) or %%mlless --resume {self.name} resumes from it"
            )
        names = [entry.name for entry in dataclasses.fields(self.job)]
        if unknown := [name for name in changes if name not in names]:
            raise JobError(unknown[0], changes[unknown[0]], f"a field of a job: {', '.join(names)}")
        job = dataclasses.replace(self.job, **changes)
        doubts, run = warn(job), train(job, resume=self)
        for doubt in doubts:  # a page shows no warnings
            run.telemetry.add_event(0.0, doubt)
        return run

    # -- commands

    def stop(self) -> None:
        """Stop the run in good order, within two steps, and keep its model. Returns at once."""
        if self.status not in ENDED:
            self._ask(Command(_new_id(), "stop"), "stopping ...")

    def scale_in(self, n: int = 1, *, worker_id: int | None = None) -> None:
        """Remove ``n`` workers, or the worker ``worker_id``. Returns at once.

        This pauses the auto-tuner until `resume_tuner`.

        Raises
        ------
        CommandError
            If the run has ended, there is no such worker, it is leaving already, or no worker would stay.
        """
        n, worker_id = plain(n), plain(worker_id)
        state = self.telemetry.state
        if state.status in ENDED:
            raise CommandError(f"run {self.name!r} has ended ({state.status}); no worker is left to remove")
        started = self.n_slots
        staying = [worker for worker in range(started) if worker not in state.leaving]
        n_workers = len(staying)
        if worker_id is not None:
            if isinstance(worker_id, bool) or not isinstance(worker_id, int) or not 0 <= worker_id < started:
                raise CommandError(f"worker_id={worker_id!r}: must be a worker of this run, 0 to {started - 1}")
            pending = f"removing worker {worker_id} ..."
            if worker_id not in staying or pending in state.pending:
                others = ", ".join(str(worker) for worker in staying if worker != worker_id)
                raise CommandError(
                    f"worker_id={worker_id}: must be one that stays ({others}); it has left or is leaving already"
                )
            if n_workers < 2:
                raise CommandError(f"worker_id={worker_id}: the last worker cannot be removed; run.stop() ends the run")
            self._ask(Command(_new_id(), "scale_in", slots=[worker_id]), pending)
            return
        if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n < n_workers:
            if n_workers == 1:
                raise CommandError(f"n={n!r}: one worker is left in the run, and it must stay; run.stop() ends the run")
            raise CommandError(
                f"n={n!r}: must be an integer from 1 to {n_workers - 1} ({n_workers} workers are in the run)"
            )
        self._ask(Command(_new_id(), "scale_in", count=n), f"removing {count(n, 'worker')} ...")

    def resume_tuner(self) -> None:
        """Resume the auto-tuner, which a removal by the user has paused. Returns at once.

        Raises
        ------
        CommandError
            If the run has ended or has no tuner.
        """
        self._tune(True)

    def pause_tuner(self) -> None:
        """Pause the auto-tuner until `resume_tuner`. Returns at once; raises like `resume_tuner`."""
        self._tune(False)

    def _tune(self, on: bool) -> None:
        state = self.telemetry.state
        if state.status in ENDED:
            raise CommandError(f"run {self.name!r} has ended ({state.status}); it has nothing to tune")
        if state.tuner == "off" or (self._job is not None and not self._job.scale_in.enabled):
            raise CommandError(f"run {self.name!r} has no auto-tuner: its job says ScaleIn.off(), or has one worker")
        pending = "resuming the auto-tuner ..." if on else "pausing the auto-tuner ..."
        self._ask(Command(_new_id(), "tune", count=int(on)), pending)

    @property
    def budget(self) -> float | None:
        """The budget cap, US dollars; None without one. Assign to raise or lower it while the run is live."""
        return self.telemetry.state.budget_usd

    @budget.setter
    def budget(self, usd: float) -> None:
        state = self.telemetry.state
        if state.status in ENDED:
            raise CommandError(f"run {self.name!r} has ended ({state.status}); its budget cannot change")
        nusd = to_nusd(Budget(usd).usd)
        if nusd < state.committed_usd * NUSD:
            raise CommandError(
                f"budget={usd!r}: must be at least ${state.committed_usd:.6f}, which is spent and committed"
            )
        self._ask(Command(_new_id(), "budget", nusd=nusd), f"setting the budget to ${usd:g} ...")

    def _ask(self, command: Command, pending: str) -> None:
        send = self._send  # another thread sets it to None at the end
        if send is not None:
            send(command, pending)
        elif command.do != "stop" or self.status not in ENDED:
            raise CommandError(f"run {self.name!r} is not controlled from here; it is {self.status}")

    # -- showing

    def dashboard(self) -> None:
        """Show the run in this cell: the live dashboard, or the result once it has ended. Returns at once.

        Use it after a page was reloaded before its notebook was saved, or to watch from a second cell. In a notebook
        that is run as a batch, it prints the run's status.
        """
        from ..widgets import show

        show(self)

    def report(self) -> str:
        """A summary of the run as plain text."""
        from ..widgets import text_summary

        return text_summary(self)

    def plot(self, against: str = "step") -> Any:
        """Loss, workers and dollars as a plotly ``Figure``, against "step", "seconds" or "dollars"."""
        from ..widgets import plot

        return plot(self, against)

    def _ipython_display_(self) -> None:
        from ..widgets import can_click, detect, show

        if not self.telemetry.state.is_live or not can_click(detect()):
            raise NotImplementedError  # IPython then shows the static view
        show(self)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        from ..widgets import static_bundle

        return static_bundle(self)

    def __repr__(self) -> str:
        state = self.telemetry.state
        return f"<TrainingRun {self.name!r}: {state.status}, step {state.step}, ${state.spent_usd:.6f}>"

    # -- the driver's side

    def _end(self, model: FittedModel | None, cost: Cost, last: FittedModel | None = None, **state: Any) -> None:
        """End the run for threads that wait for it. ``last`` is the last model if not ``model``."""
        self._model, self._last, self._cost = model, last, cost
        money = {"spent_usd": cost.total, "committed_usd": cost.total}
        self.telemetry.update(**{**state, **money, "pending": ()})
        self._send = self._find_job = None  # frees the driver and everything that it references
        self._over.set()


def _new_id() -> str:
    return uuid.uuid4().hex[:12]
