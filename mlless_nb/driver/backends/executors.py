"""Lithops' executors: opening one, and the processes of one whose functions are on this machine."""

from __future__ import annotations

import contextlib
import os
import subprocess
import uuid
from collections.abc import Mapping
from typing import Any

from ...redaction import remember
from ...stateless.nested import SESSION
from .lithops_config import copied, for_functions, secrets_of
from .processes import has_members

#: Longest wait for the end of Lithops' thread whose processes have ended, seconds.
MANAGER_S = 1.0


def begin_session() -> None:
    """Let Lithops number its next executor in a session of its own.

    The session and the number of the newest executor are in the environment. Processes that one process has started, as
    by a search with ``n_jobs=2``, and a process whose environment is put back, would open executors with ids that are
    taken: each removed the other one's files, and the second one took its function for uploaded.
    """
    os.environ[SESSION] = uuid.uuid4().hex[:6]


def opened(config: Mapping[str, Any] | None, name: str | None, alone: contextlib.AbstractContextManager[Any]) -> Any:
    """An executor of Lithops, which changes the configuration that it is given, opened while ``alone`` is held."""
    import lithops

    own = None if config is None else copied(config)
    with alone:
        begin_session()
        executor = lithops.FunctionExecutor(config=own, backend=name, log_level=None)
    # Lithops ships its configuration to the functions.
    remember(*secrets_of(executor.config))
    executor.invoker.config = for_functions(executor.config)
    return executor


def jobs_of(executor: Any) -> dict[str, subprocess.Popen[bytes]]:
    """The local processes of an executor by the key of their job; a thread of Lithops may add some at any time."""
    environment = getattr(executor.compute_handler, "env", None)
    return {} if environment is None else environment.jobs


def next_job(executor: Any) -> str:
    """The key that Lithops will give to the next map of an executor."""
    return f"{executor.executor_id}-M{executor.total_jobs:03d}"


def is_free(executor: Any) -> bool:
    """Whether a local executor runs at once what it is given.

    A thread of Lithops runs its jobs one after the other. It waits until nobody holds the output of a job's process,
    as functions do that outlive it; and it ends with the last job, when what it is given is never run.
    """
    processes = list(jobs_of(executor).values())
    if any(process.poll() is None or has_members(process.pid) for process in processes):
        return False
    manager = getattr(executor.compute_handler, "job_manager", None)
    if manager is not None:
        manager.join(MANAGER_S)
    return manager is None or not manager.is_alive()
