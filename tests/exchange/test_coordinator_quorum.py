"""Rounds of a quorum on every coordinator: who counts, what late workers are told, and how far behind they may be."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from exchange.test_coordinator import ALL, Make, copied, make, part, three

from mlless_nb.exchange import Closing, RoundRequest

__all__ = ["make"]  # the fixture


def first(step: int, slot: int, quorum: int = 2, kept_steps: int = 5) -> RoundRequest:
    """What ``slot`` of three brings to a step that waits for the first ``quorum``."""
    return replace(part(step, slot), quorum=quorum, kept_steps=kept_steps)


def test_all_are_told_the_quorum_that_was_announced_when_the_round_ended(make: Make) -> None:
    logs, supervisor = three(make), make("supervisor")
    supervisor.announce_quorum(3)
    assert not logs[0].publish(first(1, 0)).is_complete
    assert logs[1].publish(first(1, 1)).closing == Closing([0, 1], 3)
    supervisor.announce_quorum(1)
    assert logs[0].wait(first(1, 0), lambda: None) == Closing([0, 1], 3)
    assert logs[2].publish(first(1, 2)).closing == Closing([0, 1], 3)
    assert logs[2].publish(first(2, 2, quorum=1)).closing == Closing([2], 1)


def test_a_late_worker_is_told_what_it_missed_and_reads_it(make: Make) -> None:
    logs = three(make)
    for step in (1, 2, 3):
        for slot in (0, 1):
            logs[slot].publish(first(step, slot))
    late = logs[2].publish(first(1, 2))
    assert late.is_complete
    assert late.closing == Closing([0, 1])
    _, closings = logs[2].catch_up(first(2, 2))
    assert closings == [Closing([0, 1])] * 2
    for step, closing in enumerate(closings, 2):
        read = copied(logs[2].frames(first(step, 2), closing.slots))
        assert read == [f"{step} of 0".encode(), f"{step} of 1".encode()]
    assert logs[2].catch_up(first(4, 2))[1] == []
    reader = make("reader")
    entries = reader.read_steps(1.0)
    assert [(entry.step, sorted(entry.reports), entry.n_workers) for entry in entries] == [
        (step, [0, 1], 3) for step in (1, 2, 3)
    ]
    assert all(len(entry.arrived_s) == 2 and entry.arrived_s[-1] <= entry.at_s for entry in entries)
    assert [(one.step, one.rank) for one in reader.read_late()] == [(1, 3)]
    assert reader.read_late() == []


def test_nobody_is_further_behind_than_frames_are_kept(make: Make) -> None:
    logs = three(make)
    for step in (1, 2, 3, 4):
        logs[0].publish(first(step, 0))
        complete = logs[1].publish(first(step, 1)).is_complete
        assert complete == (step < 5)
    # Step 5 is four steps ahead of slot 2, which has read nothing yet: the frames of step 1 would be dropped.
    assert not logs[0].publish(first(5, 0)).is_complete
    assert not logs[1].publish(first(5, 1)).is_complete
    ended: list[Closing | None] = []
    waiting = threading.Thread(target=lambda: ended.append(logs[0].wait(first(5, 0), lambda: None)))
    waiting.start()
    assert logs[2].publish(first(1, 2)).closing == Closing([0, 1])
    assert len(logs[2].catch_up(first(2, 2))[1]) >= 3
    waiting.join(20)
    assert ended == [Closing([0, 1])]


def test_one_that_is_further_behind_than_its_peers_allow_is_waited_for(make: Make) -> None:
    """Their checkpoint would not be whole: it may be as many steps behind as frames are kept, but not at this step."""
    logs = three(make)
    for slot in ALL:
        logs[slot].publish(first(1, slot))
    for step in (2, 3):
        for slot in (0, 1):
            complete = logs[slot].publish(first(step, slot)).is_complete
        assert complete
    strict = [replace(first(4, slot), most_behind=1) for slot in ALL]
    assert not any(logs[slot].publish(strict[slot]).is_complete for slot in (0, 1))
    logs[2].publish(first(2, 2))
    assert not logs[0].publish(strict[0]).is_complete
    logs[2].catch_up(first(3, 2))
    assert logs[0].publish(strict[0]).closing == Closing([0, 1])


def test_a_worker_that_has_left_is_not_waited_for(make: Make) -> None:
    logs = three(make)
    for step in (1, 2):
        for slot in ALL:
            logs[slot].publish(first(step, slot))
    for step in range(3, 12):
        for slot in (0, 1):
            asked = replace(first(step, slot), publishers=[0, 1])
            arrival = logs[slot].publish(asked)
        assert arrival.is_complete, step


def test_arriving_twice_counts_once(make: Make) -> None:
    logs = three(make)
    for _ in range(2):
        assert not logs[0].publish(first(1, 0)).is_complete
    assert logs[2].publish(first(1, 2)).closing == Closing([0, 2])
    assert logs[0].publish(first(1, 0)).closing == Closing([0, 2])


@pytest.mark.parametrize("n_steps", [3, 40])
def test_frames_that_all_have_read_are_dropped_at_once(make: Make, n_steps: int) -> None:
    logs, read_step = three(make), 0
    for step in range(1, n_steps + 1):
        for slot in ALL:
            asked = replace(first(step, slot, kept_steps=34), read_step=read_step)
            read_step = max(read_step, logs[slot].publish(asked).read_step)
    assert read_step == n_steps - 1
