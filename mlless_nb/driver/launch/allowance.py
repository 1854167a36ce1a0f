"""A run's reservation in the budgets of its session and its project: opened before anything is billed, then settled."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Collection
from typing import Self

from ...errors import BudgetError, MllessError
from ...job.job import TrainingJob
from ...job.limits import AllottedBudget
from ...money.book import KINDS, RunEntry, dollars
from ...money.ledger import Ledger
from ...money.ledger_rows import Note
from ...money.meter import NUSD, to_nusd
from ...money.owner import Owner
from ...telemetry.live import Telemetry
from .. import spending
from ..backends.launcher import is_local

#: Seconds between two notes of what a live run has committed.
NOTE_S = 1.0
#: Most nano-dollars of the driver's own requests to the storage before it knows what a start costs: twenty listings.
FIRST_NUSD = 100_000
#: Longest that functions go on without their driver. On this machine they end with it. Elsewhere its lease runs out
#: (30 s); if the supervisor is lost at that time, too, workers wait for another one, and leases are of 15 s.
GRACE_S, GRACE_ELSEWHERE_S = 45.0, 195.0


@dataclasses.dataclass(frozen=True)
class Within:
    """The budget of a sweep, which a trial belongs to beside the budgets in force.

    Parameters
    ----------
    sweep : str
        Its name in the ledger of budgets, and in the list of runs.
    share : int
        Trials that the rest of the budget is for: this one may reserve one part of so many.
    """

    sweep: str
    share: int = 1


class Allowance:
    """The reservation of one run; without a session's or project's budget it has no effect.

    Attributes
    ----------
    job : TrainingJob
        The job; one without a budget of its own has what it was allotted.
    budgets : dict
        The names of the budgets above its own, by kind.
    """

    def __init__(self, job: TrainingJob, run: RunEntry | None) -> None:
        self.job = job
        self.budgets = {kind: getattr(run, kind) for kind in KINDS} if run is not None else {}
        self._run = run
        self._in_force_nusd = self._reserved_nusd = run.reserved_nusd if run is not None else 0
        self._asked: dict[str, int] = {}  # caps of commands that were not answered yet, by the command's id
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._telemetry: Telemetry | None = None

    @classmethod
    def open(cls, job: TrainingJob, run_id: str, name: str, within: Within | None = None) -> Self:
        """Reserve the job's budget, or all that is left if it has none, or its share of that ``within`` a sweep.

        Raises
        ------
        BudgetError
            If a session's or project's budget has less left.
        """
        cap_nusd = to_nusd(job.cap_usd) if job.has_own_cap and job.cap_usd is not None else None
        names = spending.in_force()
        if within is not None:
            names["sweep"] = within.sweep
        if not names:
            is_old = isinstance(job.budget, AllottedBudget)  # of an earlier run that this one resumes from
            return cls(dataclasses.replace(job, budget=None) if is_old else job, None)
        asked = RunEntry(
            *(run_id, name, names.get("session", ""), names.get("project", ""), 0, None, int(time.time())),
            Owner.this(),
            names.get("sweep", ""),
        )
        with spending.opened() as book:
            run = book.open(asked, cap_nusd, within.share if within is not None else 1)
        if not job.is_stored:  # else functions may read files before the run begins
            with contextlib.suppress(MllessError):  # without a note the whole reservation counts
                Ledger().note(run_id, Note(FIRST_NUSD, 0, 0.0, 0.0))
        if cap_nusd is None:
            try:
                job = dataclasses.replace(job, budget=AllottedBudget(run.reserved_nusd / NUSD))
            except BaseException:
                cls(job, run).settle(0)
                raise
        return cls(job, run)

    @property
    def _budgets(self) -> str:
        return " and ".join(f"{kind} {name!r}" for kind, name in self.budgets.items() if name)

    def explained(self, error: BudgetError) -> BudgetError:
        """``error``, with where the cap comes from if it was allotted."""
        if not isinstance(self.job.budget, AllottedBudget) or error.field != "budget":
            return error
        return BudgetError(error.field, error.value, f"{error.valid}; this is what {self._budgets} has left")

    def follow(self, telemetry: Telemetry, usd_s: float) -> None:
        """Keep a note of what the run has committed, in case this process is killed.

        Parameters
        ----------
        telemetry : Telemetry
        usd_s : float
            Dollars of a second of all of the run's functions and servers.
        """
        if self._run is None:
            return
        self._telemetry = telemetry
        if isinstance(self.job.budget, AllottedBudget):
            telemetry.add_event(0.0, f"May cost {dollars(self._reserved_nusd)}, which {self._budgets} has left")
        arguments = (telemetry, self._run.id, round(usd_s * NUSD) + 1)
        self._note(*arguments, 0.0)
        threading.Thread(target=self._keep_noting, args=arguments, name="mlless-allowance", daemon=True).start()

    def _keep_noting(self, telemetry: Telemetry, run_id: str, nusd_s: int) -> None:
        heard, heard_at = telemetry.state.time_s, time.monotonic()
        while not self._is_over.wait(NOTE_S):
            now, time_s = time.monotonic(), telemetry.state.time_s
            if time_s != heard:
                heard, heard_at = time_s, now
            self._note(telemetry, run_id, nusd_s, now - heard_at)

    def _note(self, telemetry: Telemetry, run_id: str, nusd_s: int, unheard_s: float) -> None:
        state = telemetry.state
        if state.status == "starting" and self.job.is_stored:  # what is prepared before the launch is not in the state
            return
        with contextlib.suppress(MllessError):  # an older note and the recorded steps count then
            grace_s = GRACE_S if is_local(self.job.backend) else GRACE_ELSEWHERE_S
            Ledger().note(run_id, Note(to_nusd(state.committed_usd) + 1, nusd_s, unheard_s, grace_s))

    def ask(self, command_id: str, cap_nusd: int) -> None:
        """Reserve what a command that changes the cap needs, before it is sent; nothing is returned yet.

        Raises
        ------
        CommandError
            If the session's or project's budget has less left.
        """
        if self._run is None:
            return
        with self._lock:
            self._asked[command_id] = cap_nusd
            try:
                self._hold()
            except BaseException:
                del self._asked[command_id]
                raise

    def answered(self, command_ids: Collection[str], cap_nusd: int | None) -> None:
        """Commands were carried out or refused, and the run's cap is ``cap_nusd`` now: return what it cannot spend."""
        if self._run is None or cap_nusd is None:
            return
        with self._lock:
            for command_id in command_ids:
                self._asked.pop(command_id, None)
            self._in_force_nusd = cap_nusd
            try:
                self._hold()
            except MllessError as error:
                self._report(error)

    def _hold(self) -> None:
        """Reserve the highest cap that may be in force."""
        needed = max(self._in_force_nusd, *self._asked.values(), 0)
        if self._run is not None and needed != self._reserved_nusd and not self._is_over.is_set():
            with spending.opened() as book:
                book.reserve(self._run.id, needed)
            self._reserved_nusd = needed

    def settle(self, cost_nusd: int) -> None:
        """Put the run's true cost in the place of the reservation. Only the first call counts; it does not fail."""
        with self._lock:
            if self._run is None or self._is_over.is_set():
                return
            self._is_over.set()
            try:
                with spending.opened() as book:
                    book.settle(self._run.id, max(cost_nusd, 0))
            except MllessError as error:
                # The reservation counts until the run's record is read, once this process has ended.
                self._report(error)

    def _report(self, error: MllessError) -> None:
        if self._telemetry is not None:
            self._telemetry.add_event(self._telemetry.state.time_s, f"Not entered for {self._budgets}: {error}")
