"""The object storage of this machine: a folder, as Lithops' localhost backend lays it out, with atomic writes.

Lithops writes an object in place, so that another process may read a part of it. Here a write makes a temporary file
and renames it, and a write on a condition holds a lock of the object's folder meanwhile. Names that begin with a dot
are temporary files, which are not listed.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import threading
from pathlib import Path

from ..file_locks import locked

#: Tries of a write whose folder another process removes because it was empty.
TRIES = 100
#: Longest wait for a folder's lock, seconds: as long as for servers that are away.
LOCK_S = 60.0
#: The program of functions of this machine. One that is stopped with a folder's lock for as long as a lease lasts is
#: lost, but nobody could take its slot: it is killed.
FUNCTION, LEASE_S = str(Path(__file__).resolve().parents[1] / "function" / "preload.py"), 15.0
_numbers = itertools.count()


class Folder:
    """Objects as files below ``root``; the functions of one machine share it.

    Parameters
    ----------
    root : str
        Absolute path; made with the first write.
    """

    def __init__(self, root: str) -> None:
        self._root = root

    def path(self, key: str) -> str:
        """Where the object is."""
        return os.path.join(self._root, key)

    def get(self, key: str, first: int = 0, end: int | None = None) -> bytes:
        """The object's bytes [first, end), or all of it; raises `KeyError` if there is none."""
        try:
            with open(self.path(key), "rb", buffering=0) as file:
                if end is None:
                    return file.readall()
                file.seek(first)
                return file.read(end - first) or b""
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise KeyError(key) from None

    def put(self, key: str, blob: bytes) -> None:
        """Write an object, in the place of an older one."""
        path = self.path(key)
        os.replace(_draft(path, blob), path)

    def swap(self, key: str, blob: bytes, tag: str | None) -> bool:
        """Write an object if its present content has the tag ``tag`` (None: if there is none); whether it was.

        Raises `TimeoutError` if another process, which may be stopped, holds the folder's lock for `LOCK_S`; a function
        that is stopped is killed.
        """
        path = self.path(key)
        draft = _draft(path, blob)  # while it is there, nobody removes the folder whose lock is held
        try:
            with locked(os.path.dirname(path), LOCK_S, FUNCTION, LEASE_S):
                try:
                    present = tag_of(self.get(key))
                except KeyError:
                    present = None
                if present == tag:
                    os.replace(draft, path)
                return present == tag
        finally:
            with contextlib.suppress(FileNotFoundError):  # it was renamed
                os.remove(draft)

    def list(self, prefix: str) -> list[str]:
        """The keys that begin with ``prefix``, sorted."""
        base = self.path(os.path.dirname(prefix)) if "/" in prefix else self._root
        found = []
        for folder, _, names in os.walk(base):
            relative = os.path.relpath(folder, self._root)
            start = "" if relative == "." else relative + "/"
            found += [key for name in names if not name.startswith(".") and (key := start + name).startswith(prefix)]
        return sorted(found)

    def sizes(self, prefix: str) -> dict[str, int]:
        """The sizes of the objects whose keys begin with ``prefix``, bytes, sorted by key."""
        found = {}
        for key in self.list(prefix):
            with contextlib.suppress(FileNotFoundError):  # it was removed meanwhile
                found[key] = os.stat(self.path(key)).st_size
        return found

    def sweep(self, prefix: str) -> None:
        """Remove what writers that were killed have left below the folder ``prefix``; nobody may be writing there."""
        for folder, _, names in os.walk(self.path(prefix), topdown=False):
            for name in names:
                if name.startswith("."):
                    with contextlib.suppress(OSError):
                        os.remove(os.path.join(folder, name))
            with contextlib.suppress(OSError):
                os.rmdir(folder)

    def delete(self, key: str) -> None:
        """Remove an object if there is one, and folders that are empty then."""
        path = self.path(key)
        with contextlib.suppress(OSError):
            os.remove(path)
        with contextlib.suppress(OSError):
            while (path := os.path.dirname(path)) != self._root and path.startswith(self._root):
                os.rmdir(path)


def tag_of(blob: bytes) -> str:
    """A digest of an object's content, like the entity tag of S3."""
    return hashlib.md5(blob, usedforsecurity=False).hexdigest()


def _draft(path: str, blob: bytes) -> str:
    """Write ``blob`` to a new file in the folder of ``path``, which is made if it is missing; returns its path."""
    folder, name = os.path.split(path)
    draft = os.path.join(folder, f".{name}-{os.getpid()}-{threading.get_ident()}-{next(_numbers)}")
    for _ in range(TRIES):
        try:
            with open(draft, "wb", buffering=0) as file:
                rest = memoryview(blob)
                while rest:
                    rest = rest[file.write(rest) :]
            return draft
        except FileNotFoundError:
            # Another process may remove the folder again, or one above it; if it does so between makedirs' two looks
            # at it, the folder counts as a file that is in the way. A real one fails at the next try of open().
            with contextlib.suppress(FileNotFoundError, FileExistsError):
                os.makedirs(folder, exist_ok=True)
        except BaseException:
            with contextlib.suppress(OSError):
                os.remove(draft)
            raise
    raise OSError(f"{folder} is removed over and over")
