"""How many frames a function has put into the store and got from it, and their bytes."""

from __future__ import annotations

from collections.abc import Collection, Sequence, Sized
from typing import NamedTuple, Protocol, TypeVar

_Puts = TypeVar("_Puts", bound=Collection[Sized])
_Gets = TypeVar("_Gets", bound=Collection[Sized | None])


class FrameCount(NamedTuple):
    """Requests of one function to the store of frames, and the bytes of the frames that they moved.

    The bytes are those that the store has: of a sealed frame with its seal, and without a Redis with the report that
    arrives with it. The requests by which such a run is coordinated count, too.
    """

    n_puts: int = 0
    n_gets: int = 0
    put_bytes: int = 0
    got_bytes: int = 0

    @classmethod
    def of(cls, numbers: Sequence[int]) -> FrameCount:
        """The count in the ``numbers`` of a message; of nothing if they are not as many."""
        return cls(*numbers) if len(numbers) == len(cls._fields) else NO_FRAMES

    @classmethod
    def total(cls, counts: Collection[FrameCount]) -> FrameCount:
        """The sum of ``counts``."""
        return cls(*map(sum, zip(*counts, strict=True))) if counts else NO_FRAMES


NO_FRAMES = FrameCount()
_new_tuple = tuple.__new__  # called in every step: quicker than a named tuple's own


class CountsFrames(Protocol):
    """What knows how many frames it has moved."""

    def frame_count(self) -> FrameCount:
        """The frames that this process has put and got so far."""


class FrameCounter:
    """Counts frames as they are handed over: what is put once it is there, and what is got once it is read."""

    def __init__(self) -> None:
        self._n_puts = self._n_gets = self._put_bytes = self._got_bytes = 0

    def exchanged(self, put: Collection[Sized], got: Collection[Sized]) -> None:
        """Count the frames that a round has ``put`` and ``got``; called in every step: quicker than one by one."""
        self._n_puts += len(put)
        self._put_bytes += sum(map(len, put))
        self._n_gets += len(got)
        self._got_bytes += sum(map(len, got))

    def put(self, frames: _Puts) -> _Puts:
        """Count ``frames`` as put, and return them."""
        self._n_puts += len(frames)
        self._put_bytes += sum(map(len, frames))
        return frames

    def got(self, frames: _Gets) -> _Gets:
        """Count the answers ``frames``, None for one that was not there, and return them."""
        self._n_gets += len(frames)
        self._got_bytes += sum(map(len, filter(None, frames)))
        return frames

    def frame_count(self) -> FrameCount:
        """See `CountsFrames`."""
        return _new_tuple(FrameCount, (self._n_puts, self._n_gets, self._put_bytes, self._got_bytes))
