"""A registered store carries a run's frames: nothing of them is on Redis, and nothing is left of them."""

from __future__ import annotations

import threading
import uuid
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from engine.threads import OBJECTS, PATIENCE_S, Job
from exchange.dict_store import DictStore
from exchange.test_coordinator import part

from mlless_nb import BSP, ISP, PMF, SGD, SSP, JobError, ServiceError, TrainingJob, datasets
from mlless_nb.bus import open_bus
from mlless_nb.bus.messages import Failed, Left
from mlless_nb.exchange import RedisCoordinator
from mlless_nb.exchange.redis.coordinator import connect
from mlless_nb.exchange.stores import Usage, open_store
from mlless_nb.job.sync import Sync
from mlless_nb.money import Rates, price_profile
from mlless_nb.money.budget import Prepaid
from mlless_nb.storage.objects import MemoryObjects
from mlless_nb.worker.loop import Worker


@pytest.fixture
def job_id(redis_url: str) -> Any:
    """A job of which nothing may be left, on Redis or in the store."""
    name = uuid.uuid4().hex
    yield name
    assert not list(connect(redis_url).scan_iter(f"mlless:{name}:*"))
    assert not [key for key in DictStore.kept if name in key]


def train(job: Job, redis_url: str, job_id: str, store: str) -> tuple[list[Worker], list[str]]:
    """Train with a thread a worker; the workers, and the keys of frames that were seen on Redis meanwhile."""
    prefix = f"mlless:{job_id}:"

    def open_log(nonce: str) -> RedisCoordinator:
        return RedisCoordinator([redis_url], job_id, "1", nonce, open_store(store, prefix, OBJECTS))

    driver = open_log("driver")
    driver.create(cap_nusd=None, reserved_nusd=0)
    driver.renew("supervisor", PATIENCE_S)
    bus, rates = open_bus("memory://", job_id), Rates(price_profile("ibm-paper"), 2048)
    logs = [open_log(f"nonce {slot}") for slot in range(job.n_workers)]
    assert all(log.claim(slot) for slot, log in enumerate(logs))
    workers = [
        Worker(job.invocation(slot), log, bus, OBJECTS, Prepaid(rates, 10**12, lambda: 0.0, lambda: 0))
        for slot, log in enumerate(logs)
    ]
    ends: list[Left | Failed] = []
    threads = [threading.Thread(target=lambda w=worker: ends.append(w.run()), daemon=True) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    frames = [key.decode() for key in connect(redis_url).scan_iter(f"{prefix}frame:*")]
    for end in ends:
        assert end.status == "finished", end.reason
    assert len(ends) == job.n_workers
    driver.delete()
    for log in [driver, *logs]:
        log.close()
    bus.close(delete=True)
    return workers, frames


@pytest.mark.redis
@pytest.mark.parametrize("sync", [BSP(), ISP(0.7), SSP(2)], ids=str)
@pytest.mark.parametrize("scatter_from", [0, 2])
def test_a_registered_store_carries_a_run(redis_url: str, job_id: str, sync: Sync, scatter_from: int) -> None:
    scatter_from = 0 if sync.staleness else scatter_from
    job = Job(PMF(rank=3), SGD(0.5), sync, 3, 12, "mean", {}, scatter_from=scatter_from)
    workers, frames = train(job, redis_url, job_id, "dict")
    assert not frames
    if not sync.staleness:
        expected, frames = train(job, redis_url, job_id, "redis")
        assert frames
        for worker, other in zip(workers, expected, strict=True):
            np.testing.assert_array_equal(worker._replica.params, other._replica.params)


@pytest.mark.redis
def test_a_frame_that_is_too_large_is_refused_by_its_size(redis_url: str, job_id: str) -> None:
    store = DictStore(f"mlless:{job_id}:", MemoryObjects())
    log = RedisCoordinator([redis_url], job_id, "1", "nonce", store)
    log.create(cap_nusd=None, reserved_nusd=0)
    assert log.claim(0)
    with pytest.raises(ServiceError, match=f"a frame of {2**20 + 1} bytes: DictStore takes at most {2**20}"):
        log.publish(replace(part(1, 0), frame=bytes(2**20 + 1)))
    log.publish(part(1, 0))
    assert store.usage() == Usage(n_puts=1, put_bytes=len(part(1, 0).frame))
    assert log.delete() > 1
    log.close()


def test_a_store_that_is_not_there_is_refused_by_name() -> None:
    with pytest.raises(JobError, match="store='memcached': must be one of 'redis', "):
        TrainingJob(PMF(rank=2), SGD(1.0), datasets.synthetic_ratings(40, 30, 500), store="memcached")
