"""When a run is stopped because its driver or a worker is gone, and when it is given time."""

from __future__ import annotations

import dataclasses

from engine.threads import Job

from mlless_nb import BSP, PMF, SGD
from mlless_nb.exchange import MemoryCoordinator, MemoryHub
from mlless_nb.supervisor.worker_watch import WorkerWatch


def test_a_driver_without_a_lease_has_the_time_of_one_to_renew_it() -> None:
    log, now = MemoryCoordinator(MemoryHub()), [0.0]
    log.create(cap_nusd=None, reserved_nusd=0)
    invocation = dataclasses.replace(Job(PMF(rank=2), SGD(0.2), BSP(), 2, 5, "mean", {}).invocation(0), lease_s=10.0)
    watch = WorkerWatch(invocation, log, lambda: now[0])
    for now[0] in (0.0, 9.0):
        watch.check_leases(now[0], 1)
        assert log.read_plan().stop_after is None
    log.renew("driver", 1000.0)  # a server was away, or was restored
    watch.check_leases(9.5, 1)
    log.bury("driver")
    for now[0] in (11.0, 20.0):
        watch.check_leases(now[0], 1)
        assert log.read_plan().stop_after is None
    now[0] = 21.5
    watch.check_leases(now[0], 1)
    assert log.read_plan().stop_reason == "the notebook that started the run has ended"


def watch_of_two() -> tuple[WorkerWatch, MemoryCoordinator, list[float]]:
    """The watch of a run whose worker 0 has no lease, its data, and the time."""
    log, now = MemoryCoordinator(MemoryHub()), [0.0]
    log.create(cap_nusd=None, reserved_nusd=0)
    log.renew("1", 1000.0)
    invocation = dataclasses.replace(Job(PMF(rank=2), SGD(0.2), BSP(), 2, 5, "mean", {}).invocation(0), lease_s=10.0)
    watch = WorkerWatch(invocation, log, lambda: now[0])
    watch.started |= {0, 1}
    return watch, log, now


def test_a_run_whose_workers_are_all_replaced_does_not_start_again() -> None:
    watch, _, _ = watch_of_two()
    assert watch.status(0) == "running"
    watch.replace([0, 1], 9.0)
    assert [watch.status(step) for step in (0, 56)] == ["starting", "running"]


def test_a_lost_worker_is_named_until_the_driver_was_told_of_it() -> None:
    watch, log, now = watch_of_two()
    log.renew("driver", 1000.0)
    assert watch.check_leases(0.0, 4) == []
    for now[0] in (6.0, 6.2):  # the storage refused to say whether the model is stored
        assert watch.check_leases(now[0], 4) == [(0, "worker 0 was lost at step 5")]
    watch.told(0)
    assert watch.check_leases(6.4, 4) == []
    now[0] = 6.2 + 41.0
    assert watch.check_leases(now[0], 4) == []
    assert log.aborted() == ("failed", "worker 0 was lost at step 5")


def test_a_run_that_lost_a_worker_and_its_driver_is_stopped_and_has_not_failed() -> None:
    watch, log, now = watch_of_two()
    for now[0] in (0.0, 6.0):
        lost = watch.check_leases(now[0], 4)
    watch.told(lost[0][0])
    now[0] = 9.0
    watch.check_leases(now[0], 4)
    assert log.aborted() is None
    now[0] = 11.0
    watch.check_leases(now[0], 4)
    assert log.aborted() == ("stopped", "the notebook that started the run has ended")


def test_a_stop_waits_a_lease_for_functions_that_are_not_there() -> None:
    watch, log, now = watch_of_two()
    log.renew("driver", 1000.0)
    watch.check_leases(0.0, 4)
    watch.replace([0], 0.0)  # its function never starts
    watch.stop()
    for now[0] in (1.0, 9.0, 11.0, 16.0):
        assert watch.check_leases(now[0], 4) == []
        assert log.aborted() is None
    now[0] = 16.5
    assert watch.check_leases(now[0], 4) == []
    assert log.aborted() == ("stopped", "stopped by you")


def test_a_stop_aborts_nothing_if_everybody_is_there() -> None:
    watch, log, now = watch_of_two()
    log.renew("driver", 1000.0)
    log.renew("0", 1000.0)
    watch.stop()
    for now[0] in (1.0, 11.0, 20.0, 900.0):
        watch.check_leases(now[0], 4)
    assert log.aborted() is None


def test_a_replacement_that_had_started_before_it_was_told_is_missed_as_soon_as_any_other() -> None:
    """It was lost a second later, and had six leases to start in."""
    watch, log, now = watch_of_two()
    log.renew("driver", 1000.0)
    assert not watch.start(0, 5.5)  # the first one had said so, too
    watch.replace([0], 5.0)
    for now[0] in (6.0, 11.5):
        lost = watch.check_leases(now[0], 4)
    assert lost == [(0, "worker 0 was lost at step 5")]


def test_a_replacement_that_has_not_started_is_given_time() -> None:
    watch, log, now = watch_of_two()
    log.renew("driver", 1000.0)
    watch.start(0, 1.0)
    watch.replace([0], 5.0)
    for now[0] in (6.0, 11.5, 64.0):
        assert watch.check_leases(now[0], 4) == []
    for now[0] in (66.0, 72.0):
        lost = watch.check_leases(now[0], 4)
    assert lost == [(0, "worker 0 did not start")]
