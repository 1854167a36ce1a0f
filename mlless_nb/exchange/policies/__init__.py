"""Who waits for whom in a step, and whose updates it takes: one file a policy; protocols (`job.sync`) name theirs."""

from .base import CompletedRound, RoundPolicy, Step, policy_of, register_policy
from .lockstep import Lockstep
from .stale import BoundedStaleness

__all__ = [
    "BoundedStaleness",
    "CompletedRound",
    "Lockstep",
    "RoundPolicy",
    "Step",
    "policy_of",
    "register_policy",
]
