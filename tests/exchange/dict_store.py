"""A frame store is one file: this one keeps frames in a dictionary that all threads of the process share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from mlless_nb.exchange import Frame
from mlless_nb.exchange.stores import FrameStore, Usage, register_store
from mlless_nb.storage.objects import ObjectStore


@register_store("dict")
class DictStore(FrameStore):
    """The toy."""

    max_frame_bytes = 1 << 20
    kept: ClassVar[dict[str, bytes]] = {}

    def __init__(self, prefix: str, objects: ObjectStore) -> None:
        super().__init__(prefix, objects)
        self._usage = Usage()

    def put_many(self, frames: Mapping[str, bytes]) -> None:
        for key, frame in frames.items():
            self.kept.setdefault(key, bytes(frame))
        n_bytes = sum(map(len, frames.values()))
        n_puts, put_bytes = self._usage.n_puts + len(frames), self._usage.put_bytes + n_bytes
        self._usage = self._usage._replace(n_puts=n_puts, put_bytes=put_bytes)

    def get_many(self, keys: Sequence[str]) -> list[Frame | None]:
        return [self.kept.get(key) for key in keys]

    def delete_many(self, keys: Sequence[str]) -> None:
        for key in keys:
            self.kept.pop(key, None)

    def clear(self) -> int:
        keys = [key for key in self.kept if key.startswith(self.prefix)]
        self.delete_many(keys)
        return len(keys)

    def usage(self) -> Usage:
        return self._usage
