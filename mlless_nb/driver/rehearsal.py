"""A job is checked as `mlless_nb.train` checks it, and nothing is started."""

from __future__ import annotations

import dataclasses
import os
import time
import uuid
from collections.abc import Callable

from ..data.spans import Files
from ..errors import BudgetError, CommandError, JobError
from ..exchange.stores import STORAGE
from ..job.job import TrainingJob
from ..telemetry.live import LIVE
from .backends import deployed
from .detached import attaching, detached, handover
from .launch import resumption
from .launch.allowance import Allowance
from .launch.data_preparation import JobData
from .launch.launch_plan import LaunchPlan
from .launch.resumption import start_of
from .run import TrainingRun
from .runs import handles
from .servers.services import Services


def rehearse(
    job: TrainingJob,
    resume: TrainingRun | str | None = None,
    look: Callable[[Callable[[str], Files]], None] = lambda _: None,
) -> TrainingJob:
    """Check ``job`` as `mlless_nb.train` does before anything is invoked or billed.

    Servers and storages are asked whether they answer, and the private server of this machine is started for that
    moment. Rows of stored files are counted by functions; what depends on them is not checked.

    Parameters
    ----------
    job : TrainingJob
    resume : TrainingRun or str, optional
        As for `mlless_nb.train`.
    look : callable
        For stored files: called with what gives the files of a bucket, while the storage is open.

    Returns
    -------
    TrainingJob
        With everything chosen that ``job`` leaves open, except for stored files.

    Raises
    ------
    JobError, ServiceError, CommandError
        Those of `mlless_nb.train`.
    """
    if not isinstance(job, TrainingJob):
        raise JobError("job", job, "a TrainingJob")
    if job.redis is None and job.store != STORAGE and (servers := deployed.servers_of(job.backend)):
        job = dataclasses.replace(job, **servers)
    name = job.name
    if name is not None and any(run.name == name and run.status in LIVE for run in handles()):
        raise CommandError(f"a run called {name!r} is live; stop it first or choose another name")
    earlier = resumption.find(_known(resume)) if resume is not None else None
    if earlier is not None and not job.is_stored:
        earlier.check(job)
    if detached.is_wanted(job):
        if name is not None and attaching.live(name) is not None:
            raise CommandError(f"a run called {name!r} is live in a process of its own; stop it or choose another name")
        with open(os.devnull, "wb") as nowhere:
            handover.write(nowhere, job)  # refuses what that process cannot be given
    run_id = f"{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:8]}"
    allowance = Allowance.open(job, run_id, name or "dry run")
    try:
        return _planned(allowance.job, run_id, earlier, look)
    except BudgetError as error:
        raise allowance.explained(error) from None
    finally:
        allowance.settle(0)  # nothing of it was spent, so no entry stays


def _planned(
    job: TrainingJob,
    run_id: str,
    earlier: resumption.Earlier | None,
    look: Callable[[Callable[[str], Files]], None],
) -> TrainingJob:
    """The job as it would be launched; the services that it needs are opened and closed again."""
    if job.is_stored:
        services = Services(job, run_id)
        try:
            look(services.launcher.files_of)
        finally:
            services.close()
        return job
    data = JobData(job)
    start = start_of(earlier, data) if earlier is not None else None
    data.check_target(start.progress.params if start is not None else None)
    services = Services(data.job, run_id)
    try:
        LaunchPlan(data, services, start)
    finally:
        services.close()
    return data.job


def _known(run: TrainingRun | str) -> TrainingRun | str:
    """The newest run of this process whose name or id is ``run``; ``run`` itself if there is none."""
    return next((known for known in reversed(handles()) if run in (known.id, known.name)), run)
