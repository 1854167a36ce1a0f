"""Frames in the object storage that the functions use anyway, through Lithops: a store without a server.

The name of an object carries the step, the phase (the letter of `KINDS`), the publishing slot and, in an addressed
round, the receiver: ``runs/<job>/frames/3/12m-3-0``. Steps count across epochs. These are the two phases, merge and
update, of LambdaML, section 3.2.4; that a phase is complete is learnt from its arrivals instead of by listing objects:
these are on Redis, or, in a job without one, are the frames themselves (``exchange/storage``).

An object ends with a mark and the length of its frame: some backends (a folder, as on localhost) let an object be read
while it is written, and a part of it must not pass for the whole.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ...money import Rates
from ...storage.conditional import exchange_folder
from ...storage.objects import ObjectStore
from ..protocol import Frame
from .base import STORAGE, FrameStore, Usage, register_store

_END, _MARK = struct.Struct("<8sQ"), b"\x93end\xf0\xa1\r\n"
#: Most requests of one worker at the same time. A request to a cloud takes some 80 ms (LambdaML, table 6).
AT_ONCE = 16

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@register_store(STORAGE)
class StorageStore(FrameStore):
    """Frames as objects. Their requests are counted, and billed, with all others of the function to the storage."""

    max_frame_bytes = 5_000_000_000 - _END.size  # of one request to S3 or IBM Cloud Object Storage
    component = "storage"
    goes_missing = "the object storage (is there a rule that expires or removes objects?)"
    # A read that finds nothing is billed too.
    pauses_s = (0.02, 0.5)

    #: Prefix of all keys of the job's frames.
    folder: str

    def __init__(self, prefix: str, objects: ObjectStore, address: str = "") -> None:
        super().__init__(prefix, objects, address)
        # ``mlless:{<job>}:``
        self.folder = exchange_folder(prefix.removeprefix("mlless:").rstrip(":").strip("{}"))
        self._threads: ThreadPoolExecutor | None = None

    def _name(self, key: str) -> str:
        """The object of a frame's key, ``mlless:{<job>}:[<restart>:]frame:<round>:<slot>[><receiver>]``."""
        restart, _, rest = key.removeprefix(self.prefix).rpartition("frame:")
        round_id, _, rest = rest.partition(":")
        slot, _, receiver = rest.partition(">")
        # Publishers that write into one folder of this machine at the same time would wait for each other.
        return f"{self.folder}{slot}/{restart.replace(':', '-')}{round_id}-{slot}-{receiver}".rstrip("-")

    def _each(self, action: Callable[[_Item], _Result], items: Iterable[_Item]) -> list[_Result]:
        """``action`` of all ``items``, at the same time."""
        items = list(items)
        if len(items) < 2 or getattr(self.objects, "folder", None) is not None:
            return [action(item) for item in items]
        if self._threads is None:
            self._threads = ThreadPoolExecutor(AT_ONCE, "mlless-frames")
        return list(self._threads.map(action, items))

    def put_many(self, frames: Mapping[str, bytes]) -> None:
        """See `FrameStore`."""
        self._each(self._put, frames.items())
        self.count(n_puts=len(frames), put_bytes=sum(map(len, frames.values())))

    def _put(self, item: tuple[str, bytes]) -> None:
        key, frame = item
        self.objects.put(self._name(key), frame + _END.pack(_MARK, len(frame)))

    def get_many(self, keys: Sequence[str]) -> list[Frame | None]:
        """See `FrameStore`."""
        found = self._each(self._get, keys)
        self.count(n_gets=len(keys), got_bytes=sum(len(frame) for frame in found if frame is not None))
        return found

    def _get(self, key: str) -> Frame | None:
        try:
            blob = memoryview(self.objects.get(self._name(key)))
        except KeyError:
            return None
        n_bytes = len(blob) - _END.size
        is_whole = n_bytes >= 0 and _END.unpack_from(blob, n_bytes) == (_MARK, n_bytes)
        return blob[:n_bytes] if is_whole else None

    def delete_many(self, keys: Sequence[str]) -> None:
        """See `FrameStore`."""
        self.objects.delete([self._name(key) for key in keys])
        self.count(n_deletes=len(keys))

    def clear(self) -> int:
        """See `FrameStore`. Takes one listing."""
        names = self.objects.list(self.folder)
        self.objects.delete(names)
        return len(names)

    @classmethod
    def price_nusd(cls, usage: Usage, rates: Rates) -> int:
        """See `FrameStore`. Deleting is free."""
        return rates.requests_nusd(usage.n_gets, usage.n_puts)

    def cost_nusd(self, rates: Rates) -> int:
        """0: the function's object storage counts these requests itself."""
        return 0

    def close(self) -> None:
        """See `FrameStore`."""
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown()
