"""What a frame store is: where updates lie between the worker that publishes them and those that read them.

Redis, the default, needs no file here: there frames ride in the same write as the arrival (``exchange/redis``). Every
other store keeps frames alone; arrivals, leases, plan and money stay on Redis.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, NamedTuple, TypeVar

from ...errors import JobError
from ...money import Rates
from ...storage.objects import ObjectStore
from ..protocol import Frame

#: The store that is no `FrameStore`: frames lie beside the arrivals.
REDIS = "redis"
_Kind = TypeVar("_Kind", bound="type[FrameStore]")
_registered: dict[str, type[FrameStore]] = {}


class Usage(NamedTuple):
    """What one worker has asked of a store so far: what the meter prices."""

    n_puts: int = 0
    n_gets: int = 0
    n_deletes: int = 0
    put_bytes: int = 0
    got_bytes: int = 0


class FrameStore(ABC):
    """Frames by key, as one worker keeps and reads them; for one thread.

    Every request is safe to repeat: a key is written once, and always with the same bytes.

    Parameters
    ----------
    prefix : str
        What every key of the job begins with.
    objects : ObjectStore
        The job's object storage.

    Attributes
    ----------
    max_frame_bytes : int
        Of the largest frame that the store takes.
    """

    max_frame_bytes: ClassVar[int]

    def __init__(self, prefix: str, objects: ObjectStore) -> None:
        self.prefix, self.objects = prefix, objects

    @abstractmethod
    def put_many(self, frames: Mapping[str, bytes]) -> None:
        """Keep frames; when this returns, everybody finds them."""

    @abstractmethod
    def get_many(self, keys: Sequence[str]) -> list[Frame | None]:
        """The frames of ``keys`` in their order, None for one that is not there."""

    @abstractmethod
    def delete_many(self, keys: Sequence[str]) -> None:
        """Drop frames; one that is not there is passed over."""

    @abstractmethod
    def clear(self) -> int:
        """Drop every frame of the job; returns how many there were."""

    @abstractmethod
    def usage(self) -> Usage:
        """What was asked of the store so far."""

    def cost_nusd(self, rates: Rates) -> int:
        """What `usage` costs, nano-dollars; 0 where requests are free."""
        return 0

    def close(self) -> None:  # noqa: B027 - many have nothing to release
        """Release connections. Idempotent."""


def register_store(name: str) -> Callable[[_Kind], _Kind]:
    """Make a `FrameStore` the one that jobs call ``name`` (``store=``): for the line above it."""

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
