"""Frame stores: where frames are kept between the worker that publishes them and the workers that read them.

``base`` is the interface, each store is one file, and ``rounds`` runs a worker's rounds over any store; ``parts`` cuts
frames for stores with small items. Redis, the default, needs no file here. A store keeps frames only; arrivals,
leases, plan and budget stay on Redis, or are in the object storage, too.
"""

from .base import (
    REDIS,
    STORAGE,
    FrameStore,
    Usage,
    check_store,
    for_functions,
    open_store,
    prepaid_nusd,
    register_store,
    shown,
    store_hosts,
    store_kind,
    store_servers,
)
from .dynamodb import DynamoDBStore
from .memcached import MemcachedStore
from .rounds import StoredRounds
from .server import ServerStore
from .storage import StorageStore

__all__ = [
    "REDIS",
    "STORAGE",
    "DynamoDBStore",
    "FrameStore",
    "MemcachedStore",
    "ServerStore",
    "StorageStore",
    "StoredRounds",
    "Usage",
    "check_store",
    "for_functions",
    "open_store",
    "prepaid_nusd",
    "register_store",
    "shown",
    "store_hosts",
    "store_kind",
    "store_servers",
]
