"""How updates reach the other workers: the step log that carries frames, arrivals, leases, the plan and the money."""

from .base import LOOK_S, Aborted, Arrival, Exchanged, Plan, Round, StepEntry, StepLog, Wanted
from .memory import MemoryHub, MemoryStepLog
from .redis import RedisStepLog

__all__ = [
    "LOOK_S",
    "Aborted",
    "Arrival",
    "Exchanged",
    "MemoryHub",
    "MemoryStepLog",
    "Plan",
    "RedisStepLog",
    "Round",
    "StepEntry",
    "StepLog",
    "Wanted",
]
