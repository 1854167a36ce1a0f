"""Frame stores: where frames are kept between the worker that publishes them and the workers that read them.

``base`` is the interface, each store is one file, and ``rounds`` runs a worker's rounds over any store. Redis, the
default, needs no file here. A store keeps frames only; arrivals, leases, plan and budget stay on Redis.
"""

from .base import REDIS, FrameStore, Usage, check_store, open_store, register_store
from .rounds import StoredRounds

__all__ = ["REDIS", "FrameStore", "StoredRounds", "Usage", "check_store", "open_store", "register_store"]
