"""Where frames lie between who publishes and who reads them, if not on Redis beside the arrivals: one file a store."""

from .base import REDIS, FrameStore, Usage, check_store, open_store, register_store
from .rounds import StoredRounds

__all__ = ["REDIS", "FrameStore", "StoredRounds", "Usage", "check_store", "open_store", "register_store"]
