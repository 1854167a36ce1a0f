"""Sealed frames, for servers that are not this package's own: the one place where frames are sealed and opened.

A seal is a random number and a tag, appended to the frame. The tag is that of Poly1305 over the frame's bytes, under a
key for this frame alone: HMAC-SHA256 of its name and the random number, under a key of the job. Only the job's
functions have that one, which travels in their invocations. So whoever can write to the server can neither make an
update, nor change one, nor put one in the place of another: of another round, slot, receiver or job. The model that
asynchronous workers share is written again and again under one name, so an older one could be put back. (HMAC-SHA256
of whole frames takes twice as long, and six times on processors without instructions for SHA-256.)

A frame whose seal is wrong is refused before anything in it is read. On the private embedded server, which only this
user's processes reach, frames are not sealed.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from ..errors import DecodeError
from ..kernels import poly1305
from .frame_count import CountsFrames, FrameCount
from .protocol import MODEL, Arrival, Closing, Exchanged, Frame, FrameKey, RoundRequest, frame_key
from .restarts import Restart

#: Bytes of a seal's random number and of its tag, and those that it adds to a frame.
NONCE_BYTES = TAG_BYTES = 16
SEAL_BYTES = NONCE_BYTES + TAG_BYTES


class Seal:
    """Seals and opens the frames of one job.

    Parameters
    ----------
    key : bytes
        At least 16 bytes, which only functions of the job have.
    prefix : str
        Prefix of the names of the job's frames.

    Attributes
    ----------
    n_refused : int
        Frames that were refused so far.
    """

    def __init__(self, key: bytes, prefix: str) -> None:
        if len(key) < 16:
            raise ValueError("a key of seals: must have at least 16 bytes")
        self._begun, self._prefix = hmac.new(key, digestmod="sha256"), prefix
        self.n_refused = 0

    def _tag(self, frame: Frame, nonce: Frame, round_id: str, slot: int, receiver: int | None) -> bytes:
        key = self._begun.copy()  # the key's two blocks are hashed once
        # The random number has a fixed length, so no name and number look like another name and number.
        key.update(frame_key(self._prefix, round_id, slot, receiver).encode())
        key.update(nonce)
        return poly1305(frame, key.digest())

    def sealed(self, frame: bytes, round_id: str, slot: int, receiver: int | None) -> bytes:
        """``frame`` with its seal, as that of ``slot`` for ``receiver`` (None: for all) in a round."""
        nonce = os.urandom(NONCE_BYTES)
        return b"".join((frame, nonce, self._tag(frame, nonce, round_id, slot, receiver)))

    def opened(self, sealed: Frame, round_id: str, slot: int, receiver: int | None) -> Frame:
        """The frame in ``sealed``, a view of it.

        Raises
        ------
        DecodeError
            If it was not sealed by a function of the job as this frame of this round.
        """
        view = memoryview(sealed)
        frame, nonce, tag = view[:-SEAL_BYTES], view[-SEAL_BYTES:-TAG_BYTES], view[-TAG_BYTES:]
        if len(view) >= SEAL_BYTES and hmac.compare_digest(tag, self._tag(frame, nonce, round_id, slot, receiver)):
            return frame
        self.n_refused += 1
        what = (
            "the shared model" if (round_id, slot) == MODEL[:2] else f"the update of worker {slot} in round {round_id}"
        )
        count = "" if self.n_refused == 1 else f"; {self.n_refused} were refused so far"
        raise DecodeError(f"{what} was refused, its seal is wrong: something else than this run wrote it{count}")


class WorkerRounds(CountsFrames, Protocol):
    """The worker's part of a `Coordinator`, see there."""

    def join(self, restart: Restart) -> None:
        """See `Coordinator`."""

    def publish(self, part: RoundRequest) -> Arrival:
        """See `Coordinator`."""

    def wait(self, part: RoundRequest, pay: Callable[[], None]) -> Closing | None:
        """See `Coordinator`."""

    def frames(self, part: RoundRequest, slots: list[int] | None = None) -> list[Frame]:
        """See `Coordinator`."""

    def exchange(self, part: RoundRequest, pay: Callable[[], None]) -> Exchanged:
        """See `Coordinator`."""

    def publish_and_poll(self, part: RoundRequest, keys: Sequence[FrameKey]) -> tuple[Arrival, list[Frame | None]]:
        """See `Coordinator`."""

    def wait_for_any(self, part: RoundRequest, keys: Sequence[FrameKey], pay: Callable[[], None]) -> list[Frame | None]:
        """See `Coordinator`."""

    def catch_up(self, part: RoundRequest) -> tuple[Arrival, list[Closing]]:
        """See `Coordinator`."""

    def put_model(self, frame: bytes) -> None:
        """See `Coordinator`."""

    def get_model(self) -> Frame | None:
        """See `Coordinator`."""

    def close(self) -> None:
        """Release the connections."""


class SealedRounds:
    """`WorkerRounds` whose frames are sealed, over any others. Reading raises as `Seal.opened`.

    Parameters
    ----------
    rounds : WorkerRounds
    seal : Seal
    """

    def __init__(self, rounds: WorkerRounds, seal: Seal) -> None:
        self._rounds, self._seal = rounds, seal

    def close(self) -> None:
        """Release the connections. Idempotent."""
        self._rounds.close()

    def frame_count(self) -> FrameCount:
        """See `CountsFrames`."""
        return self._rounds.frame_count()

    def join(self, restart: Restart) -> None:
        """See `Coordinator`."""
        self._rounds.join(restart)

    def _sealed(self, part: RoundRequest) -> RoundRequest:
        """``part`` with sealed frames; as it is if nobody reads them."""
        if not part.is_awaited:
            return part
        seal, round_id, slot = self._seal, part.round_id, part.slot
        if part.parts is None:
            return replace(part, frame=seal.sealed(part.frame, round_id, slot, None))
        parts = {to: seal.sealed(frame, round_id, slot, to) for to, frame in part.parts.items() if to != slot}
        return replace(part, parts=parts)

    def _opened(self, part: RoundRequest, slots: list[int], frames: list[Frame]) -> list[Frame]:
        named = zip(slots, frames, strict=True)
        return [self._seal.opened(frame, part.round_id, slot, part.inbox) for slot, frame in named]

    def _found(self, keys: Iterable[FrameKey], frames: Iterable[Frame | None]) -> list[Frame | None]:
        named = zip(keys, frames, strict=True)
        return [None if frame is None else self._seal.opened(frame, *key, None) for key, frame in named]

    def publish(self, part: RoundRequest) -> Arrival:
        """See `Coordinator`."""
        return self._rounds.publish(self._sealed(part))

    def wait(self, part: RoundRequest, pay: Callable[[], None]) -> Closing | None:
        """See `Coordinator`."""
        return self._rounds.wait(part, pay)

    def catch_up(self, part: RoundRequest) -> tuple[Arrival, list[Closing]]:
        """See `Coordinator`."""
        return self._rounds.catch_up(part)

    def frames(self, part: RoundRequest, slots: list[int] | None = None) -> list[Frame]:
        """See `Coordinator`."""
        return self._opened(part, part.read_slots(slots), self._rounds.frames(part, slots))

    def exchange(self, part: RoundRequest, pay: Callable[[], None]) -> Exchanged:
        """See `Coordinator`."""
        done = self._rounds.exchange(self._sealed(part), pay)
        return done._replace(frames=self._opened(part, part.read_slots(done.slots), done.frames))

    def publish_and_poll(self, part: RoundRequest, keys: Sequence[FrameKey]) -> tuple[Arrival, list[Frame | None]]:
        """See `Coordinator`."""
        arrival, frames = self._rounds.publish_and_poll(self._sealed(part), keys)
        return arrival, self._found(keys, frames)

    def wait_for_any(self, part: RoundRequest, keys: Sequence[FrameKey], pay: Callable[[], None]) -> list[Frame | None]:
        """See `Coordinator`."""
        return self._found(keys, self._rounds.wait_for_any(part, keys, pay))

    def put_model(self, frame: bytes) -> None:
        """See `Coordinator`."""
        self._rounds.put_model(self._seal.sealed(frame, *MODEL))

    def get_model(self) -> Frame | None:
        """See `Coordinator`."""
        frame = self._rounds.get_model()
        return None if frame is None else self._seal.opened(frame, *MODEL)
