"""Packing: writes a dataset as minibatches in few objects, with a manifest. Data that is already packed is reused."""

from __future__ import annotations

import bisect
import hashlib
import itertools
import json
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from ..errors import DecodeError
from ..storage.folder import Folder
from ..storage.objects import ObjectStore
from ..validation import is_number
from .bundle import MOST_TOLD, encode_head, padded, told_span
from .bundle import VERSION as BUNDLE_VERSION
from .dataset import Dataset, Owners, digest
from .minibatches import VERSION, Minibatch, encode_minibatch
from .sampling import check_size

#: A bundle is closed once its minibatches have this size, bytes.
BUNDLE_BYTES = 64 << 20
#: Most bytes of a minibatch in addition to its rows: header, index, CRC, and the gaps between arrays.
MINIBATCH_BYTES = 128
#: Bytes of the last bundle that are read first to find the manifest.
GLANCE_BYTES = 1 << 16
#: Threads that cut and encode minibatches; the result does not depend on their number.
N_CUTTERS = 2
#: Bundles that are on their way to a cloud at once: one connection does not fill the link. On this machine one is.
N_STORED = 4
#: Minibatches in a lot, which a thread cuts at a time, and the most lots that wait to be stored.
LOT, MOST_LOTS = 4, 8


@dataclass(frozen=True)
class Manifest:
    """Describes the packed dataset under ``datasets/<key>/`` in the object storage.

    Attributes
    ----------
    key : str
        Made from the content, the minibatch size and the seed (`pack_key`).
    kind, name, is_synthetic, n, shape, mean, origin, deviation
        Those of the `Dataset`.
    size : int
        Rows in a minibatch, at most ``n``; the last one may be short.
    n_minibatches : int
    shards : tuple of int
        First minibatch of each shard, then ``n_minibatches``: (0, n_minibatches) for data that is not partitioned.
    bundles : tuple of int
        First minibatch of each object, then ``n_minibatches``; see `mlless_nb.data.bundle`.
    minibatch_bytes : int
        Stored size of the largest minibatch.
    n_touched : int
        Mean number of users and items, or features, in a minibatch.
    """

    key: str
    kind: str
    name: str
    is_synthetic: bool
    n: int
    size: int
    n_minibatches: int
    shape: tuple[int, ...]
    mean: float
    shards: tuple[int, ...]
    bundles: tuple[int, ...]
    minibatch_bytes: int
    n_touched: int
    origin: float = 0.0
    deviation: float = 1.0

    @property
    def n_ids(self) -> int:
        """Number of users and items, or of features; the ids in a minibatch are below it."""
        return sum(self.shape)

    @property
    def n_shards(self) -> int:
        """Number of shards; 1 if the data is not partitioned."""
        return len(self.shards) - 1

    def shard(self, number: int) -> range:
        """The minibatches of shard ``number``."""
        return range(self.shards[number], self.shards[number + 1])

    def bundle_of(self, index: int) -> int:
        """The bundle of minibatch ``index`` (0-based)."""
        return bisect.bisect(self.bundles, index) - 1

    def object_key(self, bundle: int) -> str:
        """The key of bundle number ``bundle`` (0-based)."""
        return last_key(self.key) if bundle == len(self.bundles) - 2 else bundle_key(self.key, bundle)

    def to_json(self) -> dict[str, Any]:
        """The manifest as plain JSON."""
        return {**asdict(self), **{name: list(getattr(self, name)) for name in ("shape", "shards", "bundles")}}

    @classmethod
    def from_json(cls, spec: Any) -> Manifest:
        """The manifest that ``to_json`` wrote; DecodeError if ``spec`` is not one."""
        names = {field.name for field in fields(cls)}
        if not isinstance(spec, dict) or set(spec) != names:
            raise DecodeError(f"a dataset's manifest must have the fields {', '.join(sorted(names))}")
        texts = [spec[name] for name in ("key", "kind", "name")]
        if not all(isinstance(text, str) for text in texts) or type(spec["is_synthetic"]) is not bool:
            raise DecodeError("a dataset's manifest with a wrong type in key, kind, name or is_synthetic")
        counts = [spec[name] for name in ("n", "size", "n_minibatches", "n_touched", "minibatch_bytes")]
        shape = spec["shape"]
        if not isinstance(shape, (list, tuple)) or len(shape) != {"ratings": 2, "csr": 1}.get(spec["kind"]):
            raise DecodeError(f"a dataset's manifest with kind {spec['kind']!r} and shape {shape!r}")
        if not all(type(count) is int and count > 0 for count in [*counts, *shape]):
            raise DecodeError(f"a dataset's manifest with counts {counts!r} and shape {shape!r}: must be integers > 0")
        for name in ("shards", "bundles"):
            bounds = spec[name]
            if not isinstance(bounds, (list, tuple)) or not all(type(bound) is int for bound in bounds):
                raise DecodeError(f"a dataset's manifest with {name} {bounds!r}: must be integers")
            if len(bounds) < 2 or list(bounds) != sorted(bounds) or (bounds[0], bounds[-1]) != (0, counts[2]):
                raise DecodeError(f"a dataset's manifest with {name} {bounds!r}: must rise from 0 to {counts[2]}")
        if len(set(spec["bundles"])) < len(spec["bundles"]):
            raise DecodeError(f"a dataset's manifest with bundles {spec['bundles']!r}: none may be empty")
        least = -(-spec["n"] // spec["size"])  # each shard's last minibatch may be short
        if not least <= counts[2] <= least + len(spec["shards"]) - 2:
            raise DecodeError(f"a dataset's manifest with n, size, n_minibatches {counts!r}")
        units = {name: spec[name] for name in ("mean", "origin", "deviation")}
        if not all(map(is_number, units.values())):
            raise DecodeError(f"a dataset's manifest with {units!r}: must be finite numbers")
        if spec["deviation"] <= 0:
            raise DecodeError(f"a dataset's manifest with deviation {spec['deviation']!r}: must be > 0")
        numbers = {name: float(value) for name, value in units.items()}
        bounds = {name: tuple(spec[name]) for name in ("shards", "bundles")}
        return cls(**{**spec, **numbers, **bounds, "shape": tuple(shape)})


def pack_key(dataset: Dataset, size: int, seed: int | None, owners: Owners | None = None) -> str:
    """Name of the packed dataset, from its content, format version, minibatch size, seed and partition."""
    partition = "" if owners is None else digest("owners", owners.shape, owners)
    text = f"{VERSION}.{BUNDLE_VERSION} {dataset.fingerprint()} {size} {seed} {partition}"
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def packed(
    dataset: Dataset, size: int, seed: int | None, objects: ObjectStore, owners: Owners | None = None
) -> Manifest | None:
    """The manifest of ``dataset`` if it is packed already, else None. One request, or two for a large index."""
    key = pack_key(dataset, size, seed, owners)
    try:
        manifest = Manifest.from_json(json.loads(_told(objects, last_key(key))))
    except (KeyError, ValueError):  # missing or invalid: the data is packed again
        return None
    if manifest.key != key or (manifest.n, manifest.shape) != (dataset.n, dataset.shape):
        return None
    return replace(manifest, name=dataset.name, is_synthetic=dataset.is_synthetic)


def _told(objects: ObjectStore, key: str) -> bytes:
    """The payload of the bundle under ``key``: the manifest."""
    glance = objects.get(key, 0, GLANCE_BYTES)
    first, end = told_span(glance)
    return glance[first:end] if end <= len(glance) else objects.get(key, first, end)


def most_bundles(dataset: Dataset, size: int, n_shards: int = 1) -> int:
    """Upper bound of the objects that packing ``dataset`` writes."""
    n_bytes = dataset.most_bytes + MINIBATCH_BYTES * (-(-dataset.n // size) + n_shards)
    return 1 + n_bytes // BUNDLE_BYTES


def pack(dataset: Dataset, size: int, seed: int | None, objects: ObjectStore, owners: Owners | None = None) -> Manifest:
    """Write ``dataset`` as minibatches in bundles, unless it is packed already.

    Parameters
    ----------
    dataset : Dataset
    size : int
        Rows in a minibatch.
    seed : int or None
        Shuffles the rows over the whole set; None keeps their order.
    objects : ObjectStore
    owners : int32 (n_users,), optional
        The shard of each user (`Ratings.owners`): each minibatch then has rows of one shard.

    Returns
    -------
    Manifest
        It is in the bundle that is written last: if it exists, all minibatches do.
    """
    check_size(size)
    return packed(dataset, size, seed, objects, owners) or write(dataset, size, seed, objects, owners)


def write(
    dataset: Dataset, size: int, seed: int | None, objects: ObjectStore, owners: Owners | None = None
) -> Manifest:
    """`pack` without checking whether the data is packed already.

    At most two bundles of encoded bytes are in memory beside those on their way, see `N_STORED`.
    """
    shards, cuts = dataset.cuts(size, seed, owners)
    key = pack_key(dataset, size, seed, owners)
    bounds, largest, n_touched = [0], 1, 0
    parts: list[bytes] = []
    n_bytes = 0
    n_stored = 1 if isinstance(getattr(objects, "folder", None), Folder) else N_STORED
    with ThreadPoolExecutor(n_stored, thread_name_prefix="mlless-put") as storing:
        stored: deque[Future[None]] = deque()
        for blob, touched in _encoded(cuts):
            if n_bytes >= BUNDLE_BYTES:
                if len(stored) == n_stored:
                    stored.popleft().result()
                place, first = bundle_key(key, len(bounds) - 1), bounds[-1]
                bounds.append(first + len(parts))
                stored.append(storing.submit(_put, objects, place, first, parts))
                parts, n_bytes = [], 0
            parts.append(blob)
            n_bytes += padded(len(blob))
            largest, n_touched = max(largest, len(blob)), n_touched + touched
        for each in stored:
            each.result()
    manifest = described(dataset, size, key, shards, (*bounds, shards[-1]), largest, n_touched)
    _put(objects, last_key(key), bounds[-1], parts, told_of(manifest))
    return manifest


def described(
    dataset: Dataset,
    size: int,
    key: str,
    shards: tuple[int, ...],
    bundles: tuple[int, ...],
    minibatch_bytes: int,
    n_touched: int,
) -> Manifest:
    """The manifest of ``dataset`` packed under ``key``; ``n_touched`` is the sum over all minibatches."""
    return Manifest(
        key=key,
        kind=dataset.kind,
        name=dataset.name,
        is_synthetic=dataset.is_synthetic,
        n=dataset.n,
        size=min(size, dataset.n),
        n_minibatches=shards[-1],
        shape=dataset.shape,
        mean=dataset.mean,
        shards=shards,
        bundles=bundles,
        minibatch_bytes=minibatch_bytes,
        n_touched=max(n_touched // shards[-1], 1),
        origin=dataset.origin,
        deviation=dataset.deviation,
    )


def told_of(manifest: Manifest) -> bytes:
    """The manifest as the payload of the last bundle."""
    told = json.dumps(manifest.to_json()).encode()
    assert len(told) <= MOST_TOLD, "a bundle has 64 MiB, and a shard is a worker's"
    return told


def bundle_bounds(sizes: Sequence[int]) -> tuple[int, ...]:
    """First minibatch of each bundle, then the number of all, as `write` bundles minibatches of these sizes, bytes."""
    bounds, n_bytes = [0], 0
    for number, size in enumerate(sizes):
        if n_bytes >= BUNDLE_BYTES:
            bounds.append(number)
            n_bytes = 0
        n_bytes += padded(size)
    return (*bounds, len(sizes))


def _encoded(cuts: Iterator[Callable[[], Minibatch]]) -> Iterator[tuple[bytes, int]]:
    """Each minibatch encoded, and its number of ids, in order; threads cut and encode them."""
    with ThreadPoolExecutor(N_CUTTERS, thread_name_prefix="mlless-cut") as cutting:
        waiting: deque[Future[list[tuple[bytes, int]]]] = deque()
        try:
            while lot := list(itertools.islice(cuts, LOT)):
                waiting.append(cutting.submit(_encode_lot, lot))
                if len(waiting) >= MOST_LOTS:
                    yield from waiting.popleft().result()
            while waiting:
                yield from waiting.popleft().result()
        finally:
            for lot_to_come in waiting:
                lot_to_come.cancel()


def _encode_lot(lot: Sequence[Callable[[], Minibatch]]) -> list[tuple[bytes, int]]:
    minibatches = [cut() for cut in lot]
    return [(encode_minibatch(minibatch), len(minibatch.ids)) for minibatch in minibatches]


def _put(objects: ObjectStore, key: str, first: int, parts: list[bytes], told: bytes = b"") -> None:
    """Store a bundle of encoded minibatches, with the payload ``told``; empties ``parts``."""
    sizes = [len(part) for part in parts]
    gaps = [bytes(padded(size) - size) for size in sizes]
    blob = b"".join([encode_head(first, sizes, told), *itertools.chain.from_iterable(zip(parts, gaps, strict=True))])
    parts.clear()
    objects.put(key, blob)


def bundle_key(key: str, number: int) -> str:
    """The key of bundle ``number`` (0-based) of the data packed under ``key``, unless it is the last one."""
    return f"datasets/{key}/{number:06d}"


def last_key(key: str) -> str:
    """The key of the last bundle, which has the manifest. It does not depend on the number of bundles."""
    return f"datasets/{key}/last"
