"""A worker's rounds over a frame store: the worker first writes its frames to the store, then arrives on Redis.

So a worker that learns that a round is complete finds every frame. A worker that waits for frames of incomplete rounds
polls the store at growing intervals, because nothing wakes it.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from ...errors import ServiceError
from ..frame_count import FrameCount
from ..in_parts import exchange_in_parts
from ..protocol import (
    MODEL,
    WAIT_POLL_S,
    Arrival,
    Closing,
    Exchanged,
    Frame,
    FrameKey,
    RoundRequest,
    frame_key,
    frame_keys,
)
from ..restarts import Aborted, LostData, Restart, rounds_prefix
from .base import FrameStore


class RoundBackend(Protocol):
    """Arrivals and waiting, without frames: see `mlless_nb.exchange.redis.rounds.Rounds`."""

    def join(self, restart: Restart) -> None:
        """See `Coordinator`."""

    def publish(self, part: RoundRequest) -> Arrival:
        """Arrive."""

    def wait(self, part: RoundRequest, pay: Callable[[], None]) -> Closing | None:
        """Wait until the round is complete."""

    def catch_up(self, part: RoundRequest) -> tuple[Arrival, list[Closing]]:
        """The complete rounds that a late worker has missed."""

    def poll(self, part: RoundRequest) -> bool:
        """Whether the round is complete now; raises `Aborted` if the run was aborted."""

    def arrived(self, round_ids: Sequence[str]) -> set[FrameKey]:
        """The slots that have arrived at each of the rounds."""

    def close(self) -> None:
        """Release the connections."""


class StoredRounds:
    """The worker's part of a `Coordinator` over a `FrameStore`, for one thread.

    Parameters
    ----------
    rounds : RoundBackend
    store : FrameStore
    """

    def __init__(self, rounds: RoundBackend, store: FrameStore) -> None:
        self._rounds, self._store, self._prefix = rounds, store, store.prefix
        # Keys of frames by slot, oldest step first.
        self._kept: defaultdict[int, deque[tuple[int, list[str]]]] = defaultdict(deque)

    def join(self, restart: Restart) -> None:
        """See `Coordinator`."""
        self._rounds.join(restart)
        self._prefix = rounds_prefix(self._store.prefix, restart)
        self._kept.clear()

    def close(self) -> None:
        """Release the connections. Idempotent."""
        self._rounds.close()
        self._store.close()

    def frame_count(self) -> FrameCount:
        """See `CountsFrames`."""
        return self._store.frame_count()

    def publish(self, part: RoundRequest) -> Arrival:
        """See `Coordinator`."""
        if part.is_awaited:
            self._put(part)
        arrival = self._rounds.publish(replace(part, frame=b"", parts={}))
        self._drop(part)
        return arrival

    def _put(self, part: RoundRequest) -> None:
        # A store replaces what it has under a key, and a peer may have read it: a repeated request writes nothing.
        stored = {key for _, keys in self._kept[part.slot] for key in keys}
        frames = {
            key: frame
            for receiver, frame in part.outgoing.items()
            if (key := frame_key(self._prefix, part.round_id, part.slot, receiver)) not in stored
        }
        if frames:
            self._put_many(frames)
            self._kept[part.slot].append((part.step, list(frames)))

    def _put_many(self, frames: dict[str, bytes]) -> None:
        most = self._store.max_frame_bytes
        for frame in frames.values():
            if len(frame) > most:
                raise ServiceError(f"a frame of {len(frame)} bytes: {type(self._store).__name__} takes at most {most}")
        self._store.put_many(frames)

    def _drop(self, part: RoundRequest) -> None:
        """Delete the frames that all workers have read."""
        kept, expired = self._kept[part.slot], []
        while kept and kept[0][0] <= part.expired_step:
            expired += kept.popleft()[1]
        if expired:
            self._store.delete_many(expired)

    def wait(self, part: RoundRequest, pay: Callable[[], None]) -> Closing | None:
        """See `Coordinator`."""
        return self._rounds.wait(part, pay)

    def catch_up(self, part: RoundRequest) -> tuple[Arrival, list[Closing]]:
        """See `Coordinator`."""
        return self._rounds.catch_up(part)

    def put_model(self, frame: bytes) -> None:
        """See `Coordinator`."""
        self._put_many({frame_key(self._prefix, *MODEL): frame})

    def get_model(self) -> Frame | None:
        """See `Coordinator`."""
        return self._store.get_many([frame_key(self._prefix, *MODEL)])[0]

    def frames(self, part: RoundRequest, slots: list[int] | None = None) -> list[Frame]:
        """See `Coordinator`."""
        read = part.read_slots(slots)
        found = self._store.get_many(frame_keys(self._prefix, part.round_id, read, part.inbox))
        for slot, frame in zip(read, found, strict=True):
            if frame is None:
                raise self._lost(part.round_id, slot)
        return [frame for frame in found if frame is not None]

    def exchange(self, part: RoundRequest, pay: Callable[[], None]) -> Exchanged:
        """See `Coordinator`."""
        return exchange_in_parts(self, part, pay)

    def publish_and_poll(self, part: RoundRequest, keys: Sequence[FrameKey]) -> tuple[Arrival, list[Frame | None]]:
        """See `Coordinator`."""
        arrival = self.publish(part)
        return arrival, self._poll(keys)

    def wait_for_any(self, part: RoundRequest, keys: Sequence[FrameKey], pay: Callable[[], None]) -> list[Frame | None]:
        """See `Coordinator`."""
        began, polled, (pause_s, longest_s) = time.monotonic(), 0.0, self._store.pauses_s
        while True:
            found = self._poll(keys)
            if any(frame is not None for frame in found):
                return found
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, longest_s)
            waited = time.monotonic() - began
            if waited - polled > WAIT_POLL_S:
                polled = waited
                self._rounds.poll(part)
                pay()
                found = self._poll_again(keys)
                if any(frame is not None for frame in found):
                    return found
            if waited > part.deadline_s:
                raise Aborted(f"round {part.round_id} did not complete within {part.deadline_s:g} s")

    def _poll_again(self, keys: Sequence[FrameKey]) -> list[Frame | None]:
        """`_poll`; raises `LostData` if a frame is missing although its publisher has arrived."""
        arrived = self._rounds.arrived(sorted({round_id for round_id, _ in keys}))
        found = self._poll(keys)
        for one, frame in zip(keys, found, strict=True):
            if frame is None and one in arrived:
                raise self._lost(*one)
        return found

    def _lost(self, round_id: str, slot: int) -> LostData:
        return LostData(f"the update of worker {slot} in round {round_id} is gone from {self._store.goes_missing}")

    def _poll(self, keys: Sequence[FrameKey]) -> list[Frame | None]:
        names = [frame_key(self._prefix, round_id, slot, None) for round_id, slot in keys]
        return self._store.get_many(names) if names else []
