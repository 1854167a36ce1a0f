"""Synchronisation protocols: which part of its update a worker publishes, and whom a step waits for. Pure.

A new protocol is a specification in this folder (`register_sync`). It names a round policy, which makes workers wait
for each other: one of ``exchange/policies``, or a new one there. ``base`` is the interface; ``backup_workers`` has
`BackupWorkers`, `DBW` and `AdaSync`, and each other file has one protocol.
"""

from .base import MOST_STALENESS, Sync, register_sync, registered_syncs, sync_from_json

# Messages name them in this order.
# isort: off
from .bsp import BSP
from .isp import ISP
from .ssp import SSP
from .asp import ASP
from .backup_workers import DBW, AdaSync, BackupWorkers

# isort: on

__all__ = [
    "ASP",
    "BSP",
    "DBW",
    "ISP",
    "MOST_STALENESS",
    "SSP",
    "AdaSync",
    "BackupWorkers",
    "Sync",
    "register_sync",
    "registered_syncs",
    "sync_from_json",
]
