"""Frame stores: where frames are kept between the worker that publishes them and the workers that read them.

A store keeps frames only. Arrivals, leases, plan and budget stay with the coordinator, on Redis or in the object
storage. Redis, the default store, needs no file here.

::

    base.py       the interface and the registry
    memcached.py dynamodb.py storage.py server.py   one store each
    rounds.py     a worker's rounds over any store
    parts.py      cuts frames into parts, for stores whose items are small    pure
    wire.py       the messages between ``server`` and `mlless_nb.server`
"""

from .base import (
    REDIS,
    STORAGE,
    FrameStore,
    Usage,
    check_store,
    for_functions,
    most_frame_bytes,
    open_store,
    prepaid_nusd,
    register_store,
    shown,
    store_forms,
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
    "most_frame_bytes",
    "open_store",
    "prepaid_nusd",
    "register_store",
    "shown",
    "store_forms",
    "store_hosts",
    "store_kind",
    "store_servers",
]
