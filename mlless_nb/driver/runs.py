"""The runs of this process: `train` starts a run, `handles` has them all, `attach` finds one, in memory or on disk."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import signal
import threading
import time
import uuid
from collections.abc import Collection
from dataclasses import replace

from ..errors import BudgetError, CommandError, JobError, ServiceError
from ..exchange.stores import STORAGE
from ..job.execution import WORKERS
from ..job.job import TrainingJob
from ..redaction import scrub
from ..telemetry.live import LIVE
from ..tracking import RunLedger
from .backends import deployed
from .detached import attaching, detached
from .driver import Driver
from .launch import resumption
from .launch.allowance import Allowance, Within
from .run import TrainingRun
from .running.stop_requests import heed
from .stateless_driver import StatelessDriver

#: Most ended runs in memory, and most bytes of those before the newest; older runs are only on disk.
KEPT_RUNS, KEPT_BYTES = 50, 64 << 20

#: Live runs by name; None while a run is being prepared.
_live: dict[str, TrainingRun | None] = {}
_ended: list[TrainingRun] = []
_registry = threading.Lock()
_drivers: dict[str, tuple[Driver, threading.Thread]] = {}
#: Longest wait for runs to end in good order when the process exits, seconds; a bus may need most of it to close.
END_S = 20.0


def train(job: TrainingJob, resume: TrainingRun | str | None = None) -> TrainingRun:
    """Start training and return at once with a handle on the run, without the warnings of `mlless_nb.train`."""
    return start(job, resume)


def start(job: TrainingJob, resume: TrainingRun | str | None = None, within: Within | None = None) -> TrainingRun:
    """`train` a job that is also ``within`` another budget than those in force: a trial of a sweep."""
    if not isinstance(job, TrainingJob):
        raise JobError("job", job, "a TrainingJob")
    if job.redis is None and job.store != STORAGE and (servers := deployed.servers_of(job.backend)):
        job = replace(job, **servers)
    earlier = None
    if resume is not None:
        earlier = resumption.find(_known(resume) or resume)
        if not job.is_stored:  # else it is checked once the rows were counted
            earlier.check(job)
    if detached.is_wanted(job):
        return _enter(detached.start(job, earlier.folder.name if earlier is not None else None, _end))
    begun = _Start(job, earlier, within)
    try:
        begun.thread.start()
        begun.is_ready.wait()
    except BaseException:  # an interrupt: the run that is being prepared is no longer wanted
        begun.forget()
        raise
    if begun.error is not None:
        scrub(begun.error)
        raise begun.error
    assert begun.driver is not None
    return begun.driver.run


def _known(run: TrainingRun | str) -> TrainingRun | None:
    """The newest run of this process whose name or id is ``run``."""
    return next((known for known in reversed(handles()) if run in (known.id, known.name)), None)


class _Start:
    """A run that is prepared and then driven in its own thread.

    An interrupt reaches only the waiting thread, never the one that opens services, so no service is left half open.
    """

    def __init__(
        self, job: TrainingJob, earlier: resumption.Earlier | None = None, within: Within | None = None
    ) -> None:
        self._job, self._earlier, self._within = job, earlier, within
        self._run_id = f"{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:8]}"
        self._name = job.name or f"run-{self._run_id[-8:]}"
        self.is_ready = threading.Event()
        self.driver: Driver | None = None
        self.error: BaseException | None = None
        self._is_wanted = True
        self.thread = threading.Thread(target=self._run, name=f"mlless-driver-{self._name}", daemon=True)

    def forget(self) -> None:
        """Discard the run, or stop it if it was ready already."""
        with _registry:
            self._is_wanted = False
        if self.driver is not None:
            self.driver.run.stop()

    def _run(self) -> None:
        if hasattr(signal, "pthread_sigmask"):
            # Ctrl-C, or a kernel's interrupt, reaches the whole process group. It is for the main thread; Lithops
            # starts processes of this group, too, which would end: processes inherit what their thread blocks.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            driver = self._make_ready()
        except BaseException as error:
            self.error = error
            driver = None
        self.driver = driver
        self.is_ready.set()
        if driver is not None:
            threading.Thread(target=heed, args=(driver.run,), name=f"mlless-stop-{self._name}", daemon=True).start()
            driver.drive()

    def _make_ready(self) -> Driver | None:
        name = self._name
        with _registry:
            if name in _live:
                other = _live[name]
                so_far = f"is live (${other.cost.total:.6f} so far)" if other is not None else "is about to start"
                raise CommandError(f"a run called {name!r} {so_far}; stop it first or choose another name")
            _live[name] = None
        driver: Driver | None = None
        allowance: Allowance | None = None
        try:
            allowance = Allowance.open(self._job, self._run_id, name, self._within)
            kind = Driver if self._job.execution == WORKERS else StatelessDriver
            # May take seconds, and longer if functions read stored files: not under the lock.
            driver = kind(self._run_id, name, _end, allowance, self._earlier, lambda: self._is_wanted)
            _watch_end()
        except BudgetError as error:
            raise error if allowance is None else allowance.explained(error) from None
        finally:
            if driver is None and allowance is not None:
                allowance.settle(0)
            with _registry:
                if driver is not None and self._is_wanted:
                    _live[name], _drivers[name] = driver.run, (driver, self.thread)
                else:
                    del _live[name]
        if not self._is_wanted:
            driver.discard()
            return None
        return driver


@functools.cache
def _watch_end() -> None:
    """Register, once, that the runs end when the process exits."""
    # Runs before the interpreter joins other threads and before `atexit` handlers, so that Redis is still alive.
    register = getattr(threading, "_register_atexit", atexit.register)
    register(_end_all, os.getpid())


def _end_all(owner: int) -> None:
    if os.getpid() != owner:  # a forked child: the runs are its parent's
        return
    with _registry:
        drivers = list(_drivers.values())
    for driver, _ in drivers:
        driver.abandon()
    give_up_at = time.monotonic() + END_S
    for _, thread in drivers:
        thread.join(max(give_up_at - time.monotonic(), 0.0))


def _end(run: TrainingRun) -> None:
    with _registry:
        if _live.get(run.name) is run:
            del _live[run.name]
        _drivers.pop(run.name, None)
        _ended.append(run)
        del _ended[:-KEPT_RUNS]
        while sum(ended.n_bytes for ended in _ended[:-1]) > KEPT_BYTES:
            del _ended[0]


def let_go(run_ids: Collection[str]) -> None:
    """Forget the handles on these ended runs."""
    with _registry:
        _ended[:] = [run for run in _ended if run.id not in run_ids]


def _enter(run: TrainingRun) -> TrainingRun:
    """List a run of another process that this one is attached to."""
    with _registry:
        if run not in _ended:
            _live.setdefault(run.name, run)
    return run


def handles() -> list[TrainingRun]:
    """Handles on the runs that were started in this process or attached to while they were live, oldest first."""
    with _registry:
        return [*_ended, *(run for run in _live.values() if run is not None)]


def attach(run: str) -> TrainingRun:
    """The handle on a run by name or id, from any process of this user on this machine; the newest of that name.

    A live run of this process, or of another one that was started with ``detach``: the handle has its history so far,
    follows it, and commands it like the one that `train` has returned. Several processes may do so at once. An ended
    run: its history, cost and models are those of its record. A run whose driver was killed has the steps that were
    recorded, and status "failed".

    Raises
    ------
    JobError
        If ``run`` is not a text.
    CommandError
        If there is no such run, or it is live in another process that it is bound to.
    """
    if not isinstance(run, str):
        raise JobError("run", run, "the name or the id of a run")
    known = _known(run)
    if (known is None or known.status not in LIVE) and (folder := attaching.live(run)) is not None:
        with contextlib.suppress(OSError):  # it has just ended, or was killed
            return _enter(attaching.Attached(folder, _end).run)
    if known is not None:
        return known
    try:
        return attaching.recorded(run)
    except CommandError:
        if _is_sweep(run):
            told = f"{run!r} is a sweep: mlless_nb.runs(sweep={run!r}) lists its trials, attach takes the name of one"
            raise CommandError(told) from None
        raise


def _is_sweep(name: str) -> bool:
    """Whether the list of runs has trials of a sweep of this name or id."""
    with contextlib.suppress(ServiceError):
        return bool(name) and any(entry.is_trial_of(name) for entry in RunLedger().read())
    return False
