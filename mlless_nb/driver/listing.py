"""The list of all runs of this user on this machine: `runs` shows it, `forget` removes runs from it."""

from __future__ import annotations

import dataclasses
import re
import shutil
import time
from collections.abc import Sequence
from typing import Any

from ..errors import CommandError, JobError
from ..telemetry.record import last_spent_usd, runs_folder
from ..tracking import RunLedger, Runs, TrackedRun
from ..tracking.entry import losses_of, trials_of
from ..tracking.listing import Spend
from ..tracking.records import ended_by_record, figures_of
from ..validation import check_number, check_positive_integer
from .runs import handles, let_go

#: Shown of a run that was killed before its functions were invoked.
_NEVER_BEGAN = "the process that started it was killed before it had begun"
DAY_S = 86_400.0
_ID = re.compile(r"[A-Za-z0-9_-]+")


def runs(last: int | None = None, *, project: str | None = None, sweep: str | None = None) -> Runs:
    """All runs of this user on this machine, of this process and of others, live and ended, oldest first.

    In a notebook the list shows as a table, that of a sweep with the settings that differ and the best trial first.
    ``to_pandas()`` and ``to_arrow()`` have all columns, and
    ``mlless_nb.attach(name)`` gives the handle of a run.

    Parameters
    ----------
    last : int, optional
        Only the newest ones.
    project, sweep : str, optional
        Only the runs of this project, or the trials of this sweep: of the newest one of the name, or of the one with
        this id (``run.sweep``); "" for those of none.

    Raises
    ------
    JobError
        If an argument is of another type.
    ServiceError
        If the file in the user's data directory cannot be read.
    """
    check_positive_integer("last", last, or_none=True)
    for name, value in (("project", project), ("sweep", sweep)):
        if value is not None and not isinstance(value, str):
            raise JobError(name, value, "a name or None")
    entries = known()
    found = [run for run in entries if project is None or run.project == project]
    if sweep is not None:
        found = trials_of(sweep, found)
    return Runs(found[-last:] if last is not None else found, len(entries) - len(found), are_trials=bool(sweep))


def spend(project: str | None = None) -> Spend:
    """What all runs have cost, by day and project, also those that were removed by `forget`.

    Parameters
    ----------
    project : str, optional
        Only the runs of this project; "" for those of none.

    Raises
    ------
    ServiceError
        If the file in the user's data directory cannot be read.
    """
    found = [run for run in known(forgotten=True) if project is None or run.project == project]
    return Runs(found).spend()


def known(*, forgotten: bool = False) -> list[TrackedRun]:
    """All runs, oldest first, live ones with their present figures."""
    ledger = RunLedger()
    _enter_ends(ledger)
    live_here = {run.id: run for run in handles()}
    entries = []
    for entry in ledger.read(forgotten=forgotten):
        if entry.is_live and (handle := live_here.get(entry.id)) is not None:
            state = handle.telemetry.state
            figures: dict[str, Any] = {"steps": state.step, "seconds": state.time_s, "usd": state.spent_usd}
            figures |= {"status": state.status, **losses_of(state.to_json())}
            entries.append(dataclasses.replace(entry, **figures))
        elif entry.is_live:
            entries.append(dataclasses.replace(entry, usd=last_spent_usd(runs_folder() / entry.id)))
        else:
            entries.append(entry)
    return entries


def _enter_ends(ledger: RunLedger) -> None:
    """Enter the ends of the runs whose process was killed."""
    for run_id, owner in ledger.live():
        if owner is not None and owner.is_gone:
            ended = ended_by_record(runs_folder() / run_id)
            lost = {"status": "failed", "reason": _NEVER_BEGAN}
            ledger.change(run_id, **(figures_of(ended) if ended is not None else lost))


def forget(*names: str, older_than_days: float | None = None) -> Runs:
    """Remove ended runs from the list, and their records and models from the disk. Returns the removed runs.

    What they have cost stays in `spend`, and in the budgets of sessions and projects.

    Parameters
    ----------
    *names : str
        Names or ids. A name removes all ended runs that have it; that of a sweep the trials that ``runs(sweep=name)``
        lists, if all of them have ended.
    older_than_days : float, optional
        Remove those that began before so many days, of ``names`` if there are any, else of all.

    Raises
    ------
    JobError
        If neither is given, or one is of another type.
    CommandError
        If a run is unknown or live. Nothing is removed then.
    """
    check_number("older_than_days", older_than_days, 0.0, or_none=True)
    if not names and older_than_days is None:
        raise JobError("names", names, "names or ids of runs, or older_than_days=30")
    entries = known()
    named: set[str] = set()
    for name in names:
        if not isinstance(name, str):
            raise JobError("names", name, "the name or the id of a run")
        found = [run for run in entries if name in (run.name, run.id)] or (trials_of(name, entries) if name else [])
        if not found:
            raise CommandError(f"no run is called {name!r}: mlless_nb.runs() lists those that there are")
        named |= {run.id for run in found}
    chosen = [run for run in entries if not names or run.id in named]
    if older_than_days is not None:
        chosen = [run for run in chosen if run.began_s < time.time() - older_than_days * DAY_S]
    live = [run.name for run in chosen if run.is_live]
    if live and names:
        raise CommandError(f"run {live[0]!r} is live: stop it first")
    removed = [run for run in chosen if not run.is_live]
    _remove(removed)
    return Runs(removed, len(entries) - len(removed))


def _remove(removed: Sequence[TrackedRun]) -> None:
    RunLedger().forget([run.id for run in removed])
    let_go({run.id for run in removed})
    for run in removed:
        if _ID.fullmatch(run.id):
            shutil.rmtree(runs_folder() / run.id, ignore_errors=True)
