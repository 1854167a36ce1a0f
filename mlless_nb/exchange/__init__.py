"""The exchange of updates between workers, through a shared coordinator.

``protocol`` is the coordinator's interface: frames, arrivals at rounds, leases, the plan and the budget. ``redis/``,
``storage/`` and ``memory`` implement it, and ``factory`` opens one. ``policies/`` decide who waits for whom,
``stores/`` keep frames elsewhere than on Redis, and ``pattern`` chooses broadcast or scatter-reduce. Making and
applying updates is the job of `mlless_nb.worker`.
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
from .restarts import FROM_THE_START, Aborted, Fenced, LostData, Restart, Restarted
from .slots import SUPERVISOR
from .step_report import LateArrival, StepEntry

__all__ = [
    "FROM_THE_START",
    "KINDS",
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
    "Pattern",
    "Plan",
    "RedisCoordinator",
    "Restart",
    "Restarted",
    "RoundRequest",
    "StepEntry",
    "choose_pattern",
    "probe",
]
