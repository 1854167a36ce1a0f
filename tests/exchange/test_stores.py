"""One contract for all frame stores, on real servers: nothing is lost, mixed up or left, and all of it is billed."""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
from exchange.places import Place
from exchange.test_coordinator import part

from mlless_nb import ServiceError
from mlless_nb.exchange import Aborted, RedisCoordinator
from mlless_nb.exchange.factory import leave
from mlless_nb.exchange.protocol import key_prefix
from mlless_nb.exchange.redis.client import connect
from mlless_nb.exchange.stores import (
    DynamoDBStore,
    FrameStore,
    MemcachedStore,
    ServerStore,
    StorageStore,
    Usage,
    for_functions,
    prepaid_nusd,
)
from mlless_nb.money import Rates, price_profile
from mlless_nb.storage.objects import MemoryObjects

RATES = Rates(price_profile("aws-lambda-x86"), 2048)
#: A frame that takes several items of DynamoDB and of memcached.
LARGE = bytes(range(256)) * 9000 + b"end"


# -- frames


def test_what_is_put_is_got_by_any_process_in_the_order_of_the_keys(
    place: Place, store: FrameStore, job_id: str
) -> None:
    frames = {f"mlless:{{{job_id}}}:frame:{number}m:{number}>7": bytes([number]) * number for number in range(40)}
    store.put_many(frames)
    store.put_many({key: frames[key] for key in list(frames)[:3]})  # a repeated request
    other, keys = place.connect(job_id), list(frames)[::-1]
    found = other.get_many([f"mlless:{{{job_id}}}:frame:40:0", *keys])
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
    key = f"mlless:{{{job_id}}}:frame:model:0"
    for n in (len(LARGE), 10, 400_000, 0, len(LARGE), 500):
        store.put_many({key: LARGE[-n:] if n else b""})
        (found,) = store.get_many([key])
        assert found is not None
        assert bytes(found) == (LARGE[-n:] if n else b""), n


def test_a_frame_of_any_size_is_whole(store: FrameStore, job_id: str) -> None:
    frames = {f"mlless:{{{job_id}}}:frame:1:{slot}": LARGE[:n] for slot, n in enumerate((0, 1, 400_000, len(LARGE)))}
    store.put_many(frames)
    found = store.get_many(list(frames))
    assert [frame is not None and bytes(frame) == frames[key] for key, frame in zip(frames, found, strict=True)] == [
        True
    ] * 4
    usage = store.usage()
    n_bytes = sum(map(len, frames.values()))
    assert (usage.n_puts, usage.n_gets, usage.put_bytes, usage.got_bytes) == (4, 4, n_bytes, n_bytes)
    store.delete_many([*frames, f"mlless:{{{job_id}}}:frame:9:9"])
    if not isinstance(store, DynamoDBStore):  # which drops its table instead
        assert store.get_many(list(frames)) == [None] * 4


def test_jobs_do_not_see_each_other(place: Place, store: FrameStore, job_id: str) -> None:
    other = place.open(other_id := uuid.uuid4().hex)
    store.put_many({f"mlless:{{{job_id}}}:frame:1:0": b"ours"})
    other.put_many({f"mlless:{{{other_id}}}:frame:1:0": b"theirs"})
    assert other.clear() > 0
    (ours,) = store.get_many([f"mlless:{{{job_id}}}:frame:1:0"])
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
    assert not list(connect(redis_url).scan_iter(f"mlless:{{{job_id}}}:*"))


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
    lose(place, job_id, f"mlless:{{{job_id}}}:frame:1:2")
    with pytest.raises(Aborted, match=r"the update of worker 2 in round 1 is gone from \w+"):
        members.workers[0].frames(part(1, 0))


def test_a_lost_frame_ends_the_wait_for_any(place: Place, members: Members, job_id: str) -> None:
    """With bounded staleness nobody says that a frame is there: who waits finds out that its publisher has arrived."""
    ours, theirs, _ = members.workers
    ours.publish(part(1, 0))
    waiting: list[bytes] = []
    keys = [("1", 1), ("1", 2)]
    thread = threading.Thread(target=lambda: waiting.append(bytes(ours.wait_for_any(part(1, 0), keys, int)[0] or b"")))
    thread.start()
    theirs.publish(part(1, 1))
    thread.join(60)
    assert waiting == [b"1 of 1"]
    lose(place, job_id, f"mlless:{{{job_id}}}:frame:1:1")
    with pytest.raises(Aborted, match=r"the update of worker 1 in round 1 is gone from \w+"):
        ours.wait_for_any(part(1, 0), keys, int)


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


def test_frames_of_a_lost_driver_go_with_the_supervisor(
    place: Place, members: Members, redis_url: str, job_id: str
) -> None:
    """Redis lets its keys expire; other stores keep frames, and some are billed for them."""
    supervisor = RedisCoordinator([redis_url], job_id, "1", "supervisor")
    for slot, log in enumerate(members.workers):
        log.publish(part(1, slot))
    members.driver.renew("driver", 60.0)
    leave(supervisor, job_id, place.store, place.objects)
    assert place.left(job_id)
    members.driver.bury("driver")
    leave(supervisor, job_id, place.store, place.objects)
    assert place.left(job_id) == []
    supervisor.close()


# -- the table of DynamoDB


def test_a_table_has_a_name_that_dynamodb_takes(dynamodb: Any) -> None:
    """The emulator takes any; the pattern is that of AWS' own description of the service."""
    store = DynamoDBStore(key_prefix("20261126-120000-0a1b2c3d"), MemoryObjects())
    store.create()
    (name,) = dynamodb.list_tables()["TableNames"]
    pattern = dynamodb.meta.service_model.shape_for("TableName").metadata["pattern"]
    assert re.fullmatch(pattern, name)
    assert name == "mlless-20261126-120000-0a1b2c3d"
    store.clear()
    store.close()


def test_functions_are_told_in_which_region_the_table_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """They may run in another one than the notebook's."""
    monkeypatch.setattr("boto3.DEFAULT_SESSION", None)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    assert for_functions("dynamodb", "mlless:{job}:") == "dynamodb://eu-west-1"
    assert for_functions("dynamodb://us-east-2", "mlless:{job}:") == "dynamodb://us-east-2"
    assert for_functions("storage", "mlless:{job}:") == "storage"
    monkeypatch.setenv("AWS_DEFAULT_REGION", "local")  # of a server of one's own
    assert for_functions("dynamodb", "mlless:{job}:") == "dynamodb"
    monkeypatch.setenv("AWS_PROFILE", "one-that-is-not-there")
    assert for_functions("dynamodb", "mlless:{job}:") == "dynamodb"  # the store's check says what is wrong


class Slow:
    """DynamoDB makes and drops a table within some seconds, in which it refuses to do the other; moto does so at once.

    Parameters
    ----------
    client : boto3 client
    state : str
        That of the table: "", "CREATING", "ACTIVE" or "DELETING".
    """

    def __init__(self, client: Any, state: str) -> None:
        self._client, self.state = client, state

    def _answer(self, method: str, code: str = "ResourceInUseException") -> Any:
        raise self._client.exceptions.ClientError({"Error": {"Code": code, "Message": "Table"}}, method)

    def create_table(self, **_: Any) -> None:
        if self.state:
            self._answer("CreateTable")
        self.state = "CREATING"

    def delete_table(self, **_: Any) -> None:
        if self.state != "ACTIVE":
            self._answer("DeleteTable", "ResourceInUseException" if self.state else "ResourceNotFoundException")
        self.state = "DELETING"

    def describe_table(self, **_: Any) -> dict[str, dict[str, str]]:
        return {"Table": {"TableStatus": self.state}}

    def get_waiter(self, name: str) -> Any:
        def wait(**_: Any) -> None:
            assert (name == "table_not_exists") == (self.state == "DELETING")
            self.state = "ACTIVE" if name == "table_exists" else ""

        return SimpleNamespace(wait=wait)


def test_a_table_is_made_again_where_the_one_before_is_being_dropped(dynamodb: Any) -> None:
    """So does a run whose data on Redis was lost; a request that was repeated finds its own table."""
    store = DynamoDBStore("mlless:{job}:", MemoryObjects())
    for state in ("", "DELETING", "ACTIVE"):
        store._made = Slow(dynamodb, state)
        store.create()
        assert store._made.state == "ACTIVE", state


def test_a_table_that_is_being_made_is_dropped(dynamodb: Any) -> None:
    store = DynamoDBStore("mlless:{job}:", MemoryObjects())
    for state in ("CREATING", "ACTIVE"):
        store._made = Slow(dynamodb, state)
        assert store.clear() == 1
        assert store._made.state == "DELETING", state
    store._made = Slow(dynamodb, "")
    assert store.clear() == 0


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
