"""How updates reach the other workers: the coordinator carries frames, arrivals, leases, the plan and the money."""

from .memory import MemoryCoordinator, MemoryHub
from .pattern import Pattern, choose_pattern, probe
from .protocol import (
    KINDS,
    WAIT_POLL_S,
    Aborted,
    Arrival,
    Coordinator,
    Exchanged,
    Frame,
    FrameKey,
    Plan,
    RoundRequest,
    StepEntry,
)
from .redis.coordinator import RedisCoordinator

__all__ = [
    "KINDS",
    "WAIT_POLL_S",
    "Aborted",
    "Arrival",
    "Coordinator",
    "Exchanged",
    "Frame",
    "FrameKey",
    "MemoryCoordinator",
    "MemoryHub",
    "Pattern",
    "Plan",
    "RedisCoordinator",
    "RoundRequest",
    "StepEntry",
    "choose_pattern",
    "probe",
]
