"""Requests for money are safe to repeat: an answer that was lost on its way is not paid for twice."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis
from exchange.test_coordinator import local_objects, over, part
from exchange.test_coordinator_rounds import together
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlless_nb.exchange import Coordinator, MemoryCoordinator, MemoryHub, RedisCoordinator
from mlless_nb.exchange.storage.coordinator import StorageCoordinator
from mlless_nb.money.request import SHARES, BudgetRequest
from mlless_nb.storage.objects import MemoryObjects

CAP, SLOTS = 1000, 3
AMOUNTS = st.integers(1, 400)
#: Few ids, so that many requests are repeats of an earlier one.
IDS = st.sampled_from(["a", "b", "c", "d"])
REQUESTS = st.lists(
    st.one_of(
        st.tuples(st.just("reserve"), IDS, AMOUNTS, AMOUNTS),
        st.tuples(st.just("start"), IDS.map("start {}".format), st.lists(AMOUNTS, min_size=SLOTS, max_size=SLOTS)),
        st.tuples(st.just("claim"), st.integers(0, SLOTS - 1)),
        st.tuples(st.just("cap"), st.integers(0, 2 * CAP)),
    ),
    max_size=30,
)


def answer_of(log: Coordinator, request: tuple[Any, ...]) -> int:
    """What ``log`` answers to a request."""
    what, *rest = request
    if what == "reserve":
        return log.reserve(max(rest[1:]), min(rest[1:]), rest[0])
    if what == "start":
        return log.reserve_start(dict(enumerate(rest[1])), rest[0])
    return log.claim(rest[0]) if what == "claim" else log.set_cap(rest[0])


@pytest.mark.redis
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(requests=REQUESTS)
def test_a_request_counts_once_however_often_it_comes(redis_url: str, requests: list[tuple[Any, ...]]) -> None:
    """What is reserved is the sum over different requests, each is told the same each time, and both twins agree."""
    log, twin = RedisCoordinator([redis_url], uuid.uuid4().hex, "1", "nonce"), MemoryCoordinator(MemoryHub(), "nonce")
    for one in (log, twin):
        one.create(cap_nusd=CAP, reserved_nusd=0)
    answers: dict[str, int] = {}
    started = 0
    for request in requests:
        cap, before = log.money()
        answer = answer_of(log, request)
        assert answer == answer_of(twin, request)
        assert log.money() == twin.money()
        if request[0] in ("claim", "cap"):
            assert log.money()[1] == before
            continue
        is_new = request[1] not in answers
        assert answers.setdefault(request[1], answer) == answer
        taken = log.money()[1] - before
        assert cap is not None
        assert taken == 0 or (is_new and before + taken <= cap)
        if request[0] == "reserve" and is_new:
            assert taken == answer
        started += taken if request[0] == "start" else 0
    granted = sum(answer for request_id, answer in answers.items() if not request_id.startswith("start"))
    assert log.money()[1] == granted + started
    assert [log.start_grant(slot) for slot in range(SLOTS)] == [twin.start_grant(slot) for slot in range(SLOTS)]
    assert sum(log.start_grant(slot) for slot in range(SLOTS)) == started
    log.delete()
    log.close()


@pytest.mark.redis
@pytest.mark.parametrize("n_lost", [1, 2])
def test_an_answer_that_is_lost_takes_no_money(redis_url: str, monkeypatch: pytest.MonkeyPatch, n_lost: int) -> None:
    """The client repeats a request whose answer did not come: the money of the first is what the repeat is told of."""
    log = RedisCoordinator([redis_url], uuid.uuid4().hex, "1", "nonce")
    log.create(cap_nusd=CAP, reserved_nusd=0)
    assert log.reserve(1) == 1  # from here on the server knows the script
    read, lost = redis.connection.Connection.read_response, []

    def lose(self: Any, *args: Any, **kwargs: Any) -> Any:
        reply = read(self, *args, **kwargs)
        if reply in (100 + 400 // SHARES, 1) and len(lost) < n_lost:
            lost.append(reply)
            raise redis.ConnectionError("the answer was lost")
        return reply

    monkeypatch.setattr(redis.connection.Connection, "read_response", lose)
    log.set_cap(501)
    lost.clear()
    assert log.reserve(500, 100) == 100 + 400 // SHARES
    assert len(lost) == n_lost
    assert log.money() == (501, 1 + 100 + 400 // SHARES)
    lost.clear()
    assert log.reserve_start({0: 5, 1: 6})
    assert len(lost) == n_lost
    assert log.start_grant(1) == 6
    assert log.money() == (501, 1 + 100 + 400 // SHARES + 11)
    log.delete()
    log.close()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(requests=REQUESTS)
def test_in_the_object_storage_a_request_counts_once_too(requests: list[tuple[Any, ...]]) -> None:
    """Each request comes twice, to two processes; the storage's answers are those of the memory."""
    objects = MemoryObjects()
    logs = [over(objects, "job", "nonce") for _ in range(2)]
    twin = MemoryCoordinator(MemoryHub(), "nonce")
    logs[0].generation = logs[1].generation = "generation"
    for one in (logs[0], twin):
        one.create(cap_nusd=CAP, reserved_nusd=0)
    for request in requests:
        answer = answer_of(twin, request)
        assert [answer_of(log, request) for log in logs] == [answer, answer]
        assert [log.money() for log in logs] == [twin.money()] * 2
    assert [logs[1].start_grant(slot) for slot in range(SLOTS)] == [twin.start_grant(slot) for slot in range(SLOTS)]


@pytest.mark.parametrize("kind", ["memory", "folder"])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=30)
@given(
    amounts=st.lists(st.lists(st.tuples(AMOUNTS, AMOUNTS), min_size=1, max_size=8), min_size=2, max_size=4),
    cap=st.integers(0, 3000),
)
def test_processes_that_ask_at_once_lose_no_grant_and_never_pass_the_cap(
    kind: str, amounts: list[list[tuple[int, int]]], cap: int, tmp_path: Path
) -> None:
    """Requests, rounds with requests, and returns of every second grant, all at the same time."""
    job_id, shared = uuid.uuid4().hex, MemoryObjects()

    def opened(nonce: str) -> StorageCoordinator:
        return over(shared if kind == "memory" else local_objects(tmp_path), job_id, nonce)

    log = opened("driver")
    log.create(cap_nusd=cap, reserved_nusd=0)
    granted, highest = [0] * len(amounts), [0]

    def work(slot: int) -> None:
        mine = opened(f"nonce {slot}")
        assert mine.claim(slot)
        for number, (one, other) in enumerate(amounts[slot], 1):
            wanted = BudgetRequest(max(one, other), min(one, other))
            if number % 2:
                got = mine.reserve(*wanted, request_id=f"{slot} {number}")
                assert mine.reserve(*wanted, request_id=f"{slot} {number}") == got
            else:
                alone = replace(part(number, slot, wanted), publishers=[slot], waiters=[slot], report=None)
                got = mine.publish(alone).granted_nusd
                assert mine.publish(alone).granted_nusd == got
            granted[slot] += got
            highest[0] = max(highest[0], mine.money()[1])
            if number % 4 == 0:
                mine.refund(got, slot, number)
                granted[slot] -= got

    together([None] * len(amounts), work)  # type: ignore[list-item]
    assert log.money() == (cap, sum(granted))
    assert highest[0] <= cap
    log.delete()
    assert log._storage.objects.list("") == []


def test_requests_without_an_id_are_all_different() -> None:
    """Nothing of one is kept for the next."""
    log = MemoryCoordinator(MemoryHub())
    log.create(cap_nusd=None, reserved_nusd=0)
    assert [log.reserve(5), log.reserve(5)] == [5, 5]
    assert log.money() == (None, 10)
