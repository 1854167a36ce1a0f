"""Frames that are put and got are counted with their bytes, by every coordinator and over every store."""

from __future__ import annotations

from collections.abc import Sequence

from exchange.test_coordinator import Make, make, part, three  # noqa: F401 - a fixture
from exchange.test_coordinator_rounds import scatter, together
from exchange.test_stores import Members, members  # noqa: F401 - a fixture

from mlless_nb.exchange import Coordinator, RoundRequest
from mlless_nb.exchange.frame_count import NO_FRAMES, FrameCount
from mlless_nb.exchange.step_report import Report
from mlless_nb.exchange.storage.coordinator import StorageCoordinator
from mlless_nb.exchange.storage.rounds import packed

MODEL = b"the shared model"


def exchanged(logs: Sequence[Coordinator]) -> tuple[int, int]:
    """Let three workers exchange frames in each way; the bytes that they have published, and those that they read."""
    put = got = 0
    # In the object storage frames are arrivals: they have reports, and who publishes one reads those that are there.
    are_arrivals = isinstance(logs[0], StorageCoordinator)
    head = len(packed(Report(), b"")) if are_arrivals else 0

    def note(parts: Sequence[RoundRequest]) -> None:
        nonlocal put, got
        for one in parts:
            frames = one.outgoing.values()
            published = sum(map(len, frames)) + len(frames) * head
            put += published
            got += published * (2 if one.parts is None else 1)  # one for each of two peers is read by one of them

    for step, brought in ((1, part), (2, scatter)):
        parts = [brought(step, slot) for slot in range(3)]
        together(logs, lambda slot, parts=parts: logs[slot].exchange(parts[slot], int))  # type: ignore[misc]
        note(parts)
    parts = [part(3, slot) for slot in range(3)]
    for log, one in zip(logs, parts, strict=True):
        log.publish(one)
    for log, one in zip(logs, parts, strict=True):
        log.frames(one)
    note(parts)
    # What is not there yet has no bytes.
    parts = [part(4, slot) for slot in range(3)]
    assert logs[0].publish_and_poll(parts[0], [("4", 1)])[1] == [None]
    logs[1].publish(parts[1])
    logs[2].publish(parts[2])
    assert logs[0].wait_for_any(parts[0], [("4", 1)], int) == [b"4 of 1"]
    put += sum(len(one.frame) + head for one in parts)
    got += (len(parts[1].frame) + head) * (4 if are_arrivals else 1)
    assert logs[0].get_model() is None
    logs[0].put_model(MODEL)
    assert logs[1].get_model() == MODEL
    return put + len(MODEL), got + len(MODEL)


def check(logs: Sequence[Coordinator]) -> None:
    """Check the counts of three workers."""
    assert [log.frame_count() for log in logs] == [NO_FRAMES] * 3 or isinstance(logs[0], StorageCoordinator)
    put_bytes, got_bytes = exchanged(logs)
    moved = FrameCount.total([log.frame_count() for log in logs])
    assert (moved.put_bytes, moved.got_bytes) == (put_bytes, got_bytes)
    # Three steps of three frames, one of six parts, the model; requests that found nothing count, too.
    assert (moved.n_puts, moved.n_gets) >= (3 * 3 + 6 + 1, 3 * 6 + 1 + 1)
    assert logs[0].frame_count().put_bytes > 0


def test_what_workers_publish_and_fetch_is_counted(make: Make) -> None:  # noqa: F811
    check(three(make))


def test_what_workers_publish_and_fetch_over_a_store_is_counted(members: Members) -> None:  # noqa: F811
    check(members.workers)


def test_numbers_of_a_message_that_are_no_count_are_none() -> None:
    assert FrameCount.of([1, 2, 3, 4]) == (1, 2, 3, 4)
    assert FrameCount.of([]) == FrameCount.of([1] * 5) == FrameCount.total([]) == NO_FRAMES
    assert FrameCount.total([FrameCount(1, 2, 3, 4), FrameCount(1, 1, 1, 1)]) == (2, 3, 4, 5)
