"""One contract for the coordinator, run on every backend."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from exchange.dict_store import DictStore
from servers import S3_BACKEND

from mlless_nb import redaction
from mlless_nb.exchange import (
    Aborted,
    Arrival,
    Coordinator,
    Frame,
    MemoryCoordinator,
    MemoryHub,
    Plan,
    RedisCoordinator,
    RoundRequest,
)
from mlless_nb.exchange.step_report import Report
from mlless_nb.exchange.storage.coordinator import StorageCoordinator
from mlless_nb.exchange.stores import StorageStore
from mlless_nb.money.request import BudgetRequest
from mlless_nb.storage.conditional import conditional
from mlless_nb.storage.objects import LithopsObjects, MemoryObjects, ObjectStore

Make = Callable[[str], Coordinator]
ALL = [0, 1, 2]
NOTHING = BudgetRequest()


@pytest.fixture(
    params=[
        "memory",
        pytest.param("redis", marks=pytest.mark.redis),
        pytest.param("shards", marks=pytest.mark.redis),
        pytest.param("tls_redis", marks=pytest.mark.long),
        pytest.param("redis_cluster", marks=pytest.mark.long),
        pytest.param("store", marks=pytest.mark.redis),
        "storage",
        "folder",
        pytest.param("s3", marks=pytest.mark.long),
    ]
)
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    """Opens coordinators of one job, each under a nonce."""
    opened: list[Coordinator] = []
    job_id = uuid.uuid4().hex
    if request.param == "memory":
        hub = MemoryHub()

        def open_log(nonce: str) -> Coordinator:
            return MemoryCoordinator(hub, nonce)
    elif request.param in ("storage", "folder", "s3"):
        open_objects = in_storage(request, tmp_path)

        def open_log(nonce: str) -> Coordinator:
            opened.append(over(open_objects(), job_id, nonce))
            return opened[-1]
    else:
        if request.param in ("tls_redis", "redis_cluster"):
            url = request.getfixturevalue("redis_of_kind")(request.param, f"mlless:{{{job_id}}}:")
        else:
            url = request.getfixturevalue("redis_url")
        urls = [url] if request.param != "shards" else [f"{url.rsplit('/', 1)[0]}/0", f"{url.rsplit('/', 1)[0]}/1"]

        def open_log(nonce: str) -> Coordinator:
            store = DictStore(f"mlless:{{{job_id}}}:", MemoryObjects()) if request.param == "store" else None
            opened.append(RedisCoordinator(urls, job_id, "generation", nonce, store))
            return opened[-1]

    log = open_log("driver")
    log.create(cap_nusd=1000, reserved_nusd=100)
    yield open_log
    log.delete()
    for log in opened:
        log.close()  # type: ignore[attr-defined]


def in_storage(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], ObjectStore]:
    """Opens the object storage that the test asks for, each time as another process does."""
    if request.param == "storage":
        objects = MemoryObjects()
        return lambda: objects
    if request.param == "folder":
        return lambda: local_objects(tmp_path)
    import lithops

    request.getfixturevalue("s3")
    return lambda: LithopsObjects(lithops.Storage(config=S3_BACKEND), "mlless-nb-test/")


def local_objects(path: Path) -> LithopsObjects:
    """Lithops' localhost storage in a folder of its own."""
    import lithops
    from lithops.storage.backends.localhost import localhost

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(localhost, "LITHOPS_TEMP_DIR", str(path))
        config = {"lithops": {"backend": "localhost", "storage": "localhost"}}
        return LithopsObjects(lithops.Storage(config=config), "mlless-nb-test/")


def over(objects: ObjectStore, job_id: str, nonce: str) -> StorageCoordinator:
    """A coordinator in an object storage."""
    return StorageCoordinator(conditional(objects), StorageStore(f"mlless:{{{job_id}}}:", objects), "generation", nonce)


def part(
    step: int, slot: int, wanted: BudgetRequest = NOTHING, known_plan: int = 0, deadline_s: float = 10.0
) -> RoundRequest:
    """What slot ``slot`` of three brings to ``step``."""
    frame = f"{step} of {slot}".encode()
    return RoundRequest(
        str(step), step, slot, ALL, ALL, frame, Report(position=slot), wanted, known_plan, 5.0, deadline_s
    )


def publish(log: Coordinator, step: int, slot: int, wanted: BudgetRequest = NOTHING, known_plan: int = 0) -> Arrival:
    return log.publish(part(step, slot, wanted, known_plan))


def copied(frames: list[Frame]) -> list[bytes]:
    """Frames that outlive the next exchange."""
    return [bytes(frame) for frame in frames]


def three(make: Make) -> list[Coordinator]:
    logs = [make(f"nonce {slot}") for slot in ALL]
    assert all(log.claim(slot) for slot, log in enumerate(logs))
    return logs


def test_the_last_to_arrive_completes_the_round_and_wakes_the_others(make: Make) -> None:
    logs = three(make)
    assert not publish(logs[0], 1, 0).is_complete
    assert not publish(logs[1], 1, 1).is_complete
    woken: list[list[bytes]] = []

    def wait(slot: int) -> None:
        logs[slot].wait(part(1, slot), lambda: None)
        woken.append(copied(logs[slot].frames(part(1, slot))))

    threads = [threading.Thread(target=wait, args=(slot,)) for slot in (0, 1)]
    for thread in threads:
        thread.start()
    assert publish(logs[2], 1, 2).is_complete
    for thread in threads:
        thread.join(10)
    assert sorted(woken) == [[b"1 of 0", b"1 of 2"], [b"1 of 1", b"1 of 2"]]


def test_publishing_twice_counts_once(make: Make) -> None:
    logs = three(make)
    assert not publish(logs[0], 1, 0).is_complete
    assert not publish(logs[0], 1, 0).is_complete
    assert not publish(logs[1], 1, 1).is_complete
    assert publish(logs[2], 1, 2).is_complete
    assert publish(logs[2], 1, 2).is_complete
    entries = make("reader").read_steps(1.0)
    assert [(entry.step, entry.reports) for entry in entries] == [(1, {slot: Report(position=slot) for slot in ALL})]


def test_a_second_invocation_of_a_slot_is_fenced(make: Make) -> None:
    three(make)
    twin = make("another nonce")
    assert not twin.claim(1)
    with pytest.raises(Aborted, match="another invocation"):
        publish(twin, 1, 1)


def test_a_grant_is_given_once_and_never_passes_the_cap(make: Make) -> None:
    logs = three(make)
    # Beyond the least of it a sixteenth of what is left: 400, at first.
    assert publish(logs[0], 1, 0, BudgetRequest(600, 500)).granted_nusd == 525
    assert publish(logs[0], 1, 0, BudgetRequest(600, 500)).granted_nusd == 525
    assert logs[0].reserve(75) == 75
    assert logs[0].money() == (1000, 700)
    assert publish(logs[1], 1, 1, BudgetRequest(400, 250)).granted_nusd == 250 + 50 // 16
    assert logs[0].money() == (1000, 953)
    arrival = publish(logs[2], 1, 2, BudgetRequest(400, 100))
    assert arrival.granted_nusd == 0
    assert arrival.plan is not None
    assert (arrival.plan.stop_after, arrival.plan.stop_status) == (2, "capped")
    assert logs[0].money() == (1000, 953)


def test_the_cap_moves_but_not_below_what_is_reserved(make: Make) -> None:
    log = make("driver")
    assert not log.set_cap(99)
    assert log.set_cap(100)
    assert not log.reserve(1)
    assert log.set_cap(150)
    assert log.reserve(51) == 0
    assert log.reserve(50) == 50
    log.refund(20, 0)
    log.refund(20, 0)
    assert log.money() == (150, 130)
    for _ in range(2):
        log.refund(7, 0, 1)
        log.refund(3, 0, 2)
    assert log.money() == (150, 120)


def test_who_has_claimed_a_slot_and_not_settled_its_money_is_at_work(make: Make) -> None:
    log = make("driver")
    assert log.at_work([-1, 0, 1]) == {}
    three(make)
    log.refund(5, 1, 1)
    log.refund(5, 2)
    assert log.at_work([-1, 0, 1, 2]) == {0: "nonce 0", 1: "nonce 1"}
    assert log.at_work([]) == {}
    log.renew("0", 60.0)
    log.bury("0")
    assert log.alive(["0"]) == [False]


def test_the_last_of_the_money_is_dealt_out_in_small_coins(make: Make) -> None:
    log = make("driver")
    taken = [log.reserve(200, 10) for _ in range(200)]
    assert taken[0] == 10 + (1000 - 100 - 10) // 16
    assert taken == sorted(taken, reverse=True)
    assert taken[-1] == 0
    assert 1000 - log.money()[1] < 10
    log.create(cap_nusd=None, reserved_nusd=0)
    assert log.reserve(200, 10) == 200


def test_functions_that_start_late_are_granted_more_until_they_have_begun(make: Make) -> None:
    log, first = make("driver"), make("first")
    assert first.claim(0)
    assert log.reserve_start({0: 300, 1: 200, -1: 100})
    assert log.money() == (1000, 400)
    assert [log.start_grant(slot) for slot in (0, 1, -1)] == [0, 200, 100]
    assert make("second").claim(1)
    assert not log.reserve_start({0: 300, 1: 300, -1: 601})
    assert log.reserve_start({0: 300, 1: 300, -1: 600})
    assert log.money() == (1000, 1000)
    assert [log.start_grant(slot) for slot in (0, 1, -1)] == [0, 200, 700]


def test_a_departure_is_known_to_all_before_it_takes_effect(make: Make) -> None:
    logs = three(make)
    supervisor = make("supervisor")
    publish(logs[0], 4, 0)
    plan = supervisor.announce_leave([2])
    assert plan.leaves == {2: 6}
    # Those who arrived at 4 before the announcement learn of it at 5; nobody starts 6 without having been at 5.
    assert publish(logs[1], 4, 1).plan == plan
    assert publish(logs[0], 5, 0).plan == plan
    assert publish(logs[0], 5, 0, known_plan=plan.version).plan is None
    assert plan.active(5, 3) == [0, 1, 2]
    assert plan.active(6, 3) == [0, 1]
    assert supervisor.announce_leave([2]).leaves == {2: 6}


def test_a_command_removes_workers_once(make: Make) -> None:
    """A supervisor that took over, and did not know of it, removed others."""
    first, second = make("supervisor"), make("another")
    plan = first.announce_leave([2], "a")
    assert second.announce_leave([0, 1], "a") == plan == second.read_plan()
    assert (plan.leaves.keys(), plan.asked) == ({2}, {"a": [2]})
    plan = second.announce_leave([1, 2], "b")
    assert (plan.leaves.keys(), plan.asked) == ({1, 2}, {"a": [2], "b": [1, 2]})
    first.announce_checkpoint()
    assert Plan.decode(first.read_plan().encode()).asked == plan.asked


def test_the_first_stop_stands(make: Make) -> None:
    log = make("supervisor")
    assert log.announce_stop("stopped", "by hand").stop_after == 1
    plan = log.announce_stop("finished", "too late")
    assert (plan.stop_status, plan.stop_reason) == ("stopped", "by hand")


def test_an_abort_ends_the_wait_with_its_reason(make: Make) -> None:
    logs = three(make)
    publish(logs[0], 1, 0)
    make("supervisor").abort("worker 1 was lost", 3)
    with pytest.raises(Aborted, match="worker 1 was lost"):
        logs[0].wait(part(1, 0), lambda: None)


def test_no_secret_of_a_reason_is_written_into_the_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Redis: what a function knows, and quotes in an error, is not for those who read the bucket."""
    monkeypatch.setattr(redaction, "_known", {})
    redaction.remember("planted-secret")
    objects = MemoryObjects()
    log = over(objects, "job", "driver")
    log.create(cap_nusd=None, reserved_nusd=0)
    log.announce_stop("failed", "no answer from https://:planted-secret@host")
    log.abort("KeyError: planted-secret", 3)
    assert log.aborted() == ("failed", "KeyError: ***")
    assert log.read_plan().stop_reason == "no answer from https://:***@host"
    assert not [key for key, blob in objects.blobs.items() if b"planted-secret" in blob]
    log.close()


def test_a_wait_has_a_deadline(make: Make) -> None:
    logs = three(make)
    publish(logs[0], 1, 0)
    with pytest.raises(Aborted, match="did not complete"):
        logs[0].wait(part(1, 0, deadline_s=0.01), lambda: None)


def test_the_lease_follows_the_publisher(make: Make) -> None:
    logs = three(make)
    publish(logs[1], 1, 1)
    assert logs[0].alive(["0", "1", "supervisor"]) == [False, True, False]
    logs[0].renew("supervisor", 5.0)
    assert publish(logs[0], 1, 0).has_supervisor


def test_frames_of_steps_that_all_have_read_are_dropped(make: Make) -> None:
    logs = three(make)
    for step in range(1, 6):
        for slot in ALL:
            publish(logs[slot], step, slot)
    assert logs[0].frames(part(5, 0)) == [b"5 of 1", b"5 of 2"]
    with pytest.raises(Aborted, match="is gone"):
        logs[0].frames(part(2, 0))
    assert logs[0].delete() > 0


def test_exchange_is_publish_wait_and_frames_in_one(make: Make) -> None:
    logs = three(make)
    done: dict[int, list[list[bytes]]] = {slot: [] for slot in ALL}

    def steps(slot: int) -> None:
        for step in range(1, 30):
            exchanged = logs[slot].exchange(part(step, slot), lambda: None)
            done[slot].append(copied(exchanged.frames))
            assert exchanged.published_at <= exchanged.complete_at

    threads = [threading.Thread(target=steps, args=(slot,)) for slot in ALL]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    for slot in ALL:
        expected = [[f"{step} of {peer}".encode() for peer in ALL if peer != slot] for step in range(1, 30)]
        assert done[slot] == expected


def test_exchange_is_patient_with_a_slow_peer(make: Make) -> None:
    logs = three(make)
    publish(logs[1], 1, 1)
    paid = threading.Event()
    done: list[list[bytes]] = []
    thread = threading.Thread(target=lambda: done.append(copied(logs[0].exchange(part(1, 0), paid.set).frames)))
    thread.start()
    assert paid.wait(10)  # it waited for so long that it had to pay
    publish(logs[2], 1, 2)
    thread.join(10)
    assert done == [[b"1 of 1", b"1 of 2"]]


def test_a_round_is_complete_with_the_first_frames_and_who_is_late_learns_whose(make: Make) -> None:
    logs = three(make)
    woken: list[tuple[list[int], list[bytes]]] = []

    def first(step: int, slot: int) -> RoundRequest:
        return replace(part(step, slot), quorum=2, kept_steps=8)

    def exchange(step: int, slot: int) -> None:
        done = logs[slot].exchange(first(step, slot), lambda: None)
        woken.append((done.slots, copied(done.frames)))

    for step in (1, 2, 3):
        waiting = threading.Thread(target=exchange, args=(step, 2))
        waiting.start()
        exchange(step, 0)
        waiting.join(10)
    by_both = [([0, 2], [f"{step} of {slot}".encode()]) for step in (1, 2, 3) for slot in (0, 2)]
    assert sorted(woken) == sorted(by_both)
    # It is two steps behind, reads what the others applied, and its own frames count for nothing.
    woken.clear()
    for step in (1, 2, 3):
        exchange(step, 1)
    assert woken == [([0, 2], [f"{step} of 0".encode(), f"{step} of 2".encode()]) for step in (1, 2, 3)]
    entries = make("reader").read_steps(1.0)
    assert [(entry.step, sorted(entry.reports)) for entry in entries] == [(step, [0, 2]) for step in (1, 2, 3)]


def test_the_shared_model_is_the_one_that_was_written_last(make: Make) -> None:
    logs = three(make)
    assert logs[0].get_model() is None
    for slot in (0, 2, 1):
        logs[slot].put_model(f"of {slot}".encode() * 1000)
    assert [bytes(log.get_model() or b"") for log in logs] == [b"of 1" * 1000] * 3
