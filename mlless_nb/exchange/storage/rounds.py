"""A worker's rounds in the object storage: a frame is its publisher's arrival.

The object of a slot in a round begins with the slot's report, and the frame follows. A worker that waits asks for the
objects of its peers, each until it is there, at growing intervals: one that is found is a frame that it needs anyway.
Reads are cheaper than listings, which cost as much as a write. Of the workers of a round the last one to have written
finds all others' objects: it is the one that writes the step into the step log.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence

from ...errors import DecodeError, ServiceError
from ..protocol import WAIT_POLL_S, Frame, FrameKey, RoundRequest, frame_key
from ..restarts import Aborted, LostData, Restart, rounds_prefix
from ..step_report import Report
from ..stores import FrameStore

#: Each pause of a wait is longer than the one before by this factor: more looks cost more, and end a wait sooner.
GROWTH = 1.3
#: A name of a frame: round, publisher, receiver.
Name = tuple[str, int, int | None]
_REPORT_BYTES = len(Report().encode())


def packed(report: Report | None, frame: bytes) -> bytes:
    """An object of a round: a byte that tells whether there is a report, the report, the frame."""
    return b"\0" + frame if report is None else b"\1" + report.encode() + frame


def unpacked(blob: Frame) -> tuple[Report | None, Frame]:
    """The report and the frame in an object of a round; DecodeError if it is none."""
    view = memoryview(blob)
    if not view or view[0] > 1:
        raise DecodeError(f"not an arrival: {len(view)} bytes")
    if not view[0]:
        return None, view[1:]
    return Report.decode(bytes(view[1 : 1 + _REPORT_BYTES])), view[1 + _REPORT_BYTES :]


class StorageRounds:
    """The frames and arrivals of one worker, for one thread.

    Parameters
    ----------
    store : FrameStore
        Keeps the objects.
    pauses_s : (float, float)
        Seconds of the first and of the longest pause of a wait.
    """

    def __init__(self, store: FrameStore, pauses_s: tuple[float, float]) -> None:
        self._store, self._pauses_s, self._prefix = store, pauses_s, store.prefix
        self._written: defaultdict[int, deque[tuple[int, list[str]]]] = defaultdict(deque)  # by slot, oldest step first
        self._found: dict[Name, tuple[int, Report | None, Frame]] = {}  # with the step in which it was found

    def join(self, restart: Restart) -> None:
        """See `Coordinator`."""
        self._prefix = rounds_prefix(self._store.prefix, restart)
        self._written.clear()
        self._found.clear()

    # -- writing

    def put(self, part: RoundRequest) -> None:
        """Write what ``part`` publishes; what was written before is not written again."""
        written = {key for _, keys in self._written[part.slot] for key in keys}
        blobs = {
            key: packed(part.report, frame)
            for receiver, frame in part.outgoing.items()
            if (key := frame_key(self._prefix, part.round_id, part.slot, receiver)) not in written
        }
        if not blobs:
            return
        self.check(max(map(len, blobs.values())))
        self._store.put_many(blobs)
        self._written[part.slot].append((part.step, list(blobs)))

    def check(self, n_bytes: int) -> None:
        """Raise ServiceError if an object of ``n_bytes`` is too large."""
        most = self._store.max_frame_bytes
        if n_bytes > most:
            raise ServiceError(f"a frame of {n_bytes} bytes: {type(self._store).__name__} takes at most {most}")

    def drop(self, part: RoundRequest) -> None:
        """Delete the objects that all workers have read, and forget the peers'."""
        written, expired = self._written[part.slot], []
        while written and written[0][0] <= part.expired_step:
            expired += written.popleft()[1]
        if expired:
            self._store.delete_many(expired)
        for name in [name for name, (step, _, _) in self._found.items() if step <= part.expired_step]:
            del self._found[name]

    # -- reading

    def fetch(self, names: Sequence[Name], step: int) -> list[Frame | None]:
        """The frames of ``names`` in their order, None for one that is not there. ``step`` is the reader's."""
        missing = [name for name in names if name not in self._found]
        if missing:
            blobs = self._store.get_many([frame_key(self._prefix, *name) for name in missing])
            for name, blob in zip(missing, blobs, strict=True):
                if blob is not None:
                    self._found[name] = (step, *unpacked(blob))
        return [found[2] if (found := self._found.get(name)) is not None else None for name in names]

    def has_all(self, part: RoundRequest) -> bool:
        """Whether all other publishers have arrived, as far as this worker can see: at what is for it."""
        return None not in self.fetch(self._names(part, part.peers), part.step)

    def reports(self, part: RoundRequest) -> dict[int, Report]:
        """The reports of a round whose objects were all found, by slot."""
        found = {name[1]: self._found[name][1] for name in self._names(part, part.peers)}
        return {slot: report or Report() for slot, report in sorted({**found, part.slot: part.report}.items())}

    @staticmethod
    def _names(part: RoundRequest, slots: Sequence[int]) -> list[Name]:
        return [(part.round_id, slot, part.inbox) for slot in slots]

    def frames(self, part: RoundRequest, slots: list[int] | None) -> list[Frame]:
        """The peers' frames that count, in slot order; raises `LostData` if one is missing."""
        read = part.read_slots(slots)
        found = self.fetch(self._names(part, read), part.step)
        for slot, frame in zip(read, found, strict=True):
            if frame is None:
                where = self._store.goes_missing
                raise LostData(f"the update of worker {slot} in round {part.round_id} is gone from {where}")
        return [frame for frame in found if frame is not None]

    def poll(self, part: RoundRequest, keys: Sequence[FrameKey]) -> list[Frame | None]:
        """The frames of ``keys`` that are there, in their order."""
        return self.fetch([(round_id, slot, None) for round_id, slot in keys], part.step)

    # -- waiting

    def wait(self, part: RoundRequest, is_there: Callable[[], bool], each_poll: Callable[[], None]) -> None:
        """Wait until ``is_there()``, at most ``part.deadline_s`` seconds.

        ``each_poll`` is called every `WAIT_POLL_S` seconds.
        """
        pause_s, longest_s = self._pauses_s
        began = polled = time.monotonic()
        while not is_there():
            time.sleep(pause_s)
            pause_s, now = min(GROWTH * pause_s, longest_s), time.monotonic()
            if now - polled > WAIT_POLL_S:
                polled = now
                each_poll()
            if now - began > part.deadline_s:
                raise Aborted(f"round {part.round_id} did not complete within {part.deadline_s:g} s")
