"""The interface of a frame store: it keeps updates between the worker that publishes them and those that read them.

Redis, the default, needs no file here: its frames are sent in the same write as the arrival (``exchange/redis``). Every
other store keeps frames only; arrivals, leases, plan and budget stay on Redis. If the store is the object storage and
the job names no Redis, they are there, too (``exchange/storage``).

A job names its store by ``name`` or ``name://address`` (``store=``), which is also what its functions are told.
"""

from __future__ import annotations

import importlib.util
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, NamedTuple, TypeVar

from ...errors import JobError
from ...money import Rates
from ...storage.objects import ObjectStore
from ..frame_count import FrameCount
from ..protocol import Frame

#: The default store, which is not a `FrameStore`: frames are kept beside the arrivals.
REDIS = "redis"
#: The object storage, the store that can do without a Redis.
STORAGE = "storage"
#: Size of the largest value that a Redis server takes unless it is configured otherwise (``proto-max-bulk-len``).
REDIS_FRAME_BYTES = 512 << 20
_Kind = TypeVar("_Kind", bound="type[FrameStore]")
_registered: dict[str, type[FrameStore]] = {}


class Usage(NamedTuple):
    """One worker's requests to a store so far, which the meter prices.

    Units are those of a store that is billed by them (one DynamoDB write unit is 1 KiB, one read unit 4 KiB).
    """

    n_puts: int = 0
    n_gets: int = 0
    n_deletes: int = 0
    put_bytes: int = 0
    got_bytes: int = 0
    write_units: int = 0
    read_units: int = 0


class FrameStore(ABC):
    """Frames by key, as one worker writes and reads them; for one thread.

    Every request is safe to repeat: a key is written once, and always with the same bytes.

    Parameters
    ----------
    prefix : str
        Prefix of every key of the job.
    objects : ObjectStore
        The job's object storage.
    address : str
        The part of the job's ``store`` after ``://``; empty if there is none.

    Attributes
    ----------
    max_frame_bytes : int
        Size of the largest frame that the store accepts.
    form : str
        How a job writes the store, for messages.
    component : str
        Its entry in the price profile; "" if nothing of it is billed.
    package, extra : str
        The Python package that it needs, and the extra of mlless_nb that installs it; "" if it needs none.
    goes_missing : str
        Where a frame that is missing was kept, and why it may be lost, for the reason of a run that ends by it.
    expires : bool
        Whether what a killed run leaves expires, or is removed with the run's objects.
    pauses_s : (float, float)
        Seconds between two polls for a frame that is not published yet: the first and the longest interval.
    """

    max_frame_bytes: ClassVar[int]
    form: ClassVar[str] = ""
    component: ClassVar[str] = ""
    package: ClassVar[str] = ""
    extra: ClassVar[str] = ""
    goes_missing: ClassVar[str] = "the store"
    expires: ClassVar[bool] = True
    pauses_s: ClassVar[tuple[float, float]] = (0.001, 0.05)

    def __init__(self, prefix: str, objects: ObjectStore, address: str = "") -> None:
        self.prefix, self.objects, self.address = prefix, objects, address
        self._counts = dict.fromkeys(Usage._fields, 0)

    # -- before a run

    @classmethod
    def check_address(cls, store: str, address: str) -> None:
        """Raise JobError unless ``address``, that of the job's ``store``, is valid; by default there is none."""
        if address:
            raise JobError("store", shown(store), f"{cls.form} without an address")

    @classmethod
    def hosts(cls, address: str) -> list[str]:
        """The hosts of the servers that run for the job and are billed by the second; by default there are none."""
        return []

    @classmethod
    def open_hosts(cls, address: str) -> list[str]:
        """Those of `hosts` on which anybody who reaches them can read and change frames; by default all."""
        return cls.hosts(address)

    @classmethod
    def address_for_functions(cls, address: str, prefix: str) -> str:
        """What functions of the job with ``prefix`` get in the place of ``address``; by default the same."""
        return address

    def check(self) -> None:  # noqa: B027 - many have nothing to check
        """Raise ServiceError unless the store answers. Called by the driver before anything is launched."""

    def create(self) -> None:  # noqa: B027 - many need nothing
        """Prepare the store for the job's frames. Called by the driver; `clear` undoes it."""

    def is_there(self) -> bool:
        """Whether the store may have something of the job; by default it cannot say."""
        return True

    # -- frames

    @abstractmethod
    def put_many(self, frames: Mapping[str, bytes]) -> None:
        """Store frames, in the place of older ones; when this returns, all workers can read them."""

    @abstractmethod
    def get_many(self, keys: Sequence[str]) -> list[Frame | None]:
        """The frames of ``keys`` in their order, None for one that does not exist."""

    @abstractmethod
    def delete_many(self, keys: Sequence[str]) -> None:
        """Delete frames that nobody reads any more; one that does not exist is skipped."""

    @abstractmethod
    def clear(self) -> int:
        """Delete everything of the job; returns how many frames there were."""

    # -- what they cost

    def usage(self) -> Usage:
        """The requests made to the store so far."""
        return Usage(**self._counts)

    def frame_count(self) -> FrameCount:
        """See `CountsFrames`."""
        counts = self._counts  # called in every step: quicker than `usage`
        return FrameCount(counts["n_puts"], counts["n_gets"], counts["put_bytes"], counts["got_bytes"])

    def count(self, **more: int) -> None:
        """Add to the fields of `usage`."""
        for name, n in more.items():
            self._counts[name] += n

    @classmethod
    def expected(cls, n_puts: int, n_gets: int, put_bytes: int, got_bytes: int) -> Usage:
        """The usage of so many frames, if they have so many bytes together."""
        return Usage(n_puts=n_puts, n_gets=n_gets, put_bytes=put_bytes, got_bytes=got_bytes)

    @classmethod
    def price_nusd(cls, usage: Usage, rates: Rates) -> int:
        """The price of ``usage``, nano-dollars; 0 if requests are free."""
        return 0

    def cost_nusd(self, rates: Rates) -> int:
        """The part of the price of `usage` that nothing else bills, nano-dollars."""
        return self.price_nusd(self.usage(), rates)

    def close(self) -> None:  # noqa: B027 - many have nothing to release
        """Release connections. Idempotent."""


def register_store(name: str) -> Callable[[_Kind], _Kind]:
    """Class decorator: register a `FrameStore` under the ``name`` that jobs use (``store=``)."""

    def register(kind: _Kind) -> _Kind:
        _registered[name] = kind
        kind.form = kind.form or repr(name)
        return kind

    return register


def shown(store: object) -> object:
    """``store`` as a message may show it: passwords and tokens in it are replaced by ``***``."""
    return re.sub(r"(://[^:@/?]*):.*@", r"\1:***@", store, flags=re.DOTALL) if isinstance(store, str) else store


def store_forms() -> list[str]:
    """How a job writes each store, the default one first."""
    return [repr(REDIS), *(kind.form for _, kind in sorted(_registered.items()))]


def store_kind(store: str) -> type[FrameStore] | None:
    """The class of the job's ``store``; None for Redis."""
    return _registered.get(_split(store)[0])


def most_frame_bytes(store: str) -> int:
    """Size of the largest frame that the job's ``store`` takes."""
    kind = store_kind(store)
    return kind.max_frame_bytes if kind is not None else REDIS_FRAME_BYTES


def _split(store: str) -> tuple[str, str]:
    """The name and the address of a job's ``store``."""
    name, _, address = store.partition("://")
    return name, address


def store_hosts(store: str) -> list[str]:
    """The hosts of the servers of ``store``."""
    kind = store_kind(store)
    return kind.hosts(_split(store)[1]) if kind is not None else []


def check_store(store: object) -> None:
    """Raise JobError unless there is a store of this name and address, and its package is installed."""
    if store == REDIS:
        return
    kind = store_kind(store) if isinstance(store, str) else None
    if kind is None:
        raise JobError("store", shown(store), "one of " + ", ".join(store_forms()))
    assert isinstance(store, str)
    kind.check_address(store, _split(store)[1])
    if kind.package and importlib.util.find_spec(kind.package) is None:
        valid = f"one whose package is installed; {kind.package} is not: pip install 'mlless_nb[{kind.extra}]'"
        raise JobError("store", shown(store), valid)


def open_store(store: str, prefix: str, objects: ObjectStore) -> FrameStore | None:
    """The job's ``store``; None for Redis. Connections are made with the first request."""
    check_store(store)
    kind = store_kind(store)
    return None if kind is None else kind(prefix, objects, _split(store)[1])


def for_functions(store: str, prefix: str) -> str:
    """The job's ``store`` as its functions are told: with what opens the job's own frames, if the store can do that."""
    kind, (name, address) = store_kind(store), _split(store)
    address = kind.address_for_functions(address, prefix) if kind is not None else address
    return f"{name}://{address}" if address else store


def store_servers(store: str) -> tuple[str, int]:
    """The component of the bill that the servers of ``store`` are, and their number; ("", 0) if there are none."""
    kind, n_servers = store_kind(store), len(store_hosts(store))
    return (kind.component, n_servers) if kind is not None and n_servers else ("", 0)


def prepaid_nusd(store: str, rates: Rates, n_workers: int, table_bytes: int) -> int:
    """Nano-dollars that one worker keeps prepaid for its last rounds: more than these rounds cost.

    At the end a worker hands over residuals and best replicas, in ranges of rows, and the optimiser's state, and
    reports its evaluations: at most four scatter-reduces of a table of ``table_bytes`` bytes.
    """
    kind = store_kind(store)
    if kind is None or n_workers == 1:
        return 0
    n_frames, n_bytes = 4 * (n_workers + 1), 5 * table_bytes
    return kind.price_nusd(kind.expected(n_frames, 2 * n_frames, n_bytes, 2 * n_bytes), rates)
