"""Synchronisation protocols: which part of its update a worker publishes, and whom a step waits for. Pure.

A round policy in ``exchange/policies`` makes workers wait for each other. A new protocol is a file here, which
registers its specification (`register_sync`), and its policy there.
"""

from .asp import ASP
from .backup_workers import DBW, AdaSync, BackupWorkers
from .base import MOST_STALENESS, Sync, register_sync, registered_syncs, sync_from_json
from .bsp import BSP
from .isp import ISP
from .ssp import SSP

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
