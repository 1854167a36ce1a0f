"""The services of a run (launcher, Redis, bus): opened and checked before the launch, always closed."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from ..bus import STORAGE_BUS, open_bus
from ..bus.urls import REDIS_SCHEMES, is_here, is_loopback, mask_url, scheme_of
from ..errors import JobError
from ..exchange.factory import open_coordinator
from ..exchange.protocol import key_prefix
from ..exchange.stores import open_store, store_hosts
from ..job.execution import is_without_redis
from ..job.job import TrainingJob, backend_name
from ..money.owner import Owner
from ..storage import conditional
from .embedded_redis import EmbeddedRedis, acquire_shared, check_redis, release
from .launcher import LithopsLauncher, is_local
from .places import Places, forget
from .request_dues import RequestDues
from .watchdog import Watchdog

#: The extra of Lithops that installs a cloud's packages, by the prefix of a missing module's name.
EXTRAS = {
    "alibabacloud": "aliyun",
    "azure": "azure",
    "boto": "aws",
    "google": "gcp",
    "httplib2": "gcp",
    "ibm": "ibm",
    "kubernetes": "kubernetes",
    "oci": "oracle",
    "oss2": "aliyun",
}


class Services:
    """The functions' launcher, Redis, the control bus and the coordinator of one run.

    Parameters
    ----------
    job : TrainingJob
    run_id : str

    Raises
    ------
    JobError, ServiceError
        If one of them is missing or unsuitable; services that were opened are closed again.
    """

    def __init__(self, job: TrainingJob, run_id: str) -> None:
        _check_reach(job)
        self.embedded: EmbeddedRedis | None = None
        self._run_id = run_id
        self._watchdog: Watchdog | None = None
        self._watched_groups: list[int] = []
        self._watched_paths: list[str] = []
        self._is_without_redis = is_without_redis(job)
        #: What pays for this process' requests while the run goes on; None if they are few.
        self.dues: RequestDues | None = None
        # The private server starts while Lithops is set up: each takes 50 ms.
        with ThreadPoolExecutor(1) as beside:
            is_embedded = job.redis_urls is None and is_local(job.backend) and not self._is_without_redis
            starting = beside.submit(acquire_shared) if is_embedded else None
            try:
                self.launcher = _launcher(job)
            except BaseException:
                if starting is not None and starting.exception() is None:
                    release(starting.result())
                raise
        try:
            self.embedded = starting.result() if starting is not None else None
            self.redis_urls = self._redis_urls(job)
            self.has_broker = job.bus is not None and job.bus.startswith("amqp")
            self.bus_url = self._bus_url(job)
            store = open_store(job.store, key_prefix(run_id), self.launcher.objects)
            if store is not None:
                store.check()
            if self._is_without_redis:
                folder = conditional.exchange_folder(run_id)
                conditional.check(conditional.conditional(self.launcher.objects), folder)
            self.bus = open_bus(self.bus_url, run_id, insecure=job.insecure, objects=self.launcher.objects)
        except BaseException:
            self.launcher.close()
            self._release_redis()
            raise
        objects = self.launcher.objects
        self.log = open_coordinator(self.redis_urls, run_id, uuid.uuid4().hex, "driver", store, objects)
        self._write_down(job)

    def _write_down(self, job: TrainingJob) -> None:
        """Write where the run keeps things into a file that lies there until `close`."""
        bus = mask_url(self.bus_url) if self.bus_url not in (*self.redis_urls, STORAGE_BUS) else ""
        others = [] if self.embedded is not None else [mask_url(url) for url in self.redis_urls]
        where = self.launcher.executor_id, self.launcher.folder, *self.launcher.place
        Places(self._run_id, job.name or "", Owner.this(), backend_name(job.backend), *where, others, bus).write()

    def _redis_urls(self, job: TrainingJob) -> list[str]:
        if self.embedded is not None:
            return [self.embedded.url]
        if self._is_without_redis:
            return []
        assert job.redis_urls is not None
        for url in job.redis_urls:
            check_redis(url, insecure=job.insecure)
        return job.redis_urls

    def _bus_url(self, job: TrainingJob) -> str:
        if job.bus is None:
            return self.redis_urls[0] if self.redis_urls else STORAGE_BUS
        scheme = scheme_of(job.bus)
        if scheme == "memory" or job.bus == STORAGE_BUS:
            raise JobError("bus", job.bus, "a server that functions reach too: amqp://..., redis://... or None")
        if scheme in REDIS_SCHEMES and job.bus not in self.redis_urls:
            check_redis(job.bus, insecure=job.insecure)
        return job.bus

    def watch_functions(self, run_folder: str) -> None:
        """Make sure that local functions end and their files are removed if this process is killed.

        Cloud functions end by themselves when the driver's lease expires. To be called after each invocation.
        """
        if not self.launcher.is_local:
            return
        if self._watchdog is None:
            self._watchdog = self.embedded or Watchdog().start()
            on_redis = [self.bus_url] if scheme_of(self.bus_url) in REDIS_SCHEMES else []
            if self.embedded is None and (urls := sorted({*self.redis_urls, *on_redis})):
                self._watchdog.add_keys(urls, key_prefix(self._run_id))
            if self.embedded is None and (storage := self.launcher.remote_storage) is not None:
                self._watchdog.add_objects(storage, self.launcher.prefixes_of(run_folder))
        # Kept here: the launcher forgets what it has closed.
        groups, self._watched_groups = self._watched_groups, self.launcher.process_groups
        paths = self._watched_paths
        self._watched_paths = [*self.launcher.temporary_paths, self.launcher.folder_of(run_folder)]
        for group in self._watched_groups:
            if group not in groups:
                self._watchdog.add_process_group(group)
        for path in self._watched_paths:
            if path not in paths:
                self._watchdog.add_path(path)
        for group in groups:
            if group not in self._watched_groups:
                self._watchdog.remove_process_group(group)
        for path in paths:
            if path not in self._watched_paths:
                self._watchdog.remove_path(path)

    def close(self) -> list[str]:
        """Close all services, also if closing one of them fails; returns the failures. Idempotent."""
        failures = []
        for step in (self._unwatch, self.launcher.close, self.bus.close, self.log.close, self._release_redis):
            try:
                step()
            except Exception as error:
                failures.append(f"{type(error).__name__}: {error}")
        forget(self._run_id)
        return failures

    def _unwatch(self) -> None:
        """Stop watching: process group ids may be reused, and the shared server may outlive this run."""
        watchdog, self._watchdog = self._watchdog, None
        if watchdog is None:
            return
        for group in self._watched_groups:
            watchdog.remove_process_group(group)
        for path in self._watched_paths:
            watchdog.remove_path(path)
        if watchdog is not self.embedded:
            watchdog.close()

    def _release_redis(self) -> None:
        server, self.embedded = self.embedded, None
        if server is not None:
            release(server)


def _check_reach(job: TrainingJob) -> None:
    """Raise JobError for a server on this machine, or for none, if functions run on others."""
    if is_local(job.backend):
        return
    if job.redis_urls is None and not is_without_redis(job):
        raise JobError("redis", None, "the URL of a Redis server that the functions of this backend can reach")
    name = backend_name(job.backend)
    if isinstance(job.backend, Mapping) and name == backend_name({}):
        return  # Lithops chooses the backend of a configuration that names none
    servers = [("redis", url, is_here(url)) for url in job.redis_urls or []]
    servers += [("bus", job.bus, is_here(job.bus))] if job.bus is not None else []
    servers += [("store", job.store, is_loopback(host)) for host in store_hosts(job.store)]
    for field, url, is_unreachable in servers:
        if is_unreachable:
            valid = f"a server that functions of {name!r} reach; this one is on this machine"
            raise JobError(field, mask_url(url), valid)


def _launcher(job: TrainingJob) -> LithopsLauncher:
    """The launcher of ``job``'s functions; if packages of its backend are missing the error says what to install."""
    try:
        field = "workers" if job.n_functions == (job.workers or 0) + 1 else "functions"
        return LithopsLauncher(job.backend, job.n_functions, job.memory_mb, field, job.model.modules)
    except JobError as error:
        missing = error.__context__  # Lithops imports a backend on first use
        if not isinstance(missing, ModuleNotFoundError) or not missing.name:
            raise
        extra = next((extra for start, extra in EXTRAS.items() if missing.name.startswith(start)), "all")
        valid = f"one whose packages are installed; {missing.name} is not: pip install 'lithops[{extra}]'"
        raise JobError("backend", error.value, valid) from None
