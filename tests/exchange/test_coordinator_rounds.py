"""The coordinator's addressed rounds, further rounds of a step, and what is left behind, on every backend."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import replace

import pytest
import redis
from exchange.dict_store import DictStore
from exchange.test_coordinator import ALL, NOTHING, Make, copied, make, part, publish, three  # noqa: F401 - a fixture

from mlless_nb.exchange import Aborted, Coordinator, MemoryCoordinator, RedisCoordinator, RoundRequest
from mlless_nb.exchange.step_report import Report
from mlless_nb.exchange.storage.coordinator import StorageCoordinator

#: A frame that is sent as it is, and one that is copied together with its command.
SIZES = (200_000, 3)


def scatter(step: int, slot: int, n_bytes: int = 3) -> RoundRequest:
    """An addressed round of three, in which everybody is told who wrote and whom to."""
    parts = {peer: b"%d>%d" % (slot, peer) * n_bytes for peer in ALL}
    return replace(part(step, slot), frame=b"", parts=parts)


def merged(step: int, slot: int, kind: str = "m") -> RoundRequest:
    """A further round of a step."""
    return replace(
        part(step, slot), round_id=f"{step}{kind}", frame=b"%d%b of %d" % (step, kind.encode(), slot), report=None
    )


def together(logs: list[Coordinator], work: Callable[[int], None]) -> None:
    """``work`` of every slot at once; raises what one of them raises."""
    failures: list[BaseException] = []

    def run(slot: int) -> None:
        try:
            work(slot)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(slot,)) for slot in range(len(logs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    if failures:
        raise failures[0]


def keys_of(log: Coordinator) -> list[str]:
    """Every key that the log has, without the job's name; in memory: frames and arrivals."""
    if isinstance(log, MemoryCoordinator):
        frames = [f"frame:{round_id}:{slot}" for round_id, slot, _ in log._hub.frames]
        return frames + [f"arrivals:{round_id}" for round_id in log._hub.arrivals]
    if isinstance(log, StorageCoordinator):
        names = [key.removeprefix(log._folder) for key in log._store.objects.list(log._folder)]
        rounds = [name.partition("/")[2].replace("-", ":", 1) for name in names if "-" in name]
        others = [name for name in names if "-" not in name]
        return [f"{kind}:{one}" for kind in ("frame", "arrivals") for one in rounds] + others
    assert isinstance(log, RedisCoordinator)
    found = [key for shard in log._shards for key in shard.scan_iter(match=log._prefix + "*")]
    stored = [key for key in DictStore.kept if key.startswith(log._prefix)]
    return [key.removeprefix(log._prefix) for key in [*(key.decode() for key in found), *stored]]


@pytest.mark.parametrize("n_bytes", SIZES)
def test_in_an_addressed_round_everybody_reads_what_is_for_him(make: Make, n_bytes: int) -> None:  # noqa: F811
    logs = three(make)

    def work(slot: int) -> None:
        for step in range(1, 6):
            found = copied(logs[slot].exchange(scatter(step, slot, n_bytes), lambda: None).frames)
            assert found == [b"%d>%d" % (peer, slot) * n_bytes for peer in ALL if peer != slot]
            found = copied(logs[slot].exchange(merged(step, slot), lambda: None).frames)
            assert found == [b"%dm of %d" % (step, peer) for peer in ALL if peer != slot]

    together(logs, work)
    entries = make("reader").read_steps(1.0)
    assert [entry.step for entry in entries] == [1, 2, 3, 4, 5]  # a step is logged once, by its first round


def test_a_round_through_a_leader(make: Make) -> None:  # noqa: F811
    """The leader alone reads the first round and publishes the second; nobody else waits in the first."""
    logs = three(make)

    def work(slot: int) -> None:
        log = logs[slot]
        for step in range(1, 6):
            second = replace(merged(step, slot), publishers=[0])
            if slot == 0:
                found = copied(log.exchange(replace(scatter(step, 0), parts={}), lambda: None).frames)
                assert found == [b"1>0" * 3, b"2>0" * 3]
                log.publish(second)
            else:
                log.publish(replace(scatter(step, slot), parts={0: b"%d>0" % slot * 3}))
                log.wait(second, lambda: None)
                assert copied(log.frames(second)) == [b"%dm of 0" % step]

    together(logs, work)
    entries = make("reader").read_steps(1.0)
    assert [(entry.step, sorted(entry.reports)) for entry in entries] == [(step, ALL) for step in range(1, 6)]


def test_an_addressed_round_in_parts_for_one_who_only_reads(make: Make) -> None:  # noqa: F811
    logs = three(make)
    giving = [replace(scatter(3, slot), round_id="3r", publishers=[0, 1], waiters=[2], report=None) for slot in (0, 1)]
    taking = replace(giving[0], slot=2, parts={})
    assert not logs[0].publish(giving[0]).is_complete
    assert logs[1].publish(giving[1]).is_complete
    logs[2].wait(taking, lambda: None)
    assert copied(logs[2].frames(taking)) == [b"0>2" * 3, b"1>2" * 3]
    # Said again, also by somebody who has something else to say, it changes nothing.
    assert logs[0].publish(replace(giving[0], parts={2: b"another"})).is_complete
    assert copied(logs[2].frames(taking)) == [b"0>2" * 3, b"1>2" * 3]


def test_a_part_that_is_gone_ends_the_round(make: Make) -> None:  # noqa: F811
    logs = three(make)
    for slot in ALL:
        incomplete = scatter(1, slot)
        if slot == 1:
            incomplete = replace(incomplete, parts={0: b"for 0 only"})
        logs[slot].publish(incomplete)
    assert copied(logs[0].frames(scatter(1, 0))) == [b"for 0 only", b"2>0" * 3]
    with pytest.raises(Aborted, match="worker 1 in round 1 is gone"):
        logs[2].frames(scatter(1, 2))


def test_rounds_of_two_steps_before_are_dropped_whatever_their_kind(make: Make) -> None:  # noqa: F811
    logs = three(make)
    for step in range(1, 8):
        for slot in ALL:
            logs[slot].publish(scatter(step, slot) if step % 2 else part(step, slot))
        for kind in "mrc":
            for slot in ALL:
                logs[slot].publish(merged(step, slot, kind))
    kept = {key.split(":")[1].rstrip("mrc") for key in keys_of(logs[0]) if key.startswith(("frame", "arrivals"))}
    assert kept == {"6", "7"}
    logs[0].delete()
    assert keys_of(logs[0]) == []


def test_every_key_ends_by_itself_when_nobody_removes_it(make: Make) -> None:  # noqa: F811
    logs = three(make)
    log = logs[0]
    if not isinstance(log, RedisCoordinator):
        pytest.skip("memory ends with its process")
    log.renew("supervisor", 5.0)
    for step in (1, 2):
        for slot in ALL:
            logs[slot].publish(scatter(step, slot))
        for slot in ALL:
            logs[slot].publish(merged(step, slot))
    log.abort("over", 3)
    for shard in log._shards:
        assert all(shard.pttl(key) > 0 for key in shard.scan_iter(match=log._prefix + "*"))


def test_a_worker_alone_publishes_for_nobody_and_hears_of_an_abort(make: Make) -> None:  # noqa: F811
    log = make("nonce 0")
    assert log.claim(0)
    alone = replace(part(1, 0), publishers=[0], waiters=[0])
    done = log.exchange(alone, lambda: None)
    assert done.arrival.is_complete
    assert done.frames == []
    make("supervisor").abort("enough of it", 1, "stopped")
    with pytest.raises(Aborted, match="enough of it") as error:
        log.exchange(replace(alone, round_id="2", step=2), lambda: None)
    assert error.value.status == "stopped"


def test_the_last_to_arrive_hears_of_an_abort(make: Make) -> None:  # noqa: F811
    logs = three(make)
    publish(logs[0], 1, 0)
    publish(logs[1], 1, 1)
    make("supervisor").abort("too late", 3)
    with pytest.raises(Aborted, match="too late"):
        logs[2].exchange(part(1, 2), lambda: None)
    assert not any(key.startswith("steps") for key in keys_of(logs[0]))


def test_an_abort_wakes_those_who_exchange(make: Make) -> None:  # noqa: F811
    logs = three(make)[:2]

    def work(slot: int) -> None:
        with pytest.raises(Aborted, match="worker 2 was lost"):
            logs[slot].exchange(replace(part(1, slot), deadline_s=60.0), lambda: None)

    timer = threading.Timer(0.1, lambda: make("supervisor").abort("worker 2 was lost", 3))
    timer.start()
    together(logs, work)
    timer.join()


def test_connections_that_are_lost_over_and_over_lose_nothing(make: Make) -> None:  # noqa: F811
    logs = three(make)
    if not isinstance(logs[0], RedisCoordinator):
        pytest.skip("memory has no connections")
    killer, done = client_like(logs[0]), threading.Event()
    pause_s = pause_between_kills_s(killer)

    def kill() -> None:
        while not done.wait(pause_s):
            killer.client_kill_filter(_type="normal", skipme=True)

    thread = threading.Thread(target=kill)
    thread.start()

    def work(slot: int) -> None:
        for step in range(1, 60):
            found = copied(logs[slot].exchange(scatter(step, slot, SIZES[0] // 10), lambda: None).frames)
            assert found == [b"%d>%d" % (peer, slot) * (SIZES[0] // 10) for peer in ALL if peer != slot]
            copied(logs[slot].exchange(merged(step, slot), lambda: None).frames)
            time.sleep(0.005)

    try:
        together(logs, work)
    finally:
        done.set()
        thread.join()
        killer.close()
    assert [entry.step for entry in make("reader").read_steps(1.0)] == list(range(1, 60))


def pause_between_kills_s(killer: redis.Redis) -> float:
    """Time enough to open a connection again, which with TLS takes long on a busy machine."""
    began = time.monotonic()
    killer.ping()
    return max(0.1, 10 * (time.monotonic() - began))


def client_like(log: RedisCoordinator) -> redis.Redis:
    """Another connection to the log's first server, with its password and TLS."""
    pool = log._redis.connection_pool
    return redis.Redis(
        connection_pool=redis.ConnectionPool(connection_class=pool.connection_class, **pool.connection_kwargs)
    )


def test_a_script_that_the_server_forgot_is_loaded_again(make: Make) -> None:  # noqa: F811
    logs = three(make)
    publish(logs[0], 1, 0)
    if isinstance(logs[0], RedisCoordinator):
        logs[0]._redis.script_flush()
    publish(logs[1], 1, 1)
    assert publish(logs[2], 1, 2, NOTHING).is_complete


@pytest.mark.redis
@pytest.mark.parametrize("n_workers", [2000, 2001, 5000])  # what one entry of the log holds, one more, several
def test_the_reports_of_thousands_of_workers_come_together(redis_url: str, n_workers: int) -> None:
    job_id = uuid.uuid4().hex
    log, reader = (RedisCoordinator([redis_url], job_id, "generation", "nonce") for _ in range(2))
    log.create(cap_nusd=None, reserved_nusd=0)
    slots = list(range(n_workers))
    log._redis.mset({f"{log._prefix}claim:{slot}": "nonce" for slot in slots})
    one = replace(part(1, 0), publishers=slots, waiters=[])
    # Most have arrived already, by what an arrival leaves: each on its own would take a second.
    reports = {slot: Report(position=slot).encode() for slot in slots[:-10]}
    log._redis.hset(f"{log._prefix}arrivals:1", mapping=reports)

    arrivals = [log.publish(replace(one, slot=slot, report=Report(position=slot))) for slot in slots[-10:]]
    steps = reader.read_steps(1.0)

    assert [arrival.is_complete for arrival in arrivals] == [False] * 9 + [True]
    assert [(entry.step, entry.reports) for entry in steps] == [(1, {slot: Report(position=slot) for slot in slots})]
    log.delete()
    for opened in (log, reader):
        opened.close()
