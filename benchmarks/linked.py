"""Training over the links of a cloud: real stores and the real worker loop, with injected latency and bandwidth.

The workers are threads of one process. Every request of a worker to its store takes, beside the time that the server
here needs, the latency and the bytes over the bandwidth of the cloud's service; requests at the same time share it. The
threads sleep meanwhile, so that many workers fit on few cores. Coordination is on a Redis here, without a link.
"""

from __future__ import annotations

import dataclasses
import statistics
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from mlless_nb import TrainingJob
from mlless_nb.adviser.constants import Link
from mlless_nb.bus import open_bus
from mlless_nb.bus.messages import Invocation
from mlless_nb.data.prepare import pack
from mlless_nb.driver.launch.invocations import invocations_of
from mlless_nb.driver.servers.embedded_redis import acquire_shared, release
from mlless_nb.exchange import Frame, RedisCoordinator
from mlless_nb.exchange.pattern import scatter_from
from mlless_nb.exchange.protocol import key_prefix
from mlless_nb.exchange.stores import FrameStore, open_store
from mlless_nb.money import Rates, price_profile
from mlless_nb.money.budget import Prepaid
from mlless_nb.money.start import StartingMoney
from mlless_nb.storage.objects import MemoryObjects
from mlless_nb.worker.loop import Worker

PATIENCE_S = 600.0


class LinkedStore:
    """A frame store behind a link; everything but the requests of frames is the store's own.

    Parameters
    ----------
    store : FrameStore
    link : Link
    """

    def __init__(self, store: FrameStore, link: Link) -> None:
        self._store, self._link = store, link
        self.waited_s = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def _travel(self, n_bytes: int) -> None:
        seconds = self._link.latency_s + n_bytes / self._link.bytes_s
        self.waited_s += seconds
        time.sleep(seconds)

    def put_many(self, frames: Mapping[str, bytes]) -> None:
        """See `FrameStore`."""
        self._travel(sum(map(len, frames.values())))
        self._store.put_many(frames)

    def get_many(self, keys: Sequence[str]) -> list[Frame | None]:
        """See `FrameStore`."""
        found = self._store.get_many(keys)
        self._travel(sum(len(frame) for frame in found if frame is not None))
        return found


class Course(NamedTuple):
    """Seconds of the run, steps, and seconds of all workers' requests to the store, a mean over the workers."""

    seconds: float
    n_steps: int
    store_s: float


def run(job: TrainingJob, link: Link | None) -> Course:
    """Train ``job`` with workers that are threads, over its store behind ``link`` (None: as it is here)."""
    server, objects, job_id = acquire_shared(), MemoryObjects(), uuid.uuid4().hex
    rates = Rates(price_profile(job.prices), job.memory_mb)
    try:
        manifest = pack(job.data, job.minibatch, job.seed, objects)
        own = open_store(job.store, key_prefix(job_id), objects)
        driver = RedisCoordinator([server.url], job_id, "generation", "driver", own)
        driver.create(cap_nusd=None, reserved_nusd=0)
        how = "broadcast" if job.pattern == "auto" else job.pattern
        _, *told = invocations_of(
            job,
            manifest,
            None,
            StartingMoney(rates, job.workers, is_local=True),
            job_id=job_id,
            generation="generation",
            scatter_from=scatter_from(how, job.workers, 0, 0, 1.0, 1.0),
            has_leader=job.pattern == "allreduce",
            seed=job.seed,
            n_cores=0,
            redis_urls=[server.url],
            bus_url="memory://",
            insecure=True,
            has_broker=False,
            launched_at_s=driver.now_s(),
            spent_before_nusd=0,
            lifetime_s=PATIENCE_S,
            schedule="constant",
            ends_settled=False,
            start_key=None,
        )
        told = [dataclasses.replace(one, lease_s=PATIENCE_S, round_timeout_s=PATIENCE_S) for one in told]
        driver.renew("supervisor", PATIENCE_S)
        try:
            return _train(told, server.url, job_id, objects, rates, link)
        finally:
            driver.delete()
            driver.close()
    finally:
        release(server)


def _train(
    told: list[Invocation], url: str, job_id: str, objects: MemoryObjects, rates: Rates, link: Link | None
) -> Course:
    bus = open_bus("memory://", job_id)
    ends: list[Any] = []
    stores: list[Any] = []
    workers = []
    for one in told:
        store: Any = open_store(one.store, key_prefix(job_id), objects)
        if store is not None and link is not None:
            store = LinkedStore(store, link)
        stores.append(store)
        log = RedisCoordinator([url], job_id, "generation", f"worker {one.slot}", store)
        if not log.claim(one.slot):
            raise SystemExit(f"slot {one.slot} is claimed")
        workers.append(Worker(one, log, bus, objects, Prepaid(rates, 10**15, lambda: 0.0, lambda: 0)))
    threads = [threading.Thread(target=_note(worker, ends), daemon=True) for worker in workers]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    seconds = time.monotonic() - began
    for store in stores:
        if store is not None:
            store.close()
    if len(ends) < len(workers) or any(getattr(end, "status", "") != "finished" for end in ends):
        raise SystemExit(f"the workers ended as {ends}")
    waited = [store.waited_s for store in stores if isinstance(store, LinkedStore)]
    return Course(seconds, ends[0].step, statistics.fmean(waited) if waited else 0.0)


def _note(worker: Worker, ends: list[Any]) -> Callable[[], None]:
    return lambda: ends.append(worker.run())
