"""A simulator: the real loops of workers and supervisor on a virtual clock, with computed times for all else.

::

    from mlless_nb.simulate import CLOUD, Workload, simulate

    run = simulate(Workload(workers=1024, pattern="scatter-reduce"), CLOUD)
    print(run.step_s, run.cost)

``timeline`` and ``events`` are virtual time, ``cores`` and ``shards`` its queues. ``coordinator`` and ``services``
replace the services of the loops, ``server_requests`` their servers, ``replicas`` the arithmetic. ``machine`` and
``workload`` describe what is simulated, ``stragglers`` its delays, ``curves`` its losses. It needs greenlet: ``pip
install 'mlless_nb[simulate]'``. No real server is contacted.
"""

from .curves import PowerCurve, RecordedCurve, SentFraction
from .machine import CLOUD, MEASURED, TWO_CORES, Costs, Machine, StartUp, Storage
from .run import SimulatedRun, Traffic, simulate
from .shards import Link
from .stragglers import Even, Pareto, ShiftedExponential, SlowWorkers, Trace
from .workload import Workload

__all__ = [
    "CLOUD",
    "MEASURED",
    "TWO_CORES",
    "Costs",
    "Even",
    "Link",
    "Machine",
    "Pareto",
    "PowerCurve",
    "RecordedCurve",
    "SentFraction",
    "ShiftedExponential",
    "SimulatedRun",
    "SlowWorkers",
    "StartUp",
    "Storage",
    "Trace",
    "Traffic",
    "Workload",
    "simulate",
]
