"""Object storage: named blobs, through Lithops, or in memory for unit tests."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from .. import remedies
from ..errors import ServiceError
from .folder import Folder
from .request_tally import RequestTally, TallyEntry


class ObjectStore(Protocol):
    """Named blobs. ``gets`` and ``puts`` count the requests, for the meter (a listing is priced like a put)."""

    gets: int
    puts: int

    def get(self, key: str, first: int = 0, end: int | None = None) -> bytes:
        """The blob under ``key``; with ``end``, its bytes [first, end), fewer if the blob is shorter.

        Raises `KeyError` if there is no blob; a blob that ends before ``first`` may raise `ServiceError`.
        """

    def put(self, key: str, blob: bytes) -> None:
        """Store ``blob`` under ``key``, replacing what was there."""

    def list(self, prefix: str) -> list[str]:
        """The keys that begin with ``prefix``, sorted."""

    def delete(self, keys: Sequence[str]) -> None:
        """Remove ``keys``; those that do not exist are skipped."""


class MemoryObjects:
    """A dictionary as an object store, for unit tests and one-process runs."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.gets = 0
        self.puts = 0
        self.lock = threading.Lock()

    def count(self, *, gets: int = 0, puts: int = 0) -> None:
        """Count requests made past this class."""
        with self.lock:
            self.gets += gets
            self.puts += puts

    def get(self, key: str, first: int = 0, end: int | None = None) -> bytes:
        """See `ObjectStore`."""
        self.gets += 1
        return self.blobs[key] if end is None else self.blobs[key][first:end]

    def put(self, key: str, blob: bytes) -> None:
        """See `ObjectStore`."""
        self.count(puts=1)
        self.blobs[key] = bytes(blob)

    def list(self, prefix: str) -> list[str]:
        """See `ObjectStore`."""
        self.puts += 1
        return sorted(key for key in self.blobs if key.startswith(prefix))

    def sizes(self, prefix: str) -> dict[str, int]:
        """The sizes of the blobs whose keys begin with ``prefix``, bytes. A listing."""
        return {key: len(self.blobs[key]) for key in self.list(prefix)}

    def delete(self, keys: Sequence[str]) -> None:
        """See `ObjectStore`."""
        for key in keys:
            self.blobs.pop(key, None)


class LithopsObjects:
    """The bucket of a Lithops ``Storage`` as an object store; all keys lie below one prefix.

    Parameters
    ----------
    storage : lithops.Storage
        As Lithops passes it to a function, or as ``launch`` makes it in the driver.
    prefix : str
        Put before every key.
    bucket : str, optional
        None: the bucket that Lithops was configured with.
    """

    def __init__(self, storage: Any, prefix: str = "mlless-nb/", bucket: str | None = None) -> None:
        self._storage, self._bucket, self._prefix = storage, bucket or storage.bucket, prefix
        self._folder = _folder_of(storage, self._bucket)
        self.gets = 0
        self.puts = 0
        #: Called before each request, once it is counted.
        self.on_request: Callable[[], None] = lambda: None
        self._lock = threading.Lock()
        self._entry: TallyEntry | None = None

    @property
    def backend(self) -> str:
        """Lithops' name of the storage, e.g. "aws_s3"."""
        return str(getattr(self._storage, "backend", ""))

    @property
    def folder(self) -> Folder | None:
        """The folder of the objects on this machine; None if they are elsewhere."""
        return self._folder

    @property
    def client(self) -> Any:
        """The client of the storage's own library, None if Lithops has none."""
        get_client = getattr(self._storage, "get_client", None)
        return get_client() if get_client is not None else None

    def part_connections(self) -> None:
        """Leave open connections to the process that this one was forked from: what both sent would be garbled."""
        client: Any = self.client if self._folder is None else None
        if hasattr(client, "meta") and hasattr(client, "close"):  # botocore's opens new ones
            client.close()

    def place(self, key: str) -> tuple[str, str]:
        """The bucket and the whole name of the object under ``key``."""
        return self._bucket, self._prefix + key

    def count(self, *, gets: int = 0, puts: int = 0) -> None:
        """Count requests, also those made past this class."""
        with self._lock:
            self.gets += gets
            self.puts += puts
            if self._entry is not None:
                self._entry.note(self.gets, self.puts)
        self.on_request()

    def open_tally(self, key: str) -> RequestTally | None:
        """A new tally of functions' requests, under ``key``; None if the objects are not on this machine."""
        if self._folder is None:
            return None
        try:
            self._folder.put(self._prefix + key, b"")
            return RequestTally(self._folder.path(self._prefix + key))
        except OSError as error:
            raise self.failed(f"writing {key!r}", "PutObject", error) from error

    def keep_tally(self, key: str) -> None:
        """Count this process' requests in the tally under ``key``, too, if there is one that can be written."""
        if self._folder is not None:
            with contextlib.suppress(OSError):  # the run is over, or the disk refuses the requests, too
                self._entry = TallyEntry(self._folder.path(self._prefix + key))

    def failed(self, what: str, action: str, error: Exception) -> ServiceError:
        """The error to raise when ``what`` failed with ``error``; S3's has the remedy.

        Parameters
        ----------
        what : str
            E.g. "reading 'model'".
        action : str
            As IAM calls it: "GetObject".
        error : Exception
        """
        said = ""
        if self.backend == "aws_s3":
            region = getattr(getattr(self.client, "meta", None), "region_name", "")
            said = remedies.known(error, f"s3:{action}", region)
        return ServiceError(f"object storage: {what} failed: {said or error}")

    def get(self, key: str, first: int = 0, end: int | None = None) -> bytes:
        """See `ObjectStore`."""
        self.count(gets=1)
        if self._folder is not None:
            return self._folder.get(self._prefix + key, first, end)
        span = {} if end is None else {"extra_get_args": {"Range": f"bytes={first}-{end - 1}"}}
        try:
            return bytes(self._storage.get_object(self._bucket, self._prefix + key, **span))
        except Exception as error:
            if type(error).__name__ == "StorageNoSuchKeyError":
                raise KeyError(key) from None
            raise self.failed(f"reading {key!r}", "GetObject", error) from error

    def put(self, key: str, blob: bytes) -> None:
        """See `ObjectStore`."""
        self.count(puts=1)
        try:
            if self._folder is not None:
                self._folder.put(self._prefix + key, blob)
            else:
                self._storage.put_object(self._bucket, self._prefix + key, bytes(blob))
        except Exception as error:
            raise self.failed(f"writing {key!r}", "PutObject", error) from error

    def list(self, prefix: str) -> list[str]:
        """See `ObjectStore`."""
        self.count(puts=1)
        try:
            if self._folder is not None:
                keys = self._folder.list(self._prefix + prefix)
            else:
                keys = self._storage.list_keys(self._bucket, self._prefix + prefix)
        except Exception as error:
            raise self.failed(f"listing {prefix!r}", "ListBucket", error) from error
        return sorted(key[len(self._prefix) :] for key in keys)

    def sizes(self, prefix: str) -> dict[str, int]:
        """The sizes of the blobs whose keys begin with ``prefix``, bytes. A listing."""
        self.count(puts=1)
        try:
            if self._folder is not None:
                sizes = self._folder.sizes(self._prefix + prefix)
                return {key[len(self._prefix) :]: size for key, size in sizes.items()}
            found = self._storage.list_objects(self._bucket, self._prefix + prefix)
        except Exception as error:
            raise self.failed(f"listing {prefix!r} in {self._bucket}", "ListBucket", error) from error
        return {entry["Key"][len(self._prefix) :]: int(entry["Size"]) for entry in found}

    def delete(self, keys: Sequence[str]) -> None:
        """See `ObjectStore`."""
        if not keys:
            return
        if self._folder is not None:
            for key in keys:
                self._folder.delete(self._prefix + key)
            return
        try:
            self._storage.delete_objects(self._bucket, [self._prefix + key for key in keys])
        except Exception as error:
            raise self.failed(f"deleting {keys[0]!r}", "DeleteObject", error) from error

    def sweep(self, prefix: str) -> None:
        """Remove what killed processes of this machine have left of unfinished writes below ``prefix``, a folder."""
        if self._folder is not None:
            self._folder.sweep(self._prefix + prefix)


def _folder_of(storage: Any, bucket: str) -> Folder | None:
    """The folder of a bucket of Lithops' localhost storage; None for any other storage."""
    if getattr(storage, "backend", "") != "localhost":
        return None
    from lithops.storage.backends.localhost import localhost

    return Folder(f"{localhost.LITHOPS_TEMP_DIR}/{bucket}")
