"""Starts and kills functions through Lithops, and opens its object storage."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ...errors import JobError, ServiceError
from ...function.orphans import naming_driver
from ...function.package_digest import digest_here
from ...job.job import backend_name
from ...plurals import count
from ...redaction import remember
from ...storage.objects import LithopsObjects
from . import deployed, lithops_paths
from .bucket import require_bucket
from .cloud_functions import CloudFunctions, said_of
from .executors import is_free, jobs_of, next_job, opened
from .exits import Exits
from .interpreter import interpreter
from .lithops_config import (
    LIFETIME_S,
    LOCAL_LIFETIME_S,
    can_functions_invoke,
    configured,
    for_cloud,
    for_local,
    secrets_of,
)
from .processes import has_members, is_running, leaves

#: Longest wait for Lithops to start the process of local functions, seconds.
LOCAL_SPAWN_S = 5.0


def is_local(backend: str | Mapping[str, Any]) -> bool:
    """Whether functions of this backend are processes of this machine."""
    if isinstance(backend, Mapping):
        return bool(backend.get("lithops", {}).get("backend") == "localhost")
    return backend in ("embedded", "localhost")


class LithopsLauncher:
    """The functions of one run.

    Parameters
    ----------
    backend : str or Mapping
        ``"embedded"`` (Lithops' localhost), the name of a Lithops backend, or a whole Lithops configuration.
    n_functions : int
        Workers and supervisor.
    memory_mb : int
        Memory of each, MB.
    field : str
        The field that decides the number: "workers", which are one fewer, or another one.
    modules : sequence of str
        What the functions import beside the package: once for all of them, if they are processes of this machine.

    Raises
    ------
    JobError, ServiceError
        If the backend is unknown, its storage does not answer, or it cannot run so many functions at once.
    """

    def __init__(
        self,
        backend: str | Mapping[str, Any],
        n_functions: int,
        memory_mb: int,
        field: str = "workers",
        modules: Sequence[str] = (),
    ) -> None:
        self.is_local = is_local(backend)
        self._memory_mb = memory_mb
        self._has_seen, self._newest = False, ""  # whether processes can be seen; the key of the newest Lithops job
        self._begun = set[str]()  # the keys of jobs that Lithops was to begin, also if it has failed
        self.gone_at: float | None = None  # when all local functions had exited or were killed, monotonic clock
        self.exits = Exits(lambda: self.process_groups)
        if (profile := deployed.find(backend)) is not None:
            require_bucket(profile)
        config, name = configured(backend)
        if self.is_local:
            config, name = for_local(config, n_functions, interpreter(modules)), None
            lithops_paths.keep_private()
        else:
            config = for_cloud(config, name)
        remember(*secrets_of(config or {}))
        try:
            alone = lithops_paths.COPYING if self.is_local else contextlib.nullcontext()
            self._open = partial(opened, config, name, alone)
            self._executor = self._open()
        except Exception as error:
            why = said_of(error, config, name)
            raise JobError(
                "backend", backend_name(backend), f"a working Lithops backend; Lithops says: {why}"
            ) from None
        # Locally an executor runs one job after the other: those invoked while others run have executors of their own.
        self._executors = [self._executor]
        self._storage = self._executor.storage
        self.objects = LithopsObjects(self._storage)
        #: What only functions on a cloud need; None on this machine.
        self.cloud = None if self.is_local else CloudFunctions(self._executor, memory_mb)
        limits = self._executor.config.get(self._executor.backend, {})
        self._backend, self._field, self._n_functions = backend_name(backend), field, n_functions
        self._most = limits.get("max_workers")
        if profile is None:  # a profile has the quota of the day of its deployment; see `prepare`
            self._check_room(self._most)
        self.lifetime_s = float(LOCAL_LIFETIME_S if self.is_local else limits.get("runtime_timeout", LIFETIME_S))

    def _check_room(self, most: int | None) -> None:
        """Raise JobError if the backend runs ``most`` functions at once, and the run has more."""
        if not self.is_local and most is not None and most < self._n_functions:
            self.close()
            fewer = int(self._field == "workers")
            what = f"{self._backend} runs {count(most, 'function')} at once"
            valid = f"at most {most - fewer}: {what}" if most > fewer else f"more than {what} (ask for a higher quota)"
            raise JobError(self._field, self._n_functions - fewer, valid)

    def prepare(self) -> None:
        """Ask for the quota, and deploy the functions where they are not yet there: before the run's clock runs.

        Raises
        ------
        JobError, ServiceError
            If the account cannot run so many functions at once, or they cannot be deployed.
        """
        if self.cloud is None:
            return
        quota = self.cloud.quota
        self._check_room(self._most if quota is None else quota)
        if quota is not None:
            self.cloud.allow(quota)
        try:
            self.cloud.deploy()
        except JobError:
            self.close()
            raise
        except Exception as error:
            self.close()
            raise ServiceError(f"backend: the functions could not be deployed: {self._cause_of(error)}") from None

    def _cause_of(self, error: Exception) -> str:
        return said_of(error, self._executor.config)

    def _refusal(self, error: Exception) -> ServiceError:
        return ServiceError(f"backend: the functions could not be invoked: {self._cause_of(error)}")

    def files_of(self, bucket: str) -> LithopsObjects:
        """All objects of another bucket of the same storage."""
        return LithopsObjects(self._storage, "", bucket)

    @property
    def can_functions_invoke(self) -> bool:
        """Whether functions may invoke others. On this machine they are forked at once: nothing is gained there."""
        return not self.is_local and can_functions_invoke(self._executor.config)

    @naming_driver()
    def invoke(self, payloads: list[str]) -> None:
        """Start a function for each payload, all in one call."""
        from ...function.entry import run_function

        self.gone_at = None
        # A cloud may keep a runtime that was built from another version.
        version, executor = "" if self.is_local else digest_here(), self.ready_executor()
        self._begun.update([next_job(executor)] if self.is_local else ())
        try:
            if self.cloud is not None:
                self.cloud.begin()
            futures = executor.map(
                run_function,
                [{"payload": version + payload} for payload in payloads],
                chunksize=1,
                runtime_memory=None if self.is_local else self._memory_mb,
                # The package is installed in the runtime: Lithops would ship its .py files but no compiled kernel.
                exclude_modules=["mlless_nb"],
            )
        except Exception as error:
            raise self._refusal(error) from error
        # Leases and final messages show the functions' state; Lithops' polling of the storage would only add cost.
        for executor in self._executors:
            executor.job_monitor.stop()
        # Locally a thread of Lithops starts the functions' process; the watchdog needs its id.
        self._newest = futures[0].job_key
        if self.cloud is not None:
            self.cloud.accepted(len(payloads))
        give_up_at = time.monotonic() + LOCAL_SPAWN_S
        while self.is_local and self._newest not in self._jobs and time.monotonic() < give_up_at:
            time.sleep(0.002)

    def ready_executor(self) -> Any:
        """An executor that runs what it is given at once; `temporary_paths` has what Lithops creates for that, too."""
        for executor in self._executors:
            if not self.is_local or is_free(executor):
                return executor
        try:
            self._executors.append(self._open())
        except Exception as error:
            raise self._refusal(error) from error
        return self._executors[-1]

    @property
    def _jobs(self) -> dict[str, subprocess.Popen[bytes]]:
        """Lithops' local processes by the key of their job; each call of `invoke` is a job."""
        found: dict[str, subprocess.Popen[bytes]] = {}
        for executor in self._executors if self.is_local else ():
            found.update(jobs_of(executor))  # in one go, unlike a comprehension: others may come meanwhile
        return found

    def forget_ended(self) -> None:
        """Remove what ended invocations have left, for runs that invoke functions again and again."""
        for executor in self._executors:
            executor.futures.clear()
            jobs = jobs_of(executor) if self.is_local else {}
            for key, process in list(jobs.items()):
                if process.poll() is not None:
                    del jobs[key]
                    self._begun.discard(key)
                    lithops_paths.remove(lithops_paths.paths_of(self._storage.bucket, key))

    @property
    def newest(self) -> str:
        """The key of the newest Lithops job."""
        return self._newest

    def has_job_ended(self, key: str) -> bool:
        """Whether all functions of one call of `invoke` have exited, by its `newest`; False if that cannot be known."""
        process = self._jobs.get(key)
        return process is not None and process.poll() is not None and not has_members(process.pid)

    def functions_of(self, key: str) -> set[int] | None:
        """The processes that live of the functions of one call of `invoke`, or are to start them; None if unknown."""
        process = self._jobs.get(key)
        return leaves(process.pid) if process is not None and self._has_seen else None

    @property
    def process_groups(self) -> list[int]:
        """Process groups of the functions on this machine."""
        return [process.pid for process in self._jobs.values()]

    @property
    def executor_id(self) -> str:
        """Lithops' id of these functions; it is in the names of all that Lithops creates for them."""
        return str(self._executor.executor_id)

    @property
    def place(self) -> tuple[str, str]:
        """The name of the storage's backend, and the bucket of the run's objects."""
        return str(self._storage.backend), str(self._storage.bucket)

    @property
    def folder(self) -> str:
        """Lithops' folder on this machine, "" if the functions are elsewhere."""
        from lithops.constants import LITHOPS_TEMP_DIR

        return str(LITHOPS_TEMP_DIR) if self.is_local else ""

    @property
    def temporary_paths(self) -> list[str]:
        """Files and folders that Lithops creates on this machine for this run, for the next invocation, too."""
        from lithops.constants import JOBS_PREFIX, LITHOPS_TEMP_DIR

        if not self.is_local:
            return []
        bucket, keys = self._storage.bucket, {*self._begun, *self._jobs, *map(next_job, self._executors)}
        folder = f"{LITHOPS_TEMP_DIR}/{bucket}/{JOBS_PREFIX}"
        shared = [f"{folder}/{executor.executor_id}" for executor in self._executors]
        return [*shared, *(path for key in keys for path in lithops_paths.paths_of(bucket, key))]

    def folder_of(self, key: str) -> str:
        """The local folder of the objects under ``key``."""
        from lithops.constants import LITHOPS_TEMP_DIR

        return f"{LITHOPS_TEMP_DIR}/{self._storage.bucket}/mlless-nb/{key}"

    @property
    def remote_storage(self) -> dict[str, Any] | None:
        """Lithops' configuration of the storage; None if the objects are on this machine."""
        return None if self._storage.backend == "localhost" else dict(self._storage.config)

    def prefixes_of(self, key: str) -> list[str]:
        """What the names of the objects below ``key`` begin with, and those of Lithops' own of this run."""
        # With the separator, so that run 1 does not remove the files of run 10.
        identities = [executor.executor_id for executor in self._executors]
        own = [f"lithops.jobs/{identity}{end}" for identity in identities for end in ("/", "-")]
        return [f"mlless-nb/{key}/", *own]

    def place_of(self, key: str) -> str:
        """The place of the objects under ``key``, in words for a user."""
        return self.folder_of(key) if self.is_local else f"the bucket {self._storage.bucket}, mlless-nb/{key}"

    @property
    def n_cores(self) -> int:
        """Cores that the functions share; 0 if each function has its own."""
        if not self.is_local:
            return 0
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

    def has_ended(self) -> bool:
        """Whether all local functions have exited, also those of a killed process of Lithops; False if unknown."""
        processes = list(self._jobs.values())
        is_over = bool(processes) and not any(one.poll() is None or has_members(one.pid) for one in processes)
        self.gone_at = self.gone_at or (time.monotonic() if is_over else None)
        return is_over

    def has_died(self, pid: int) -> bool:
        """Whether a local function has exited; False if that cannot be known.

        Where no function was ever seen running, its number may be that of another process, e.g. in a container.
        """
        is_there = is_running(pid, self.process_groups)
        self._has_seen = self._has_seen or is_there
        return self._has_seen and not is_there

    def kill(self) -> None:
        """Kill the local functions. Clouds offer no kill; there functions end by their leases and budget."""
        for group in self.process_groups:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)
        self.gone_at = self.gone_at or (time.monotonic() if self.is_local else None)

    def close(self) -> None:
        """Wait for the functions' processes, then remove Lithops' files. Idempotent."""
        for process in self._jobs.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=5)
            if process.returncode is None or process.returncode < 0:  # its children may outlive one that was killed
                self.kill()
        paths = self.temporary_paths  # Lithops forgets its jobs when it is cleared
        for executor in self._executors:
            atexit.unregister(executor._clean_at_exit)
            executor.job_monitor.stop()
            executor.invoker.stop()
            if self.is_local:
                executor.compute_handler.clear()
        lithops_paths.remove(paths)
        if self._storage.backend != "localhost":
            with self.cloud.at_rest() if self.cloud is not None else contextlib.nullcontext():
                for prefix in self.prefixes_of("")[1:]:
                    keys = self._storage.list_keys(self._storage.bucket, prefix)
                    if keys:
                        self._storage.delete_objects(self._storage.bucket, keys)
