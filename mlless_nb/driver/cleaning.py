"""`survey` lists live runs and what others have left, here and on their backends; `clean` removes the latter."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import CommandError, JobError, MllessError
from ..telemetry.record import END, ROWS, last_spent_usd, recorded_name, runs_folder
from ..validation import check_flag
from . import leftovers, spending
from .backends.processes import Process, all_processes
from .leftovers import Leftover
from .servers.places import CONTROL, PLACES, Places, all_places, forget

#: States of runs of which nothing works any more.
OVER = ("killed", "ended")


@dataclass(frozen=True)
class KnownRun:
    """A run that is live, or of which something was left.

    Parameters
    ----------
    run_id, name : str
    pid : int
        The process that drives it, or did.
    state : str
        "starting", "running"; "killed", or "ended" if something was left; "elsewhere" if its process is of another
        machine or container.
    age_s : float
        Seconds since it began; of one that has ended, since then.
    usd : float
        Its cost by the newest recorded step, US dollars.
    left : list of Leftover
        What a killed or ended run has left.
    """

    run_id: str
    name: str
    pid: int
    state: str
    age_s: float
    usd: float
    left: list[Leftover] = field(default_factory=list)


@dataclass(frozen=True)
class Survey:
    """What there is of runs.

    Parameters
    ----------
    runs : list of KnownRun
        Oldest first.
    others : list of Leftover
        What was left by runs that are not known any more.
    packed : dict
        Folders of packed minibatches on this machine, with their bytes. They are kept for later runs.
    """

    runs: list[KnownRun]
    others: list[Leftover]
    packed: dict[Path, int]

    @property
    def left(self) -> list[Leftover]:
        """All that was left."""
        return [*(each for run in self.runs for each in run.left), *self.others]

    @property
    def live(self) -> list[KnownRun]:
        """Runs that are not known to have ended."""
        return [run for run in self.runs if run.state not in OVER]


@dataclass(frozen=True)
class Cleaned:
    """What `clean` did.

    Attributes
    ----------
    removed, left : list of str
        What was removed, and what is still there and why.
    settled : list of str
        Ids of killed runs whose reservations in a session's or project's budget were settled.
    """

    removed: list[str]
    left: list[str]
    settled: list[str]

    def __repr__(self) -> str:
        lines = [f"removed {each}" for each in self.removed] + [
            f"settled the reservation of {run}" for run in self.settled
        ]
        return "\n".join([*lines, *(f"not removed: {each}" for each in self.left), f"{len(self.left)} left"])


def survey(redis: str | Sequence[str] | None = None, backend: str | Mapping[str, Any] | None = None) -> Survey:
    """Look for runs and leftovers; nothing is changed. Parameters are those of `clean`."""
    urls = _urls(redis)
    processes = all_processes()
    states = [(places, _state(places)) for places in all_places()]
    # Forked processes share Lithops' ids: what a live run may be using is not touched.
    in_use = {places.executor for places, state in states if state not in OVER}
    runs = []
    for places, state in states:
        left = []
        if state in OVER:
            free = dataclasses.replace(places, executor="") if places.executor in in_use else places
            left = list(_left_by(free, processes, urls, backend))
        runs.append(_known(places, state, left))
    others = list(leftovers.of_watchdogs(processes))
    others += leftovers.of_unknown({run.run_id for run in runs})
    return Survey(runs, others, leftovers.packed_data())


def clean(
    redis: str | Sequence[str] | None = None, backend: str | Mapping[str, Any] | None = None, *, data: bool = False
) -> Cleaned:
    """Remove what runs that were killed or have ended have left: here, on their Redis servers and in their storage.

    Processes of functions, private Redis servers, keys, queues, objects and Lithops' files are removed, and their
    reservations in the budgets of sessions and projects are settled. Records and models stay, and so does all that
    belongs to a live run.

    Parameters
    ----------
    redis : str or list of str, optional
        URLs of servers that need a password, of RabbitMQ too: passwords are not kept.
    backend : str or Mapping, optional
        The Lithops configuration that the runs had, if it was not Lithops' own.
    data : bool
        Remove the packed minibatches on this machine too. The next run packs its data again.

    Raises
    ------
    CommandError
        If ``data`` and a run is live.
    """
    check_flag("data", data)
    found = survey(redis, backend)
    if data and (found.live or leftovers.is_anything_watched()):
        names = ", ".join(run.name for run in found.live) or "one of another data directory"
        raise CommandError(f"data=True: must wait until no run is live, since runs read it; live: {names}")
    removed: list[str] = []
    left: list[str] = []
    settled: list[str] = []
    try:
        settled = spending.settle_lost()
    except MllessError as error:
        left.append(str(error))
    for run in found.runs:
        kept = [each for each in run.left if not _is_removed(each, removed, left)]
        if run.state in OVER and not kept:
            (runs_folder() / run.run_id / CONTROL).unlink(missing_ok=True)
            forget(run.run_id)
    packed = [
        Leftover("packed data", str(path), "", n_bytes, partial(leftovers.remove_path, path))
        for path, n_bytes in (found.packed if data else {}).items()
    ]
    for each in [*found.others, *packed]:
        _is_removed(each, removed, left)
    return Cleaned(removed, left, settled)


def _is_removed(leftover: Leftover, removed: list[str], left: list[str]) -> bool:
    """Remove ``leftover``, and note in one of the lists how that went."""
    whose = f" of {leftover.run}" if leftover.run else ""
    if leftover.remove is None:
        left.append(f"{leftover.what}{whose} ({leftover.where})")
        return False
    try:
        leftover.remove()
    except Exception as error:
        left.append(f"{leftover.what}{whose} ({leftover.where}): {type(error).__name__}: {error}")
        return False
    removed.append(f"{leftover.what}{whose} ({leftover.where})")
    return True


def _left_by(
    run: Places, processes: Collection[Process], urls: Sequence[str], backend: str | Mapping[str, Any] | None
) -> Iterator[Leftover]:
    # In the order in which it is removed: functions first, since they write the rest.
    yield from leftovers.of_functions(run, processes)
    on_servers = list(leftovers.of_servers(run, urls))
    yield from on_servers
    yield from leftovers.of_store(run, urls, is_over=all(each.remove is not None for each in on_servers))
    yield from leftovers.of_files(run)
    yield from leftovers.of_storage(run, backend)


def _state(run: Places) -> str:
    if not run.owner.is_here:
        return "elsewhere"
    if run.has_ended:
        return "ended"
    if run.owner.is_gone:
        return "killed"
    return "running" if (runs_folder() / run.run_id / ROWS).exists() else "starting"


def _known(run: Places, state: str, left: list[Leftover]) -> KnownRun:
    folder, age_s = runs_folder() / run.run_id, 0.0
    with contextlib.suppress(OSError):
        age_s = max(time.time() - (folder / PLACES).stat().st_mtime, 0.0)
    name = recorded_name(folder / END) or run.name or run.run_id
    return KnownRun(run.run_id, name, run.owner.pid, state, age_s, last_spent_usd(folder), left)


def _urls(redis: str | Sequence[str] | None) -> list[str]:
    urls = [redis] if isinstance(redis, str) else list(redis or [])
    if not all(isinstance(url, str) for url in urls):
        raise JobError("redis", type(redis), "a URL or a list of URLs")
    return urls
