"""When a run is stopped because its driver is gone, and when it is given time."""

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
