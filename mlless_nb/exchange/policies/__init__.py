"""Round policies: whom a worker waits for in a step, and when it applies the peers' updates.

``base`` is the interface, and each policy is one file: ``lockstep``, ``stale`` for bounded staleness, ``shared_model``,
and ``quorum`` for backup workers. A protocol (`mlless_nb.job.sync`) names its policy. How frames are transported is the
coordinator's business.
"""

from .base import CompletedRound, RoundPolicy, Step, policy_of, register_policy
from .lockstep import Lockstep
from .quorum import FirstUpdatesRounds
from .shared_model import SharedModel
from .stale import BoundedStaleness

__all__ = [
    "BoundedStaleness",
    "CompletedRound",
    "FirstUpdatesRounds",
    "Lockstep",
    "RoundPolicy",
    "SharedModel",
    "Step",
    "policy_of",
    "register_policy",
]
