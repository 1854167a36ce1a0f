"""Where frames are kept in the tests of the stores: each kind of store, on a real server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from servers import S3_BUCKET

from mlless_nb.exchange.stores import FrameStore, MemcachedStore, open_store
from mlless_nb.storage.objects import MemoryObjects, ObjectStore


@dataclass
class Place:
    """A store as a job names it, the object storage beside it, and what is left of a job in it."""

    store: str
    objects: ObjectStore
    left: Callable[[str], list[str]]

    def open(self, job_id: str) -> FrameStore:
        """The store of a job, ready for frames."""
        store = self.connect(job_id)
        store.check()
        store.create()
        return store

    def connect(self, job_id: str) -> FrameStore:
        """The store of a job as another process of it opens it."""
        store = open_store(self.store, f"mlless:{{{job_id}}}:", self.objects)
        assert store is not None
        return store


def listed(url: str) -> list[str]:
    """The keys of all items on a memcached."""
    store = open_store(url, "mlless:", MemoryObjects())
    assert isinstance(store, MemcachedStore)
    keys = [key.decode() for server in store._servers for key in server.names()]
    store.close()
    return keys


def kept_on(url: str, prefix: str) -> list[str]:
    """The first frames of a job that are on a frame server."""
    store = open_store(url, prefix, MemoryObjects())
    assert store is not None
    keys = [f"{prefix}frame:{round_id}:{slot}{to}" for round_id in "12" for slot in "012" for to in ("", ">0")]
    keys.append(f"{prefix}frame:7m:7>7")
    kept = [key for key, frame in zip(keys, store.get_many(keys), strict=True) if frame is not None]
    store.close()
    return kept


def run_objects(s3: Any) -> list[str]:
    """The keys that runs have left in the bucket."""
    keys = [entry["Key"] for entry in s3.list_objects_v2(Bucket=S3_BUCKET).get("Contents", [])]
    return [key for key in keys if not key.startswith(("mlless-nb/datasets/", "lithops."))]
