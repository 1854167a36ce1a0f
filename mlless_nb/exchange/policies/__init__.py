"""Round policies: whom a worker waits for in a step, and when it applies the peers' updates.

A protocol (`mlless_nb.job.sync`) names its policy. The coordinator transports the frames.

::

    base.py                the interface and the registry
    lockstep.py            waits for all updates of the step: BSP, ISP
    stale.py               applies updates on arrival, waits only for peers that are too many steps behind: SSP, ASP,
                           ISP with staleness
    shared_model.py        waits like ``stale``; one model in the store: ASP(shared=True)
    quorum.py              waits for the first k updates: BackupWorkers, DBW, AdaSync
    outstanding_rounds.py  the rounds of ``stale`` with peer updates that are not applied yet    pure
    gradient_spread.py     size and spread of the gradients of a step, for DBW
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
