"""An object store that notes when each request began and ended, for the trace of an iteration."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from ..storage.objects import ObjectStore


class TracedObjects:
    """An `ObjectStore` around another one. Only objects of the run are traced, not the packed data.

    Parameters
    ----------
    objects : ObjectStore
    clock : callable
        Seconds.

    Attributes
    ----------
    spans : list
        Of each request: "get" or "put", key, begin, end, bytes.
    """

    def __init__(self, objects: ObjectStore, clock: Callable[[], float] = time.monotonic) -> None:
        self._objects, self._clock = objects, clock
        self.spans: list[list[Any]] = []

    @property
    def gets(self) -> int:
        """Reads so far."""
        return self._objects.gets

    @gets.setter
    def gets(self, count: int) -> None:
        self._objects.gets = count

    @property
    def puts(self) -> int:
        """Writes and listings so far."""
        return self._objects.puts

    @puts.setter
    def puts(self, count: int) -> None:
        self._objects.puts = count

    def get(self, key: str, first: int = 0, end: int | None = None) -> bytes:
        """See `ObjectStore`."""
        began = self._clock()
        blob = self._objects.get(key, first, end)
        self._note("get", key, began, blob)
        return blob

    def put(self, key: str, blob: bytes) -> None:
        """See `ObjectStore`."""
        began = self._clock()
        self._objects.put(key, blob)
        self._note("put", key, began, blob)

    def list(self, prefix: str) -> list[str]:
        """See `ObjectStore`."""
        return self._objects.list(prefix)

    def delete(self, keys: Sequence[str]) -> None:
        """See `ObjectStore`."""
        self._objects.delete(keys)

    def _note(self, what: str, key: str, began: float, blob: bytes) -> None:
        if key.startswith("runs/"):
            self.spans.append([what, key, began, self._clock(), len(blob)])
