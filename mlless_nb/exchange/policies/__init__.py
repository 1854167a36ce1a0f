"""Round policies: whom a worker waits for in a step, and when it applies the peers' updates.

``base`` is the interface, and each policy is one file: ``lockstep``, and ``stale`` for bounded staleness. A protocol
(`mlless_nb.job.sync`) names its policy. How frames are transported is the coordinator's business.
"""

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
