"""Stops a run, or a sweep, of any process of this user: `ask` it to stop, and `wait` until it has."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence

from ..errors import CommandError, ServiceError
from ..tracking import RunLedger, TrackedRun
from ..tracking.entry import trials_of
from ..validation import nearest
from .listing import known
from .running.stop_requests import SWEEP, request_of

#: Longest until a run's process takes the request, and until the run has ended, seconds.
ANSWER_S, END_S = 30.0, 600.0
#: Seconds between two looks at the list of runs.
POLL_S = 0.2


def live_runs(name: str) -> list[TrackedRun]:
    """The live runs of all processes whose name or id is ``name``, or the live trials of such a sweep, oldest first."""
    entries = known()
    named = [run for run in entries if name in (run.name, run.id)]
    return [run for run in named or _trials(name, entries) if run.is_live]


def _trials(name: str, entries: Sequence[TrackedRun]) -> list[TrackedRun]:
    """The trials of the sweep of this name or id, if it is one's."""
    return trials_of(name, entries) if name else []


def ask(name: str) -> list[TrackedRun]:
    """Ask the live run, or the sweep, of this name or id to stop in good order.

    Returns the entry of the run in the list of runs, or of the sweep's live trials, at once. A sweep begins no further
    trial.

    Raises
    ------
    CommandError
        If no such run or sweep is live, or several runs are.
    ServiceError
        If the list of runs cannot be read, or the request cannot be written.
    """
    entries = known()
    named = [run for run in entries if name in (run.name, run.id)]
    trials = [] if named else _trials(name, entries)
    live = [run for run in named or trials if run.is_live]
    if not live or (named and len(live) > 1):
        raise CommandError(_refusal(name, named or trials, live, entries))
    for run in live:
        _write(run, SWEEP if trials else "")
    return live


def _write(run: TrackedRun, request: str) -> None:
    path = request_of(run.id)
    draft = path.with_name(f"{path.name}.draft")
    try:
        with contextlib.suppress(FileNotFoundError):  # it has just ended, and has left no record
            draft.touch(mode=0o600)
            draft.write_text(request, "ascii")
            draft.replace(path)  # what heeds it never sees a part
    except OSError as error:
        raise ServiceError(f"run {run.name!r} cannot be asked to stop: {error}") from None


def _refusal(name: str, named: Sequence[TrackedRun], live: Sequence[TrackedRun], entries: Sequence[TrackedRun]) -> str:
    """Why nobody is asked; ``named`` are runs of this name, or trials of the sweep."""
    if live:
        ids = ", ".join(run.id for run in live)
        return f"{len(live)} live runs are called {name!r}: name one by its id, {ids}"
    if named and name not in (named[-1].name, named[-1].id):
        return f"no trial of the sweep {name!r} is live: there is nothing to stop"
    if named:
        return f"run {name!r} has ended ({named[-1].status}): there is nothing to stop"
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
