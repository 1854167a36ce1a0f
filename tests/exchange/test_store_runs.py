"""A run whose frames are in a store trains the model of one whose frames are on Redis, and pays for its requests."""

from __future__ import annotations

import threading
import uuid
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from engine.threads import OBJECTS, PATIENCE_S, Job
from exchange.places import Place

from mlless_nb import BSP, ISP, PMF, SGD, SSP
from mlless_nb.bus import open_bus
from mlless_nb.bus.messages import Failed, Left
from mlless_nb.exchange import RedisCoordinator
from mlless_nb.exchange.redis.client import connect
from mlless_nb.exchange.stores import FrameStore, open_store
from mlless_nb.job.sync import Sync
from mlless_nb.money import Rates, price_profile
from mlless_nb.money.budget import Prepaid
from mlless_nb.storage.objects import MemoryObjects
from mlless_nb.worker.loop import Worker

RATES = Rates(price_profile("aws-lambda-x86"), 2048)


def train(job: Job, redis_url: str, place: Place, job_id: str) -> tuple[list[Worker], list[Left]]:
    """Train with a thread a worker, and check that Redis sees no frame of it; the workers, and their last words."""
    prefix = f"mlless:{{{job_id}}}:"

    def open_log(nonce: str) -> tuple[RedisCoordinator, FrameStore | None]:
        store = open_store(place.store, prefix, place.objects)
        return RedisCoordinator([redis_url], job_id, "1", nonce, store), store

    driver, _ = open_log("driver")
    driver.create(cap_nusd=None, reserved_nusd=0)
    driver.renew("supervisor", PATIENCE_S)
    bus = open_bus("memory://", job_id)
    opened = [open_log(f"nonce {slot}") for slot in range(job.n_workers)]
    assert all(log.claim(slot) for slot, (log, _) in enumerate(opened))

    def prepaid(store: FrameStore | None) -> Prepaid:
        spent = (lambda: store.price_nusd(store.usage(), RATES)) if store is not None else int
        return Prepaid(RATES, 10**12, lambda: 0.0, spent, store_nusd=spent)

    workers = [
        Worker(job.invocation(slot), log, bus, OBJECTS, prepaid(store)) for slot, (log, store) in enumerate(opened)
    ]
    ends: list[Left | Failed] = []
    threads = [threading.Thread(target=lambda w=worker: ends.append(w.run()), daemon=True) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    on_redis = list(connect(redis_url).scan_iter(f"{prefix}frame:*"))
    assert bool(on_redis) == (place.store == "redis" and job.n_workers > 1)
    last = [end for end in ends if isinstance(end, Left) and end.status == "finished"]
    assert len(last) == job.n_workers, [end.reason for end in ends]
    driver.delete()
    for log in [driver, *(log for log, _ in opened)]:
        log.close()
    bus.close(delete=True)
    return workers, last


def runs() -> list[Any]:
    """Protocols, patterns and numbers of workers; those that differ in one of them from another are long."""
    short = {("BSP", "allreduce", 3), ("ISP 0.7", "scatter-reduce", 3), ("SSP 2", "broadcast", 3)}
    return [
        pytest.param(sync, pattern, n, marks=[] if (str(sync), pattern, n) in short else [pytest.mark.long])
        for sync in (BSP(), ISP(0.7), SSP(2))
        for pattern in ("broadcast", "scatter-reduce", "allreduce")
        for n in (1, 3)
        if not (sync.staleness and pattern != "broadcast")
    ]


@pytest.mark.parametrize(("sync", "pattern", "n_workers"), runs(), ids=str)
def test_a_store_carries_a_run(
    place: Place, redis_url: str, job_id: str, sync: Sync, pattern: str, n_workers: int
) -> None:
    scatter_from, has_leader = 2 * (pattern == "scatter-reduce"), pattern == "allreduce"
    job = Job(PMF(rank=3), SGD(0.5), sync, n_workers, 8, "mean", {}, scatter_from=scatter_from, has_leader=has_leader)
    workers, ends = train(job, redis_url, place, job_id)
    for end in ends:
        is_billed = n_workers > 1 and not place.store.startswith(("dict", "memcached", "server"))
        assert (end.store_nusd > 0) == is_billed
        assert end.storage_nusd >= end.store_nusd
    if not sync.staleness:
        expected, _ = train(job, redis_url, Place("redis", MemoryObjects(), lambda job_id: []), uuid.uuid4().hex)
        for worker, other in zip(workers, expected, strict=True):
            np.testing.assert_array_equal(worker._replica.params, other._replica.params)


@pytest.mark.parametrize("codec", ["float32", "bf16"])
@pytest.mark.parametrize("sync", [BSP(), ISP(0.7)], ids=str)
def test_a_leader_adds_what_scatter_reduce_adds(redis_url: str, sync: Sync, codec: str) -> None:
    """Both add the updates in slot order, and then their sum to the parameters."""
    on_redis = Place("redis", MemoryObjects(), lambda job_id: [])
    job = Job(PMF(rank=3), SGD(0.5), sync, 3, 8, "mean", {}, codec=codec)
    led, scattered = (
        train(replace(job, **changes), redis_url, on_redis, uuid.uuid4().hex)[0]
        for changes in ({"has_leader": True}, {"scatter_from": 2})
    )
    for worker, other in zip(led, scattered, strict=True):
        if codec == "float32":
            np.testing.assert_array_equal(worker._replica.params, other._replica.params)
        else:
            np.testing.assert_allclose(worker._replica.params, other._replica.params, atol=0.02)
