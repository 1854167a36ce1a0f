"""Enters one run into the list of all runs: at its start and at its end."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import MllessError
from ..job.job import TrainingJob
from ..money.book import Kind
from ..money.owner import Owner
from .entry import TrackedRun, losses_of, settings_of
from .ledger import RunLedger

if TYPE_CHECKING:
    from ..telemetry.live import Telemetry


class Tracker:
    """The entry of one run. If the list cannot be written the run goes on, and an event says so.

    Parameters
    ----------
    run_id, name : str
    job : TrainingJob
    budgets : Mapping
        The names of its session, project and sweep, by kind.
    telemetry : Telemetry
        Where an event is told.
    """

    def __init__(
        self, run_id: str, name: str, job: TrainingJob, budgets: Mapping[Kind, str], telemetry: Telemetry
    ) -> None:
        self._run_id, self._telemetry, self._has_told = run_id, telemetry, False
        self._attempt(lambda ledger: ledger.begin(_entry(run_id, name, job, budgets), Owner.this()))

    def end(self, job: TrainingJob, state: Mapping[str, Any], usd: float) -> None:
        """Enter the end: the job with all that was decided, the last state by field, and the bill, US dollars."""
        values = {
            "steps": state["step"],
            "seconds": state["time_s"],
            "usd": usd,
            "status": state["status"],
            "reason": state["reason"],
            **losses_of(state),
        }
        self._attempt(lambda ledger: ledger.change(self._run_id, settings=settings_of(job), **values))

    def discard(self) -> None:
        """Remove the entry of a run that will not begin."""
        self._attempt(lambda ledger: ledger.remove(self._run_id))

    def _attempt(self, write: Callable[[RunLedger], None]) -> None:
        try:
            write(RunLedger())
        except Exception as error:  # whatever it is, the run is worth more than its entry
            if not self._has_told:
                self._has_told = True
                told = str(error) if isinstance(error, MllessError) else f"{type(error).__name__}: {error}"
                self._telemetry.add_event(self._telemetry.state.time_s, f"Not in mlless_nb.runs(): {told}")


def _entry(run_id: str, name: str, job: TrainingJob, budgets: Mapping[Kind, str]) -> TrackedRun:
    synthetic = " (synthetic)" if job.data.is_synthetic else ""
    return TrackedRun(
        run_id,
        name,
        time.time(),
        budgets.get("session", ""),
        budgets.get("project", ""),
        budgets.get("sweep", ""),
        model=str(job.model),
        data=f"{job.data.name}{synthetic}",
        settings=settings_of(job),
        metric=job.model.metric,
    )
