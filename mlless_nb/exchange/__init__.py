"""How updates reach the other workers: the step log that carries frames, arrivals, leases, the plan and the money."""

from .memory import MemoryHub, MemoryStepLog
from .pattern import Pattern, choose_pattern, probe
from .protocol import KINDS, LOOK_S, Aborted, Arrival, Exchanged, Frame, Plan, Round, Sought, StepEntry, StepLog, Wanted
from .redis.coordinator import RedisStepLog

__all__ = [
    "KINDS",
    "LOOK_S",
    "Aborted",
    "Arrival",
    "Exchanged",
    "Frame",
    "MemoryHub",
    "MemoryStepLog",
    "Pattern",
    "Plan",
    "RedisStepLog",
    "Round",
    "Sought",
    "StepEntry",
    "StepLog",
    "Wanted",
    "choose_pattern",
    "probe",
]
