"""What a worker that runs ahead asks of the coordinator: frames that are there, of several rounds, on every backend."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest
from exchange.test_coordinator import ALL, Make, make, part, publish, three  # noqa: F401 - a fixture
from exchange.test_coordinator_rounds import client_like, keys_of, pause_between_kills_s, together

from mlless_nb.exchange import Aborted, Frame, FrameKey, RedisCoordinator


def texts(frames: list[Frame | None]) -> list[bytes | None]:
    """Frames that outlive the next exchange."""
    return [None if frame is None else bytes(frame) for frame in frames]


def test_what_is_there_is_read_and_nobody_is_waited_for(make: Make) -> None:  # noqa: F811
    logs = three(make)
    for step in (1, 2):
        publish(logs[1], step, 1)
    publish(logs[2], 1, 2)
    keys = [("1", 1), ("1", 2), ("2", 1), ("2", 2)]
    assert logs[0].publish_and_poll(part(1, 0), keys[:2])[0].is_complete
    arrival, frames = logs[0].publish_and_poll(part(2, 0), keys)
    assert not arrival.is_complete
    assert texts(frames) == [b"1 of 1", b"1 of 2", b"2 of 1", None]
    arrival, frames = logs[2].publish_and_poll(part(2, 2), [])
    assert arrival.is_complete
    assert frames == []
    assert [entry.step for entry in make("reader").read_steps(1.0)] == [1, 2]


def test_one_frame_ends_the_wait(make: Make) -> None:  # noqa: F811
    logs = three(make)
    keys = [("1", 1), ("1", 2)]
    assert texts(logs[0].publish_and_poll(part(1, 0), keys)[1]) == [None, None]
    paid, found = threading.Event(), []
    thread = threading.Thread(
        target=lambda: found.append(texts(logs[0].wait_for_any(part(1, 0), keys, paid.set))), daemon=True
    )
    thread.start()
    assert paid.wait(10)  # waiting costs money
    publish(logs[2], 1, 2)
    thread.join(10)
    assert found == [[None, b"1 of 2"]]
    publish(logs[1], 1, 1)
    assert texts(logs[0].wait_for_any(part(1, 0), keys[:1], lambda: None)) == [b"1 of 1"]


def test_a_wait_for_frames_has_a_deadline_and_hears_of_an_abort(make: Make) -> None:  # noqa: F811
    logs = three(make)
    publish(logs[0], 1, 0)
    with pytest.raises(Aborted, match="did not complete"):
        logs[0].wait_for_any(part(1, 0, deadline_s=0.01), [("1", 2)], lambda: None)
    make("supervisor").abort("worker 2 was lost", 3)
    with pytest.raises(Aborted, match="worker 2 was lost"):
        logs[0].wait_for_any(part(1, 0), [("1", 2)], lambda: None)
    with pytest.raises(Aborted, match="worker 2 was lost"):
        logs[1].publish_and_poll(part(1, 1), [("1", 2)])


@pytest.mark.parametrize("staleness", [1, 3])
def test_frames_and_arrivals_are_kept_until_the_slowest_can_have_read_them(make: Make, staleness: int) -> None:  # noqa: F811
    logs = three(make)
    for step in range(1, 16):
        for slot in ALL:
            logs[slot].publish(replace(part(step, slot), kept_steps=2 + 2 * staleness))
    for kind in ("frame", "arrivals"):
        kept = {int(key.split(":")[1]) for key in keys_of(logs[0]) if key.startswith(kind)}
        assert kept == set(range(15 - 2 * staleness - 1, 16))


def test_workers_run_ahead_on_connections_that_are_lost_and_read_everything(make: Make) -> None:  # noqa: F811
    """Each waits only for what is older than two steps; in the end all have read all, each frame once."""
    staleness, steps = 2, 60
    logs = three(make)
    killer, pause_s, done = None, 0.0, threading.Event()
    if isinstance(logs[0], RedisCoordinator):
        killer = client_like(logs[0])
        pause_s = pause_between_kills_s(killer)

    def kill() -> None:
        while killer is not None and not done.wait(pause_s):
            killer.client_kill_filter(_type="normal", skipme=True)

    def work(slot: int) -> None:
        missing: list[FrameKey] = []

        def take(frames: list[Frame | None]) -> None:
            for (round_id, peer), frame in list(zip(missing, frames, strict=True)):
                if frame is not None:
                    assert bytes(frame) == f"{round_id} of {peer}".encode()
                    missing.remove((round_id, peer))

        for step in range(1, steps + 1):
            missing += [(str(step), peer) for peer in ALL if peer != slot]
            mine = replace(part(step, slot, deadline_s=30.0), kept_steps=2 + 2 * staleness)
            take(logs[slot].publish_and_poll(mine, list(missing))[1])
            while any(int(round_id) <= step - (staleness if step < steps else 0) for round_id, _ in missing):
                take(logs[slot].wait_for_any(mine, list(missing), lambda: None))
            time.sleep(0.002 * slot)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        together(logs, work)
    finally:
        done.set()
        thread.join()
    assert [entry.step for entry in make("reader").read_steps(1.0)] == list(range(1, steps + 1))
