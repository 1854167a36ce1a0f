"""When functions get successors and runs checkpoints."""

from __future__ import annotations

import itertools

import pytest
from engine.threads import RATES, Job
from hypothesis import given
from hypothesis import strategies as st

from mlless_nb import BSP, PMF, SGD, BackupWorkers
from mlless_nb.exchange import NO_PAST, SUPERVISOR, MemoryHub
from mlless_nb.exchange.policies.quorum import MOST_BEHIND
from mlless_nb.job.sync import Sync
from mlless_nb.supervisor.checkpoint_times import FIRST_S, FIRST_SHARE, SHARE, CheckpointTimes
from mlless_nb.supervisor.lifetimes import Lifetimes

EVERYBODY = [SUPERVISOR, 0, 1, 2]


@given(st.floats(5.0, 1000.0), st.floats(0.0, 100.0))
def test_each_function_gets_one_successor_in_time_and_not_all_at_once(lifetime_s: float, start_s: float) -> None:
    lifetimes = Lifetimes(lifetime_s, 3, 0.0)
    lifetimes.start_s = start_s
    asked: dict[int, float] = {}
    for percent in range(90):
        for slot in lifetimes.due(percent / 100 * lifetime_s, EVERYBODY):
            assert slot not in asked
            asked[slot] = percent / 100
        assert not lifetimes.is_over(percent / 100 * lifetime_s, EVERYBODY)
    assert set(asked) == set(EVERYBODY)
    assert all(0.4 <= share <= 0.81 for share in asked.values())
    if start_s < 0.01 * lifetime_s:
        assert len(set(asked.values())) == 4
    assert lifetimes.is_over(0.9 * lifetime_s, [0])


def test_a_new_function_lives_from_when_it_was_invoked() -> None:
    lifetimes = Lifetimes(100.0, 1, 0.0)
    assert lifetimes.due(79.0, [0]) == [0]
    lifetimes.begin(0, 79.0)
    assert not lifetimes.is_over(95.0, [0])
    assert lifetimes.due(95.0, [0]) == []
    assert lifetimes.due(145.0, [0]) == [0]


def test_a_successor_that_does_not_start_is_asked_for_three_times_and_less_and_less_often() -> None:
    lifetimes = Lifetimes(900.0, 1, 0.0, lease_s=10.0)
    lifetimes.start_s = 4.0
    assert lifetimes.due(700.0, [0]) == [0]
    assert [time_s for time_s in range(700, 810) if lifetimes.late(time_s, [0])] == [710, 730]
    lifetimes.begin(0, 735.0)
    assert lifetimes.late(800.0, [0]) == []
    # One that an earlier supervisor has asked for has its time, too; and so has one that was invoked late.
    later = Lifetimes(900.0, 1, 0.0, lease_s=10.0)
    later.invoke(0, 698.0)
    assert later.due(700.0, [0]) == []
    later.invoke(0, 701.0)
    assert [time_s for time_s in range(700, 715) if later.late(time_s, [0])] == [711]


def test_a_duplicate_of_a_straggler_that_never_starts_is_no_reason_to_have_no_successor() -> None:
    lifetimes = Lifetimes(900.0, 1, 0.0, lease_s=10.0)
    lifetimes.invoke(0, 100.0)
    assert [time_s for time_s in range(900) if lifetimes.late(time_s, [0])] == [110, 130]
    assert [time_s for time_s in range(500, 560) if lifetimes.due(time_s, [0])] == [540]


def test_a_supervisor_that_takes_over_learns_how_old_functions_are() -> None:
    for invoked_s, is_late in ((100.0, True), (698.0, False)):
        lifetimes = Lifetimes(900.0, 1, 0.0, lease_s=10.0)
        lifetimes.invoke(0, 698.0)  # as it was told
        lifetimes.learn(0, invoked_s)
        assert lifetimes.due(699.0, [0]) == []  # one starts, or has the slot
        assert bool(lifetimes.late(708.0, [0])) == is_late


def test_a_slot_is_as_old_as_its_function_until_the_successor_that_waits_has_it() -> None:
    """It counted as young at once: if the successor was lost, the function lived up to its lifetime."""
    lifetimes = Lifetimes(900.0, 1, 0.0, lease_s=10.0)
    assert lifetimes.due(720.0, [0]) == [0]
    lifetimes.wait(0, 721.0)
    assert not lifetimes.is_over(820.0, [0])
    assert lifetimes.due(820.0, [0]) == lifetimes.late(820.0, [0]) == []
    lifetimes.lose(0)
    assert lifetimes.is_over(820.0, [0])
    assert [time_s for time_s in range(740, 800) if lifetimes.late(time_s, [0])] == [740, 760]
    lifetimes.wait(0, 765.0)
    lifetimes.hand_over(0, 790.0)
    assert not lifetimes.is_over(765.0 + 809.0, [0])
    assert lifetimes.is_over(765.0 + 811.0, [0])


def test_a_successor_is_asked_for_once_the_one_before_it_says_that_it_has_the_slot() -> None:
    """The driver still saw the function that handed over, and took the request for another one for its successor."""
    for says_so in (True, False):
        lifetimes = Lifetimes(900.0, 1, 0.0, lease_s=10.0)
        lifetimes.wait(0, 100.0)
        lifetimes.hand_over(0, 800.0)
        assert lifetimes.due(800.0, [0]) == []
        if says_so:
            lifetimes.start(0, 100.0)
        assert lifetimes.due(801.0, [0]) == [0] * says_so
        assert lifetimes.due(810.0, [0]) == [0] * (not says_so)


def test_a_function_says_how_old_it_is_whose_wait_only_an_earlier_supervisor_has_heard_of() -> None:
    """It counted as invoked at the hand-over, until the next supervisor knew better, and ended the run."""
    lifetimes = Lifetimes(900.0, 1, 0.0, lease_s=10.0)
    lifetimes.start(0, 1.0)  # after a restart functions say so again
    lifetimes.hand_over(0, 790.0)
    lifetimes.start(0, 700.0)
    lifetimes.start(0, 0.0)  # an old message, after all
    assert lifetimes.is_over(700.0 + 811.0, [0])
    assert not lifetimes.is_over(700.0 + 809.0, [0])


def test_a_slot_that_a_waiting_successor_has_taken_instead_of_a_replacement_is_as_old_as_that() -> None:
    for learn in (Lifetimes.learn, Lifetimes.start):
        lifetimes = Lifetimes(900.0, 1, 0.0, lease_s=10.0)
        lifetimes.begin(0, 800.0)  # the replacement
        learn(lifetimes, 0, 700.0)
        assert lifetimes.is_over(1511.0, [0])


@given(st.integers(1, 10**7), st.integers(0, 10**9), st.floats(1e3, 1e7))
def test_checkpoints_are_early_and_cost_half_a_percent(nusd: int, n_bytes: int, rate_nusd_s: float) -> None:
    times = CheckpointTimes(nusd, n_bytes)
    n, first_s = 0, None
    for tenth in range(3000):
        time_s = tenth / 10
        if times.is_due(time_s, round(time_s * rate_nusd_s)):
            n, first_s = n + 1, time_s if first_s is None else first_s
            share = FIRST_SHARE if n == 1 else SHARE
            assert n * nusd <= share * time_s * rate_nusd_s + 1
    if nusd <= 0.9 * FIRST_SHARE * rate_nusd_s * FIRST_S and n_bytes < 10**7:
        assert first_s is not None
        assert first_s <= 2.0


def test_checkpoints_are_rarer_where_workers_share_cores() -> None:
    def seconds_of(cores: float) -> list[float]:
        times = CheckpointTimes(0, 10**7, cores)
        return [tenth / 10 for tenth in range(3000) if times.is_due(tenth / 10, 0)]

    own, shared = seconds_of(1.0), seconds_of(0.25)
    assert FIRST_S == own[0] <= shared[0] <= 2.0
    assert abs(len(own) / len(shared) - 4) < 0.5


@pytest.mark.parametrize("sync", [BSP(), BackupWorkers(1)])
def test_no_checkpoint_is_announced_while_a_worker_may_be_before_the_last_one(sync: Sync) -> None:
    """It learns of the newest one only: each was replaced by a later one before it had taken that many steps."""
    hub = MemoryHub()
    hub.create(None, 0, NO_PAST)
    one = Job(PMF(rank=2), SGD(0.2), sync, 2, 99, "mean", {})
    times = CheckpointTimes.of(one.invocation(0), RATES, one.model)
    announced = set[int]()
    for step in range(1, 100):
        hub.latest = step
        if times.is_passed(step) and times.is_due(10.0 * step, step * 10**12):
            times.announced = hub.announce_checkpoint().checkpoint
            announced.add(times.announced)
    behind = MOST_BEHIND if isinstance(sync, BackupWorkers) else 0
    assert len(announced) == 3 if behind else len(announced) > 40
    assert all(later > earlier + behind for earlier, later in itertools.pairwise(sorted(announced)))
