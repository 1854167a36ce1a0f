"""The interface of a frame store: it keeps updates between the worker that publishes them and those that read them.

Redis, the default, needs no file here: its frames are sent in the same write as the arrival (``exchange/redis``). Every
other store keeps frames only; arrivals, leases, plan and budget stay on Redis.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, NamedTuple, TypeVar

from ...errors import JobError
from ...money import Rates
from ...storage.objects import ObjectStore
from ..protocol import Frame

#: The default store, which is not a `FrameStore`: frames are kept beside the arrivals.
REDIS = "redis"
_Kind = TypeVar("_Kind", bound="type[FrameStore]")
_registered: dict[str, type[FrameStore]] = {}


class Usage(NamedTuple):
    """One worker's requests to a store so far, which the meter prices."""

    n_puts: int = 0
    n_gets: int = 0
    n_deletes: int = 0
    put_bytes: int = 0
    got_bytes: int = 0


class FrameStore(ABC):
    """Frames by key, as one worker writes and reads them; for one thread.

    Every request is safe to repeat: a key is written once, and always with the same bytes.

    Parameters
    ----------
    prefix : str
        Prefix of every key of the job.
    objects : ObjectStore
        The job's object storage.

    Attributes
    ----------
    max_frame_bytes : int
        Size of the largest frame that the store accepts.
    """

    max_frame_bytes: ClassVar[int]

    def __init__(self, prefix: str, objects: ObjectStore) -> None:
        self.prefix, self.objects = prefix, objects

    @abstractmethod
    def put_many(self, frames: Mapping[str, bytes]) -> None:
        """Store frames; when this returns, all workers can read them."""

    @abstractmethod
    def get_many(self, keys: Sequence[str]) -> list[Frame | None]:
        """The frames of ``keys`` in their order, None for one that does not exist."""

    @abstractmethod
    def delete_many(self, keys: Sequence[str]) -> None:
        """Delete frames; one that does not exist is skipped."""

    @abstractmethod
    def clear(self) -> int:
        """Delete every frame of the job; returns how many there were."""

    @abstractmethod
    def usage(self) -> Usage:
        """The requests made to the store so far."""

    def cost_nusd(self, rates: Rates) -> int:
        """Cost of `usage`, nano-dollars; 0 if requests are free."""
        return 0

    def close(self) -> None:  # noqa: B027 - many have nothing to release
        """Release connections. Idempotent."""


def register_store(name: str) -> Callable[[_Kind], _Kind]:
    """Class decorator: register a `FrameStore` under the ``name`` that jobs use (``store=``)."""

    def register(kind: _Kind) -> _Kind:
        _registered[name] = kind
        return kind

    return register


def check_store(name: object) -> None:
    """Raise JobError unless there is a store of this name."""
    names = [REDIS, *sorted(_registered)]
    if name not in names:
        raise JobError("store", name, "one of " + ", ".join(map(repr, names)))


def open_store(name: str, prefix: str, objects: ObjectStore) -> FrameStore | None:
    """The store called ``name``; None for Redis."""
    check_store(name)
    return None if name == REDIS else _registered[name](prefix, objects)
