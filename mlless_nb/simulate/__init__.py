"""A simulator: the real loops of workers and supervisor on a virtual clock, with computed times for all else.

::

    from mlless_nb.simulate import CLOUD, Workload, simulate

    run = simulate(Workload(workers=1024, pattern="scatter-reduce"), CLOUD)
    print(run.step_s, run.cost)

It needs greenlet: ``pip install 'mlless_nb[simulate]'``. No real server is contacted.

- What is simulated: ``machine`` has the costs of work and the latencies, ``calibrate`` measures these costs on this
  machine, ``workload`` describes a job by its sizes, ``stragglers`` draws delays, ``curves`` gives the losses.
- Virtual time: ``timeline`` is the queue of events, and ``events`` runs processes between them.
- Queues: ``cores`` for processor time; ``shards`` for the Redis servers of a job (each has a part of the frames).
- Replacements: ``coordinator`` and ``services`` for the services of the loops, ``hub`` for the servers' state,
  ``server_requests`` for workers' requests to servers, ``replicas`` for the arithmetic, ``stand_ins`` for data.
- Runs: ``functions`` does what a function does around a worker's loop, ``run`` does the work of the driver.
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
