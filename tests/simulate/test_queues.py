"""Virtual time, cores and servers: what comes out is what one computes by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("greenlet")

from mlless_nb.simulate.cores import OwnCore, SharedCores
from mlless_nb.simulate.events import Killed, Process
from mlless_nb.simulate.shards import FunctionLink, Link, Shard
from mlless_nb.simulate.timeline import Timeline


def test_processes_meet_in_virtual_time() -> None:
    timeline, seen = Timeline(), []

    def body(process: Process) -> None:
        process.sleep(2.0)
        seen.append(("slept", timeline.now))
        process.spend(0.5)
        process.spend(0.25)
        seen.append(("computed", process.clock()))

    Process(timeline, OwnCore(timeline, speed=0.5), body).start()
    timeline.run()

    assert seen == [("slept", 2.0), ("computed", 3.5)]


def test_a_pause_ends_once() -> None:
    timeline, seen = Timeline(), []

    def body(process: Process) -> None:
        ticket = process.expect()
        timeline.after(1.0, process.wake, ticket, "word")
        timeline.after(1.5, process.wake, ticket, "the same again")
        seen.append((process.pause(timeout_s=2.0), timeline.now))
        process.expect()
        seen.append((process.pause(timeout_s=3.0), timeline.now))

    Process(timeline, OwnCore(timeline), body).start()
    timeline.run()

    assert seen == [("word", 1.0), (None, 4.0)]


def test_a_killed_process_cleans_up() -> None:
    timeline, seen = Timeline(), []

    def body(process: Process) -> None:
        try:
            process.sleep(10.0)
        except Exception:
            seen.append("caught")
        except Killed:
            seen.append("killed")
            raise

    process = Process(timeline, OwnCore(timeline), body, lambda process: seen.append("ended"))
    process.start()
    timeline.after(1.0, process.kill)
    timeline.run()

    assert seen == ["killed", "ended"]
    assert not process.is_alive


def ends_of(cores: SharedCores, timeline: Timeline, jobs: list[tuple[float, float]]) -> list[float]:
    """When jobs of (start, seconds of a core) end."""
    ends = [math.nan] * len(jobs)

    def end(number: int) -> None:
        ends[number] = timeline.now

    for number, (start_s, cpu_s) in enumerate(jobs):
        timeline.at(start_s, cores.run, cpu_s, end, number)
    timeline.run()
    return ends


def test_cores_are_shared_evenly() -> None:
    """Two cores: a third job slows the first two to 2/3; once one is done, the rest run at full speed."""
    timeline = Timeline()

    ends = ends_of(SharedCores(timeline, 2), timeline, [(0.0, 2.0), (0.0, 4.0), (1.0, 2.0)])

    # From 1.0 on all have 2/3 of a core: the first needs another 1.5 s, in which the others get 1.0.
    assert ends == pytest.approx([2.5, 4.5, 3.5])


def test_crowded_cores_are_slower() -> None:
    timeline = Timeline()
    cores = SharedCores(timeline, 2, crowding=1.0)
    cores.share(8)

    assert ends_of(cores, timeline, [(0.0, 1.0)]) == pytest.approx([1.75])


@given(st.lists(st.tuples(st.floats(0.0, 10.0), st.floats(1e-6, 10.0)), min_size=1, max_size=30), st.integers(1, 4))
@settings(max_examples=100, deadline=None)
def test_cores_lose_no_work(jobs: list[tuple[float, float]], count: int) -> None:
    timeline = Timeline()
    cores = SharedCores(timeline, count)

    ends = ends_of(cores, timeline, jobs)

    assert cores.busy_s == pytest.approx(sum(cpu_s for _, cpu_s in jobs))
    for (start_s, cpu_s), end_s in zip(jobs, ends, strict=True):
        assert end_s - start_s >= cpu_s * (1 - 1e-9)
    assert max(ends) <= max(start_s for start_s, _ in jobs) + sum(cpu_s for _, cpu_s in jobs) + 1e-9


@pytest.mark.parametrize("is_shared", [False, True])
def test_requests_queue_at_a_server(is_shared: bool) -> None:
    """Three at once, 2 s of its thread each: they are answered one after the other."""
    timeline, ends = Timeline(), []
    shard = Shard(timeline, Link(), SharedCores(timeline, 2) if is_shared else None)

    for _ in range(3):
        timeline.at(1.0, shard.request, FunctionLink(), 2.0, 0.0, lambda: ends.append(timeline.now))
    timeline.run()

    assert ends == pytest.approx([3.0, 5.0, 7.0])
    assert shard.cpu_s == 6.0


def test_bytes_queue_for_the_link() -> None:
    """100 B/s into the server and out of it, half a second away: two writes of 50 B, read again one after the other."""
    timeline, there, back = Timeline(), [], []
    shard = Shard(timeline, Link(0.5, server_bytes_s=100.0), None)

    def stored() -> None:
        there.append(timeline.now)
        shard.reply(FunctionLink(), 200.0, lambda: back.append(timeline.now))

    for _ in range(2):
        timeline.at(0.0, shard.request, FunctionLink(), 0.25, 50.0, stored)
    timeline.run()

    assert there == pytest.approx([1.25, 1.75])  # latency, link, thread
    assert back == pytest.approx([1.25 + 2.0 + 0.5, 1.25 + 4.0 + 0.5])
    assert (shard.bytes_in, shard.bytes_out) == (100.0, 400.0)


def test_a_functions_own_line_may_be_the_slow_one() -> None:
    timeline, there = Timeline(), []
    shard = Shard(timeline, Link(0.0, server_bytes_s=1000.0, function_bytes_s=10.0), None)

    for _ in range(2):
        timeline.at(0.0, shard.request, FunctionLink(), 0.0, 50.0, lambda: there.append(timeline.now))
    timeline.run()

    assert there == pytest.approx([5.0, 5.0])  # side by side


def test_servers_share_a_functions_link() -> None:
    """Two servers, 50 B to each and 20 B back from each, by one link of 10 B/s: as from one server."""
    timeline, there, back = Timeline(), [], []
    own_link = FunctionLink()
    shards = [Shard(timeline, Link(0.0, server_bytes_s=1000.0, function_bytes_s=10.0), None) for _ in range(2)]

    def stored(shard: Shard) -> None:
        there.append(timeline.now)
        shard.reply(own_link, 20.0, lambda: back.append(timeline.now))

    for shard in shards:
        timeline.at(0.0, shard.request, own_link, 0.0, 50.0, stored, shard)
    timeline.run()

    assert there == pytest.approx([5.0, 10.0])
    assert back == pytest.approx([7.0, 12.0])
