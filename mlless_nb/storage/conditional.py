"""Writes on a condition: create an object if there is none, or replace it if it is still the one that was read.

This is what several processes need to change one object without losing each other's changes. The storages that have it
are the folder of this machine, and those that speak S3's protocol and honour ``If-None-Match`` and ``If-Match`` (S3
since November 2024, MinIO); whether they do is tried out, since others take a condition that they do not know for none.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from ..errors import JobError, ServiceError
from .clock import ServerClock, date_of
from .folder import tag_of
from .objects import LithopsObjects, MemoryObjects, ObjectStore

#: Lithops' storages with a client of boto3.
S3_FAMILY = ("aws_s3", "ceph", "ibm_cos", "minio")
#: Statuses of S3 for a condition that is not met, and for another write at the same moment.
NOT_MET = (409, 412)


def exchange_folder(job_id: str) -> str:
    """Prefix of the keys of what the processes of a job exchange: frames, and all coordination without a server."""
    return f"runs/{job_id}/frames/"


class Tagged(NamedTuple):
    """An object and the tag of its content: another content has another tag."""

    blob: bytes
    tag: str


class Conditional(Protocol):
    """An object storage that writes on a condition. Its requests are counted as those of its ``objects``."""

    #: Whether the objects are on this machine: then a request takes microseconds.
    has_local_objects: bool

    @property
    def objects(self) -> ObjectStore:
        """The storage whose objects these are."""

    def read(self, key: str) -> Tagged | None:
        """The object under ``key``; None if there is none."""

    def swap(self, key: str, blob: bytes, tag: str | None = None) -> str | None:
        """Write ``blob`` if the present content has the tag ``tag`` (None: if there is none).

        Returns the tag of what was written; None if the condition is not met. If an answer is lost on its way, a write
        that took place may be answered with None.
        """

    def now_s(self) -> float:
        """The storage's clock, seconds."""


class MemoryConditional:
    """The objects of one process."""

    has_local_objects = True

    def __init__(self, objects: MemoryObjects) -> None:
        self.objects = objects

    def read(self, key: str) -> Tagged | None:
        """See `Conditional`."""
        self.objects.count(gets=1)
        with self.objects.lock:
            blob = self.objects.blobs.get(key)
        return None if blob is None else Tagged(blob, tag_of(blob))

    def swap(self, key: str, blob: bytes, tag: str | None = None) -> str | None:
        """See `Conditional`."""
        self.objects.count(puts=1)
        with self.objects.lock:
            present = self.objects.blobs.get(key)
            if (None if present is None else tag_of(present)) != tag:
                return None
            self.objects.blobs[key] = bytes(blob)
            return tag_of(blob)

    def now_s(self) -> float:
        """See `Conditional`."""
        return time.time()


class FolderConditional:
    """The folder of this machine; the clock is the machine's, which all of its processes share and nobody sets."""

    has_local_objects = True

    def __init__(self, objects: LithopsObjects) -> None:
        assert objects.folder is not None
        self.objects, self._folder = objects, objects.folder

    def read(self, key: str) -> Tagged | None:
        """See `Conditional`."""
        try:
            blob = self.objects.get(key)
        except KeyError:
            return None
        return Tagged(blob, tag_of(blob))

    def swap(self, key: str, blob: bytes, tag: str | None = None) -> str | None:
        """See `Conditional`."""
        self.objects.count(puts=1)
        try:
            return tag_of(blob) if self._folder.swap(self.objects.place(key)[1], blob, tag) else None
        except OSError as error:
            raise ServiceError(f"object storage: writing {key!r} failed: {error}") from error

    def now_s(self) -> float:
        """See `Conditional`. The time of day may be set while a run goes on, and then leases and bills are wrong."""
        return time.clock_gettime(time.CLOCK_MONOTONIC)


class S3Conditional:
    """A bucket that boto3 reaches. The conditions are sent as headers, since older versions of boto3 do not name them.

    The clock is made from the ``Date`` of the answers, see `ServerClock`.
    """

    has_local_objects = False

    def __init__(self, objects: LithopsObjects) -> None:
        self.objects, self._client = objects, objects.client
        self._clock = ServerClock()
        self._wanted = threading.local()  # headers of the write that this thread makes
        self._client.meta.events.register("before-call.s3.PutObject", self._add_headers)

    def _add_headers(self, params: dict[str, Any], **_: Any) -> None:
        params["headers"].update(getattr(self._wanted, "headers", {}))

    def read(self, key: str) -> Tagged | None:
        """See `Conditional`."""
        self.objects.count(gets=1)
        bucket, name = self.objects.place(key)

        def get() -> Tagged:
            answer = self._timed(lambda: self._client.get_object(Bucket=bucket, Key=name))
            return Tagged(answer["Body"].read(), answer["ETag"])

        try:
            return get()
        except Exception as error:
            if _status_of(error) == 404:
                return None
            raise self.objects.failed(f"reading {key!r}", "GetObject", error) from error

    def swap(self, key: str, blob: bytes, tag: str | None = None) -> str | None:
        """See `Conditional`."""
        self.objects.count(puts=1)
        bucket, name = self.objects.place(key)
        self._wanted.headers = {"If-None-Match": "*"} if tag is None else {"If-Match": tag}
        try:
            answer = self._timed(lambda: self._client.put_object(Bucket=bucket, Key=name, Body=blob))
            return str(answer["ETag"])
        except Exception as error:
            # If-Match of an object that was removed is answered with 404.
            if _status_of(error) in NOT_MET or (tag is not None and _status_of(error) == 404):
                return None
            raise self.objects.failed(f"writing {key!r}", "PutObject", error) from error
        finally:
            self._wanted.headers = {}

    def _timed(self, request: Callable[[], Any]) -> Any:
        """The answer to ``request``, whose time the clock notes."""
        sent_s = time.monotonic()
        try:
            answer = request()
        except Exception as error:
            self._note(sent_s, getattr(error, "response", {}))
            raise
        self._note(sent_s, answer)
        return answer

    def _note(self, sent_s: float, answer: dict[str, Any]) -> None:
        metadata = answer.get("ResponseMetadata", {})
        date_s = date_of(metadata.get("HTTPHeaders", {}).get("date", ""))
        if date_s is not None and not metadata.get("RetryAttempts"):
            self._clock.note(sent_s, time.monotonic(), date_s)

    def now_s(self) -> float:
        """See `Conditional`. The first call makes a request."""
        if not self._clock.is_set:
            self.read("clock")
        return self._clock.now_s()


def _status_of(error: BaseException) -> int:
    """The HTTP status of an error of boto3; 0 if it has none."""
    response = getattr(error, "response", None) or {}
    return int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def conditional(objects: ObjectStore) -> Conditional:
    """The writes on a condition of ``objects``.

    Raises
    ------
    JobError
        The storage has none.
    """
    if isinstance(objects, MemoryObjects):
        return MemoryConditional(objects)
    if isinstance(objects, LithopsObjects):
        if objects.folder is not None:
            return FolderConditional(objects)
        if objects.backend in S3_FAMILY:
            return S3Conditional(objects)
        raise _unfit(objects.backend)
    raise _unfit(type(objects).__name__)


def check(storage: Conditional, prefix: str) -> None:
    """Try the conditions out on an object below ``prefix``, which is removed again: at most three writes.

    Raises
    ------
    JobError
        The storage writes although a condition is not met, or refuses conditions.
    ServiceError
        The storage does not answer.
    """
    if storage.has_local_objects:
        return
    key = f"{prefix}condition-{uuid.uuid4().hex}"
    try:
        is_kept = (
            storage.swap(key, b"1") is not None
            and storage.swap(key, b"2") is None
            and storage.swap(key, b"3", '"0"') is None
        )
    finally:
        storage.objects.delete([key])
    if not is_kept:
        raise _unfit(getattr(storage.objects, "backend", "this storage"))


def _unfit(backend: str) -> JobError:
    valid = f"'storage' with redis='redis://...': {backend} writes no object on a condition (S3 and MinIO do)"
    return JobError("store", "storage", valid)
