"""Stops a run of any process of this user: `ask` it to stop, and `wait` until it has."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence

from ..errors import CommandError, ServiceError
from ..tracking import RunLedger, TrackedRun
from ..tracking.entry import trials_of
from ..validation import nearest
from .listing import known
from .running.stop_requests import request_of

#: Longest until a run's process takes the request, and until the run has ended, seconds.
ANSWER_S, END_S = 30.0, 600.0
#: Seconds between two looks at the list of runs.
POLL_S = 0.2


def live_runs(name: str) -> list[TrackedRun]:
    """The live runs whose name or id is ``name``, of all processes, oldest first."""
    return [run for run in known() if run.is_live and name in (run.name, run.id)]


def ask(name: str) -> TrackedRun:
    """Ask the live run of this name or id to stop in good order; returns its entry in the list of runs at once.

    Raises
    ------
    CommandError
        If no such run is live, or several are.
    ServiceError
        If the list of runs cannot be read, or the request cannot be written.
    """
    entries = known()
    named = [run for run in entries if name in (run.name, run.id)]
    live = [run for run in named if run.is_live]
    if len(live) != 1:
        raise CommandError(_refusal(name, named, live, entries))
    (run,) = live
    try:
        with contextlib.suppress(FileNotFoundError):  # it has just ended, and has left no record
            request_of(run.id).touch(mode=0o600)
    except OSError as error:
        raise ServiceError(f"run {run.name!r} cannot be asked to stop: {error}") from None
    return run


def _refusal(name: str, named: Sequence[TrackedRun], live: Sequence[TrackedRun], entries: Sequence[TrackedRun]) -> str:
    """Why no run is asked."""
    if live:
        ids = ", ".join(run.id for run in live)
        return f"{len(live)} live runs are called {name!r}: name one by its id, {ids}"
    if named:
        return f"run {name!r} has ended ({named[-1].status}): there is nothing to stop"
    if name and (trials := trials_of(name, entries)):
        if not any(trial.is_live for trial in trials):
            return f"no trial of the sweep {name!r} is live: there is nothing to stop"
        return f"{name!r} is a sweep: it is stopped where it was started, by its button or %mlless stop {name}"
    names = ", ".join(dict.fromkeys(run.name for run in entries if run.is_live))
    near = nearest(name, [run.name for run in entries])
    meant = "" if near is None else f"; is {near!r} meant?"
    return f"no run is called {name!r}{meant}; live: {names or 'none'}"


def wait(run: TrackedRun) -> TrackedRun:
    """Wait until ``run``, which was asked to stop, has ended, or its process was killed; returns its entry then.

    Raises
    ------
    ServiceError
        If its process does not take the request, or the run does not end. The request stays.
    """
    began = time.monotonic()
    while _is_live(run.id):
        waited_s, is_taken = time.monotonic() - began, not request_of(run.id).exists()
        if waited_s > (END_S if is_taken else ANSWER_S):
            so_far = "it has not ended yet" if is_taken else "its process does not answer"
            raise ServiceError(f"run {run.name!r} was asked to stop {waited_s:.0f} s ago: {so_far}")
        time.sleep(POLL_S)
    return next((each for each in known() if each.id == run.id), run)


def _is_live(run_id: str) -> bool:
    """Whether the end of the run is not entered, and its process may live."""
    owners = dict(RunLedger().live())
    return run_id in owners and not ((owner := owners[run_id]) is not None and owner.is_gone)
