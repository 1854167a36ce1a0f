"""One contract for all frame stores, on real servers: nothing is lost, mixed up or left, and all of it is billed."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from engine.threads import OBJECTS, PATIENCE_S, Job
from exchange.dict_store import DictStore
from exchange.test_coordinator import part
from servers import S3_BACKEND, MemcachedProcess

from mlless_nb import BSP, ISP, PMF, SGD, SSP, JobError, ServiceError, TrainingJob, datasets
from mlless_nb.bus import open_bus
from mlless_nb.bus.messages import Failed, Left
from mlless_nb.exchange import Aborted, RedisCoordinator
from mlless_nb.exchange.redis.coordinator import connect
from mlless_nb.exchange.stores import (
    DynamoDBStore,
    FrameStore,
    MemcachedStore,
    ServerStore,
    StorageStore,
    Usage,
    check_store,
    open_store,
    prepaid_nusd,
)
from mlless_nb.job.sync import Sync
from mlless_nb.money import Rates, price_profile
from mlless_nb.money.budget import Prepaid
from mlless_nb.storage.objects import LithopsObjects, MemoryObjects, ObjectStore
from mlless_nb.worker.loop import Worker

RATES = Rates(price_profile("aws-lambda-x86"), 2048)
#: A frame that takes several items of DynamoDB and of memcached.
LARGE = bytes(range(256)) * 9000 + b"end"


@dataclass
class Place:
    """A store as a job names it, the object storage beside it, and what is left of a job in it."""

    store: str
    objects: ObjectStore
    left: Callable[[str], list[str]]

    def open(self, job_id: str) -> FrameStore:
        """The store of a job, ready for frames."""
        store = self.connect(job_id)
        store.check()
        store.create()
        return store

    def connect(self, job_id: str) -> FrameStore:
        """The store of a job as another process of it opens it."""
        store = open_store(self.store, f"mlless:{job_id}:", self.objects)
        assert store is not None
        return store


@pytest.fixture(
    params=["dict", "storage", pytest.param("s3", marks=pytest.mark.long), "memcached", "dynamodb", "server"]
)
def place(request: pytest.FixtureRequest, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A store on a server of its own; nothing but what a test wrote is in it."""
    if request.param == "dict":
        return Place("dict", MemoryObjects(), lambda job_id: [key for key in DictStore.kept if job_id in key])
    if request.param == "memcached":
        url = request.getfixturevalue("memcached_url")
        return Place(url, MemoryObjects(), lambda job_id: [key for key in listed(url) if job_id in key])
    if request.param == "server":
        url = request.getfixturevalue("frame_server").url
        return Place(url, MemoryObjects(), lambda job_id: kept_on(url, f"mlless:{job_id}:"))
    if request.param == "dynamodb":
        client = request.getfixturevalue("dynamodb")
        return Place("dynamodb", MemoryObjects(), lambda job_id: client.list_tables()["TableNames"])
    import lithops
    from lithops.storage.backends.localhost import localhost

    if request.param == "s3":
        request.getfixturevalue("s3")
        config = S3_BACKEND
    else:
        monkeypatch.setattr(localhost, "LITHOPS_TEMP_DIR", str(tmp_path))
        config = {"lithops": {"backend": "localhost", "storage": "localhost"}}
    objects = LithopsObjects(lithops.Storage(config=config), "mlless-nb-test/")
    return Place("storage", objects, lambda job_id: objects.list(f"runs/{job_id}/"))


def listed(url: str) -> list[str]:
    """The keys of all items on a memcached."""
    store = open_store(url, "mlless:", MemoryObjects())
    assert isinstance(store, MemcachedStore)
    keys = [key.decode() for server in store._servers for key in server.names()]
    store.close()
    return keys


def kept_on(url: str, prefix: str) -> list[str]:
    """The first frames of a job that are on a frame server."""
    store = open_store(url, prefix, MemoryObjects())
    assert store is not None
    keys = [f"{prefix}frame:{round_id}:{slot}{to}" for round_id in "12" for slot in "012" for to in ("", ">0")]
    keys.append(f"{prefix}frame:7m:7>7")
    kept = [key for key, frame in zip(keys, store.get_many(keys), strict=True) if frame is not None]
    store.close()
    return kept


@pytest.fixture
def job_id(place: Place) -> Iterator[str]:
    """A job of which nothing may be left in the store."""
    name = uuid.uuid4().hex
    yield name
    assert place.left(name) == []


@pytest.fixture
def store(place: Place, job_id: str) -> Iterator[FrameStore]:
    """The store of one job."""
    opened = place.open(job_id)
    yield opened
    opened.clear()
    opened.close()


# -- frames


def test_what_is_put_is_got_by_any_process_in_the_order_of_the_keys(
    place: Place, store: FrameStore, job_id: str
) -> None:
    frames = {f"mlless:{job_id}:frame:{number}m:{number}>7": bytes([number]) * number for number in range(40)}
    store.put_many(frames)
    store.put_many({key: frames[key] for key in list(frames)[:3]})  # a repeated request
    other, keys = place.connect(job_id), list(frames)[::-1]
    found = other.get_many([f"mlless:{job_id}:frame:40:0", *keys])
    assert found[0] is None
    assert [bytes(frame) for frame in found[1:] if frame is not None] == [frames[key] for key in keys]
    assert other.get_many([]) == []
    assert place.left(job_id)
    assert other.clear() > 0
    assert place.left(job_id) == []
    assert other.clear() == 0
    other.close()
    other.close()


def test_a_frame_replaces_an_older_one_of_any_size(store: FrameStore, job_id: str) -> None:
    key = f"mlless:{job_id}:frame:model:0"
    for n in (len(LARGE), 10, 400_000, 0, len(LARGE), 500):
        store.put_many({key: LARGE[-n:] if n else b""})
        (found,) = store.get_many([key])
        assert found is not None
        assert bytes(found) == (LARGE[-n:] if n else b""), n


def test_a_frame_of_any_size_is_whole(store: FrameStore, job_id: str) -> None:
    frames = {f"mlless:{job_id}:frame:1:{slot}": LARGE[:n] for slot, n in enumerate((0, 1, 400_000, len(LARGE)))}
    store.put_many(frames)
    found = store.get_many(list(frames))
    assert [frame is not None and bytes(frame) == frames[key] for key, frame in zip(frames, found, strict=True)] == [
        True
    ] * 4
    usage = store.usage()
    n_bytes = sum(map(len, frames.values()))
    assert (usage.n_puts, usage.n_gets, usage.put_bytes, usage.got_bytes) == (4, 4, n_bytes, n_bytes)
    store.delete_many([*frames, f"mlless:{job_id}:frame:9:9"])
    if not isinstance(store, DynamoDBStore):  # which drops its table instead
        assert store.get_many(list(frames)) == [None] * 4


def test_jobs_do_not_see_each_other(place: Place, store: FrameStore, job_id: str) -> None:
    other = place.open(other_id := uuid.uuid4().hex)
    store.put_many({f"mlless:{job_id}:frame:1:0": b"ours"})
    other.put_many({f"mlless:{other_id}:frame:1:0": b"theirs"})
    assert other.clear() > 0
    (ours,) = store.get_many([f"mlless:{job_id}:frame:1:0"])
    assert ours is not None
    assert bytes(ours) == b"ours"
    other.close()


# -- rounds


@dataclass
class Members:
    """The coordinators of the driver and of three workers."""

    driver: RedisCoordinator
    workers: list[RedisCoordinator]


@pytest.fixture
def members(place: Place, redis_url: str, job_id: str) -> Iterator[Members]:
    """A job of three; nothing of it may be left on Redis."""

    def open_log(nonce: str) -> RedisCoordinator:
        return RedisCoordinator([redis_url], job_id, "1", nonce, place.connect(job_id))

    driver = open_log("driver")
    driver.create(cap_nusd=None, reserved_nusd=0)
    workers = [open_log(f"nonce {slot}") for slot in range(3)]
    assert all(log.claim(slot) for slot, log in enumerate(workers))
    yield Members(driver, workers)
    driver.delete()
    for log in (driver, *workers):
        log.close()
    assert not list(connect(redis_url).scan_iter(f"mlless:{job_id}:*"))


def lose(place: Place, job_id: str, key: str) -> None:
    """Remove one frame, as a server does that is full or was restarted."""
    store = place.connect(job_id)
    if isinstance(store, DynamoDBStore):
        store._client.delete_item(TableName=store._table, Key={"k": {"S": key}})
    else:
        store.delete_many([key])
    assert store.get_many([key]) == [None]
    store.close()


def test_a_lost_frame_ends_the_round_with_the_reason(place: Place, members: Members, job_id: str) -> None:
    for slot, log in enumerate(members.workers):
        log.publish(part(1, slot))
    lose(place, job_id, f"mlless:{job_id}:frame:1:2")
    with pytest.raises(Aborted, match=r"the update of worker 2 in round 1 is gone from \w+"):
        members.workers[0].frames(part(1, 0))


def test_a_lost_frame_ends_the_wait_for_any(place: Place, members: Members, job_id: str) -> None:
    """With bounded staleness nobody says that a frame is there: who waits finds out that its publisher has arrived."""
    ours, theirs, _ = members.workers
    ours.publish(part(1, 0))
    waiting: list[bytes] = []
    sought = [("1", 1), ("1", 2)]
    thread = threading.Thread(
        target=lambda: waiting.append(bytes(ours.wait_for_any(part(1, 0), sought, int)[0] or b""))
    )
    thread.start()
    theirs.publish(part(1, 1))
    thread.join(60)
    assert waiting == [b"1 of 1"]
    lose(place, job_id, f"mlless:{job_id}:frame:1:1")
    with pytest.raises(Aborted, match=r"the update of worker 1 in round 1 is gone from \w+"):
        ours.wait_for_any(part(1, 0), sought, int)


def test_a_frame_that_is_too_large_is_refused_by_its_size(
    place: Place, members: Members, monkeypatch: pytest.MonkeyPatch, job_id: str
) -> None:
    kind = type(place.connect(job_id))
    monkeypatch.setattr(kind, "max_frame_bytes", 1000)
    with pytest.raises(ServiceError, match=f"a frame of 1001 bytes: {kind.__name__} takes at most 1000"):
        members.workers[0].publish(replace(part(1, 0), frame=bytes(1001)))
    assert place.left(job_id) == [] or kind is DynamoDBStore
    members.workers[0].publish(replace(part(1, 0), frame=bytes(1000)))
    assert place.left(job_id)


# -- runs


def train(job: Job, redis_url: str, place: Place, job_id: str) -> tuple[list[Worker], list[Left]]:
    """Train with a thread a worker, and check that Redis sees no frame of it; the workers, and their last words."""
    prefix = f"mlless:{job_id}:"

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


# -- what it costs


def test_requests_to_the_object_storage_are_counted_once() -> None:
    objects = MemoryObjects()
    store = StorageStore("mlless:job:", objects)
    store.put_many({"mlless:job:frame:1:0": b"frame", "mlless:job:frame:1:0>2": b"part"})
    store.get_many(["mlless:job:frame:1:0", "mlless:job:frame:1:1"])
    assert sorted(objects.blobs) == ["runs/job/frames/0/1-0", "runs/job/frames/0/1-0-2"]
    assert (objects.gets, objects.puts) == (2, 2)
    assert store.cost_nusd(RATES) == 0
    assert store.price_nusd(store.usage(), RATES) == RATES.requests_nusd(2, 2)
    store.close()


def test_half_an_object_is_no_frame() -> None:
    objects = MemoryObjects()
    store = StorageStore("mlless:job:", objects)
    store.put_many({"mlless:job:frame:1:0": bytes(100)})
    blob = objects.get("runs/job/frames/0/1-0")
    for n_bytes in range(len(blob)):
        objects.put("runs/job/frames/0/1-0", blob[:n_bytes])
        assert store.get_many(["mlless:job:frame:1:0"]) == [None]


def test_units_of_dynamodb_are_those_of_its_price_list(dynamodb: Any) -> None:
    store = DynamoDBStore("mlless:job:", MemoryObjects())
    store.create()
    key = "mlless:job:frame:1:0"
    store.put_many({key: bytes(100)})
    assert store.usage().write_units == 1
    store.get_many([key, "mlless:job:frame:1:1"])
    assert store.usage().read_units == 2  # a read that finds nothing is one, too
    store.put_many({key: bytes(500_000)})
    # Two items: 400,000 bytes, and the rest; each with its key and the names of its two attributes.
    assert store.usage().write_units == 1 + 391 + 98
    assert store.cost_nusd(RATES) == 490 * 625 + 2 * 125
    store.clear()
    store.close()


def test_what_is_kept_for_the_end_grows_with_the_table_where_bytes_are_billed() -> None:
    assert prepaid_nusd("redis", RATES, 4, 10**6) == prepaid_nusd("storage", RATES, 1, 10**6) == 0
    assert prepaid_nusd("memcached://here", RATES, 4, 10**6) == 0
    assert prepaid_nusd("storage", RATES, 4, 10**6) == prepaid_nusd("storage", RATES, 4, 10**9) > 0
    assert prepaid_nusd("dynamodb", RATES, 4, 10**9) > 500 * prepaid_nusd("dynamodb", RATES, 4, 10**6) > 0


def test_usage_is_priced_by_requests() -> None:
    assert StorageStore.price_nusd(Usage(n_puts=2, n_gets=3, n_deletes=9), RATES) == 2 * 5000 + 3 * 400
    assert DynamoDBStore.price_nusd(Usage(write_units=2, read_units=3), RATES) == 2 * 625 + 3 * 125
    assert MemcachedStore.price_nusd(Usage(n_puts=2), RATES) == ServerStore.price_nusd(Usage(n_puts=2), RATES) == 0


# -- memcached


def test_a_full_memcached_ends_the_run_and_loses_nothing_silently(memcached_program: str, tmp_path: Any) -> None:
    server = MemcachedProcess(memcached_program, tmp_path, "-m", "8")
    server.start()
    store = open_store(server.url, "mlless:job:", MemoryObjects())
    assert store is not None
    keys = [f"mlless:job:frame:{number}:0" for number in range(40)]
    for key in keys:
        store.put_many({key: bytes(1_000_000)})
    found = store.get_many(keys)
    assert None in found
    assert all(frame is None or len(frame) == 1_000_000 for frame in found)
    server.kill()
    with pytest.raises(ServiceError, match=r"memcached at 127.0.0.1:\d+ does not answer"):
        store.get_many(keys)
    store.close()


def test_a_memcached_that_refuses_to_evict_refuses_the_frame(memcached_program: str, tmp_path: Any) -> None:
    server = MemcachedProcess(memcached_program, tmp_path, "-m", "8", "-M")
    server.start()
    store = open_store(server.url, "mlless:job:", MemoryObjects())
    assert store is not None
    frames = {f"mlless:job:frame:{number}:0": bytes(1_000_000) for number in range(40)}
    with pytest.raises(ServiceError, match=r"memcached at 127.0.0.1:\d+ .*([Oo]ut of memory|is it full)"):
        store.put_many(frames)
    store.close()
    server.kill()


def test_frames_are_spread_over_several_servers(memcached_url: str, memcached_program: str, tmp_path: Any) -> None:
    other = MemcachedProcess(memcached_program, tmp_path)
    other.start()
    both = f"{memcached_url},127.0.0.1:{other.port}"
    store = open_store(both, "mlless:job:", MemoryObjects())
    assert store is not None
    frames = {f"mlless:job:frame:{number}:0": bytes([number]) for number in range(30)}
    store.put_many(frames)
    assert [bytes(frame or b"lost") for frame in store.get_many(list(frames))] == list(frames.values())
    n_here, n_there = len(listed(memcached_url)), len(listed(other.url))
    assert n_here + n_there == 30
    assert min(n_here, n_there) > 5
    assert store.clear() == 30
    store.close()
    other.kill()


# -- what a job may say


def make(**changes: Any) -> TrainingJob:
    return TrainingJob(PMF(rank=2), SGD(1.0), datasets.synthetic_ratings(40, 30, 500), **changes)


@pytest.mark.parametrize(
    ("store", "valid"),
    [
        ("memcache", "one of 'redis', 'dict', 'dynamodb', 'memcached://host:11211', 'server://:"),
        (None, "one of 'redis', "),
        (["storage"], "one of 'redis', "),
        ("memcached", "'memcached://host:11211', or several servers"),
        ("memcached://", "'memcached://host:11211', or several servers"),
        ("memcached://localhost:port", "'memcached://host:11211', or several servers"),
        ("memcached://localhost,", "'memcached://host:11211', or several servers"),
        ("memcached://localhost/0", "'memcached://host:11211', or several servers"),
        ("memcached://10.0.0.7", "on this machine, or set insecure=True"),
        ("storage://bucket", "'storage' without an address"),
        ("dynamodb://", "'dynamodb', or with a region"),
        ("dynamodb://frankfurt", "'dynamodb', or with a region"),
        ("server", "'server://:token@host:7337/fingerprint', as `python -m mlless_nb.server` says"),
        ("server://localhost", "'server://:token@host:7337/fingerprint', as `python -m mlless_nb.server` says"),
        ("server://:token@localhost/abc", "'server://:token@host:7337/fingerprint', as `python"),
        ("server://:token@10.0.0.7", "on this machine, or set insecure=True"),
    ],
)
def test_a_wrong_store_is_refused_in_one_line(store: Any, valid: str) -> None:
    with pytest.raises(JobError) as caught:
        make(store=store)
    assert caught.value.field == "store"
    assert valid in caught.value.valid
    assert "\n" not in str(caught.value)


def test_the_forms_of_a_store_that_are_valid() -> None:
    for store in ("storage", "memcached://localhost", "memcached://[::1]:11212,127.0.0.1", "dynamodb://eu-central-1"):
        assert make(store=store).store == store
    assert make(store="memcached://10.0.0.7", insecure=True).store == "memcached://10.0.0.7"


def test_a_store_whose_package_is_missing_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemcachedStore, "package", "pymemcache_that_is_missing")
    with pytest.raises(JobError, match=r"pymemcache_that_is_missing is not: pip install 'mlless_nb\[memcached\]'"):
        make(store="memcached://localhost")


def test_a_store_without_a_price_is_refused() -> None:
    with pytest.raises(JobError, match="prices='ibm-paper': must be one with a price of dynamodb: 'aws-lambda-x86'"):
        make(store="dynamodb", prices="ibm-paper")
    assert make(store="memcached://localhost", prices="ibm-paper").prices == "ibm-paper"


def test_a_model_that_is_larger_than_a_frame_may_be_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StorageStore, "max_frame_bytes", 500)
    with pytest.raises(JobError, match=r"store='storage': must be one that takes frames of \d+ bytes .* at most 500"):
        make(store="storage", workers=2, minibatch=100)
    assert make(store="storage", workers=1, minibatch=100).workers == 1


def test_secrets_of_an_address_are_not_shown() -> None:
    for store in ("memcached://:planted-secret@host", "server://:planted-secret@host/abc", "serve://:planted-secret@a"):
        with pytest.raises(JobError) as caught:
            check_store(store)
        assert "planted-secret" not in str(caught.value)
    job = make(store=f"server://:planted-secret@10.0.0.7/{'0' * 64}")
    assert "planted-secret" not in repr(job)
    assert "store='server://:***@10.0.0.7/" in repr(job)


def test_a_store_that_does_not_answer_is_refused_before_anything_is_launched() -> None:
    store = open_store("memcached://127.0.0.1:1", "mlless:job:", MemoryObjects())
    assert store is not None
    with pytest.raises(ServiceError, match=r"memcached at 127\.0\.0\.1:1 does not answer"):
        store.check()
