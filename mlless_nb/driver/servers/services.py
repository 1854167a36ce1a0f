"""The services of a run (launcher, Redis, bus): opened and checked before the launch, always closed."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from ...bus import STORAGE_BUS, open_bus
from ...bus.cluster import node_of
from ...bus.passwords import filled
from ...bus.urls import REDIS_SCHEMES, is_here, is_loopback, mask_url, require_private, scheme_of
from ...errors import JobError
from ...exchange.factory import open_coordinator
from ...exchange.protocol import key_prefix
from ...exchange.stores import REDIS, for_functions, open_store, store_hosts, store_kind
from ...job.execution import WORKERS, is_without_redis
from ...job.job import TrainingJob, backend_name
from ...money.owner import Owner
from ...redaction import in_url, remember
from ...storage import conditional
from ...storage.request_tally import RequestTally
from ...storage.run_objects import tally_key
from ..backends import deployed
from ..backends.launcher import LithopsLauncher, is_local
from ..backends.lithops_config import not_installed
from .embedded_redis import EmbeddedRedis, RedisServer, acquire_shared, check_redis, release
from .places import Places, end, forget
from .redis_user import RedisUser
from .request_dues import RequestDues
from .watchdog import Watchdog


class Services:
    """The functions' launcher, Redis, the control bus and the coordinator of one run.

    Parameters
    ----------
    job : TrainingJob
    run_id : str

    Attributes
    ----------
    redis_urls, bus_url : list of str, str
        The servers, with the driver's passwords.
    urls_for_functions, bus_for_functions : list of str, str
        The same servers, with those of functions.
    store : str
        The job's, with what opens it to functions.
    frame_key : str
        The key of seals, hexadecimal; "" where frames are on the private server.
    told : list of str
        What the user should know, one sentence each.

    Raises
    ------
    JobError, ServiceError
        If one of them is missing or unsuitable; services that were opened are closed again.
    """

    def __init__(self, job: TrainingJob, run_id: str) -> None:
        _check_reach(job)
        self.embedded: EmbeddedRedis | None = None
        self._run_id, self.told = run_id, list[str]()
        self._user: RedisUser | None = None
        self._servers: dict[str, RedisServer] = {}  # as they were when they were checked
        self._seen: list[str] = []  # their URLs for functions
        self._watchdog: Watchdog | None = None
        self._watched_groups: list[int] = []
        self._watched_paths: list[str] = []
        self._is_without_redis = is_without_redis(job)
        #: Whether something was left in the run's places, so that these stay known.
        self.has_left = self.keeps_objects = False
        #: What pays for this process' requests while the run goes on; None if they are few.
        self.dues: RequestDues | None = None
        #: What functions have requested of the object storage; None without an object storage on this machine.
        self.tally: RequestTally | None = None
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
            address, prefix = filled("store", job.store), key_prefix(run_id)
            self.store = for_functions(address, prefix)
            remember(*in_url(self.store))
            # The object storage keeps models and minibatches, too: what can write there needs no frames.
            is_trusted = (self.embedded is not None and self.store == REDIS) or self._is_without_redis
            self.frame_key = "" if is_trusted else secrets.token_hex(32)
            store = open_store(address, prefix, self.launcher.objects)
            if store is not None:
                store.check()
            if self._is_without_redis:
                folder = conditional.exchange_folder(run_id)
                conditional.check(conditional.conditional(self.launcher.objects), folder)
            self.urls_for_functions, self.bus_for_functions = self._for_functions()
            self.bus = open_bus(self.bus_url, run_id, insecure=job.insecure, objects=self.launcher.objects)
        except BaseException:
            self.launcher.close()
            self._remove_user()
            self._release_redis()
            raise
        objects = self.launcher.objects
        self.log = open_coordinator(self.redis_urls, run_id, uuid.uuid4().hex, "driver", store, objects, self.frame_key)
        self._write_down(job)

    def _write_down(self, job: TrainingJob) -> None:
        """Write where the run keeps things into a file that lies there until `close`."""
        bus = mask_url(self.bus_url) if self.bus_url not in (*self.redis_urls, STORAGE_BUS) else ""
        others = [] if self.embedded is not None else [mask_url(url) for url in self.redis_urls]
        kind = store_kind(self.store)
        store = mask_url(self.store) if kind is not None and not kind.expires else ""
        where = self.launcher.executor_id, self.launcher.folder, *self.launcher.place
        whose = self._run_id, job.name or "", Owner.this(), backend_name(job.backend)
        Places(*whose, *where, others, bus, store=store).write()

    def _redis_urls(self, job: TrainingJob) -> list[str]:
        if self.embedded is not None:
            remember(*in_url(self.embedded.url))
            return [self.embedded.url]
        if self._is_without_redis:
            return []
        assert job.redis_urls is not None
        urls = [filled("redis", url) for url in job.redis_urls]
        self._seen = [filled("redis_for_functions", url) for url in job.function_redis_urls or []]
        for number, url in enumerate(urls):
            server = check_redis(url, insecure=job.insecure)
            if self._seen[number] != url:
                require_private("redis_for_functions", self._seen[number], job.insecure)
            if server.is_cluster and self._seen[number] != url:
                raise JobError("redis", mask_url(url), "servers that are not in cluster mode, with redis_for_functions")
            if server.is_cluster:  # all keys of a run lie on one of its servers
                urls[number] = self._seen[number] = url = node_of(url, key_prefix(self._run_id))
                server = check_redis(url, insecure=job.insecure)
            self._servers[url] = server
        return urls

    def check_room(self, n_bytes: int) -> None:
        """Raise JobError unless the Redis servers have room for ``n_bytes`` of a run, all together.

        A server that gets full refuses updates, which would end the run.
        """
        for url, server in self._servers.items():
            room, needed = server.maxmemory_bytes - server.used_bytes, -(-n_bytes // len(self._servers))
            if server.maxmemory_bytes and room < needed:
                valid = (
                    f"a server with room for {needed / 1e6:.1f} MB, which the run may need there; this one has "
                    f"{max(room, 0) / 1e6:.1f} MB left of {server.maxmemory_bytes / 1e6:.1f} MB (CONFIG SET maxmemory)"
                )
                raise JobError("redis", mask_url(url), valid)

    def _bus_url(self, job: TrainingJob) -> str:
        if job.bus is None:
            return self.redis_urls[0] if self.redis_urls else STORAGE_BUS
        url, scheme = filled("bus", job.bus), scheme_of(job.bus)
        if scheme == "memory" or job.bus == STORAGE_BUS:
            raise JobError("bus", job.bus, "a server that functions reach too: amqp://..., redis://... or None")
        if scheme in REDIS_SCHEMES and url not in self.redis_urls:
            check_redis(url, insecure=job.insecure)
        return url

    def _for_functions(self) -> tuple[list[str], str]:
        """The URLs of Redis and the bus that functions get, with a user of the job's own where that can be made."""
        if self.embedded is not None or self._is_without_redis:
            return self.redis_urls, self.bus_url
        self._user = user = RedisUser(self._run_id)
        servers = dict.fromkeys(
            [*self.redis_urls, *([self.bus_url] if scheme_of(self.bus_url) in REDIS_SCHEMES else [])]
        )
        refusals = [why for url in servers if (why := user.make(url))]
        if refusals:
            self.told.append(f"{refusals[0]}: functions have the given one, and reach the keys of other jobs")
        seen = dict(zip(self.redis_urls, self._seen, strict=True))
        urls = [user.url_for_functions(url, seen[url]) for url in self.redis_urls]
        return urls, user.url_for_functions(self.bus_url, seen.get(self.bus_url))

    def keep_user(self) -> None:
        """Make the job's Redis user again if its server was restarted."""
        if self._user is not None:
            self._user.keep()

    def _remove_user(self) -> None:
        user, self._user = self._user, None
        if user is not None:
            user.remove()

    def invoke_functions(self, payloads: list[str], run_folder: str) -> None:
        """Start a function for each payload; local ones end, and their files are removed, if this process is killed.

        Cloud functions end by themselves when the driver's lease expires.
        """
        self.launcher.ready_executor()
        self._watch_functions(run_folder)  # Lithops writes files before it starts a process
        self.launcher.invoke(payloads)
        self._watch_functions(run_folder)

    def _watch_functions(self, run_folder: str) -> None:
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

    def sweep(self) -> None:
        """Remove the tally, and what functions that were killed have left of unfinished writes to the storage."""
        self._close_tally()
        self.launcher.objects.sweep(f"runs/{self._run_id}")

    def _close_tally(self) -> None:
        if self.tally is not None:
            self.launcher.objects.delete([tally_key(self._run_id)])
            self.tally.close()

    def close(self) -> list[str]:
        """Close all services, also if closing one of them fails; returns the failures. Idempotent."""
        failures = []
        steps = (self.launcher.close, self.bus.close, self._remove_user, self.log.close, self._release_redis)
        for step in (self._unwatch, self._close_tally, *steps):
            try:
                step()
            except Exception as error:
                failures.append(f"{type(error).__name__}: {error}")
        if self.has_left:
            end(self._run_id, keeps_objects=self.keeps_objects)
        else:
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
        valid = "the URL of a Redis server that the functions of this backend can reach"
        if job.store == REDIS and job.execution == WORKERS and not job.is_stored:
            valid += ", or none with store='storage', which keeps updates in the bucket"
        raise JobError("redis", None, valid)
    name = backend_name(job.backend)
    if isinstance(job.backend, Mapping) and name == backend_name({}):
        return  # Lithops chooses the backend of a configuration that names none
    field = "redis" if job.redis_for_functions is None else "redis_for_functions"
    servers = [(field, url, is_here(url)) for url in job.function_redis_urls or []]
    servers += [("bus", job.bus, is_here(job.bus))] if job.bus is not None else []
    servers += [("store", job.store, is_loopback(host)) for host in store_hosts(job.store)]
    for field, url, is_unreachable in servers:
        if is_unreachable:
            valid = f"a server that functions of {name!r} reach; this one is on this machine"
            raise JobError(field, mask_url(url), valid)


def _launcher(job: TrainingJob) -> LithopsLauncher:
    """The launcher of ``job``'s functions; if packages of its backend are missing the error says what to install."""
    deployed.check(job.backend, job.memory_mb)
    try:
        field = "workers" if job.n_functions == (job.workers or 0) + 1 else "functions"
        launcher = LithopsLauncher(job.backend, job.n_functions, job.memory_mb, field, job.model.modules)
        launcher.prepare()
        return launcher
    except JobError as error:
        missing = error.__context__  # Lithops imports a backend on first use
        if not isinstance(missing, ModuleNotFoundError) or not missing.name:
            raise
        valid = f"one whose packages are installed; {not_installed(missing.name)}"
        raise JobError("backend", error.value, valid) from None
