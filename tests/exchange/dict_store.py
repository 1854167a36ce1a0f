"""A frame store is one file: this one keeps frames in a dictionary that all threads of the process share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from mlless_nb.exchange import Frame
from mlless_nb.exchange.stores import FrameStore, register_store


@register_store("dict")
class DictStore(FrameStore):
    """The toy."""

    max_frame_bytes = 1 << 30
    kept: ClassVar[dict[str, bytes]] = {}

    def put_many(self, frames: Mapping[str, bytes]) -> None:
        for key, frame in frames.items():
            self.kept[key] = bytes(frame)
        self.count(n_puts=len(frames), put_bytes=sum(map(len, frames.values())))

    def get_many(self, keys: Sequence[str]) -> list[Frame | None]:
        found = [self.kept.get(key) for key in keys]
        self.count(n_gets=len(keys), got_bytes=sum(len(frame) for frame in found if frame is not None))
        return list(found)

    def delete_many(self, keys: Sequence[str]) -> None:
        for key in keys:
            self.kept.pop(key, None)
        self.count(n_deletes=len(keys))

    def clear(self) -> int:
        keys = [key for key in self.kept if key.startswith(self.prefix)]
        for key in keys:
            del self.kept[key]
        return len(keys)
