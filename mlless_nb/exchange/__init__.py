"""The exchange of updates between workers, through a shared coordinator.

Terms:

- A *frame* is an update as bytes: a header, values and indices (`mlless_nb.kernels`).
- A *round* is one exchange: each worker publishes a frame and reads those of its peers. A step has one round or a few.
- An *arrival* tells the coordinator that a worker has published. The last arrival completes the round; under backup
  workers the k-th one does, and the step goes on without the later ones.
- A *lease* says until when a process counts as alive. Each process renews its own.
- The *plan* says what all workers change at the same step: who leaves, the last step, the next checkpoint.

::

    protocol.py       the interface of the coordinator: rounds, plan, leases, budget
    redis/ storage/   the coordinator on Redis, and in the object storage
    memory.py         the coordinator in one process, for tests; memory_hub.py has its shared state
    factory.py        opens the coordinator of a job
    policies/         whom a worker waits for in a step
    stores/           frames elsewhere than on Redis
    pattern.py        chooses broadcast or scatter-reduce
    plan.py           the plan as data                                                pure
    restarts.py       restarts from a checkpoint, and aborts: how waiting workers learn of them
    standing.py       where a run stands, as its driver reads it at once
    slots.py          the numbers of a run's functions
    frame_count.py    counts frames that are put and got, and their bytes
    step_report.py    a worker's report of one step, and the entries of the step log
    kept_reports.py   a worker's newest reports, from which a lost step log is written again
    stats.py          sums of losses and their row counts, in the header of a frame
    seals.py          authenticates frames by Poly1305, on every server but the private Redis
    in_parts.py       a round as three calls, for a coordinator without a faster way
    quorum_rounds.py  rounds that end after their first k arrivals, in memory

`mlless_nb.worker` makes and applies the updates.
"""

from .memory import MemoryCoordinator
from .memory_hub import MemoryHub
from .pattern import Pattern, choose_pattern, probe
from .plan import Plan
from .protocol import (
    KINDS,
    WAIT_POLL_S,
    Arrival,
    Closing,
    Coordinator,
    Exchanged,
    Frame,
    FrameKey,
    RoundRequest,
)
from .redis.coordinator import RedisCoordinator
from .restarts import FROM_THE_START, Aborted, Fenced, LostData, Restart, Restarted, RoundEnded
from .slots import SUPERVISOR
from .standing import NO_PAST, Past
from .step_report import LateArrival, StepEntry

__all__ = [
    "FROM_THE_START",
    "KINDS",
    "NO_PAST",
    "SUPERVISOR",
    "WAIT_POLL_S",
    "Aborted",
    "Arrival",
    "Closing",
    "Coordinator",
    "Exchanged",
    "Fenced",
    "Frame",
    "FrameKey",
    "LateArrival",
    "LostData",
    "MemoryCoordinator",
    "MemoryHub",
    "Past",
    "Pattern",
    "Plan",
    "RedisCoordinator",
    "Restart",
    "Restarted",
    "RoundEnded",
    "RoundRequest",
    "StepEntry",
    "choose_pattern",
    "probe",
]
