"""A run on a virtual clock: the real loops of workers and supervisor, the time of everything else computed.

::

    from mlless_nb.simulate import CLOUD, Workload, simulate

    run = simulate(Workload(workers=1024, pattern="scatter-reduce"), CLOUD)
    print(run.step_s, run.cost)

``events`` is virtual time, ``cores`` and ``shards`` the queues in it; ``coordinator`` and ``services`` are what the
loops talk to, ``server_requests`` what that does at the servers, ``replicas`` what the loops compute; ``machine`` and
``workload`` say where and what, ``stragglers`` and ``curves`` how unevenly and how well. It needs greenlet:
``pip install 'mlless_nb[simulate]'``.
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
