"""Packing: a dataset as minibatches in few objects, with a manifest. The same data packed twice is a cache hit."""

from __future__ import annotations

import bisect
import hashlib
import itertools
import json
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from ..errors import DecodeError
from ..storage.objects import ObjectStore
from .bundle import MOST_TOLD, encode_head, padded, told_span
from .bundle import VERSION as BUNDLE_VERSION
from .dataset import Dataset, Owners, digest
from .minibatches import VERSION, Minibatch, encode_minibatch
from .sampling import check_size

#: A bundle is closed once its minibatches take so many bytes.
BUNDLE_BYTES = 64 << 20
#: Bytes of a minibatch beside its rows, at most: header, index, CRC, and the gaps between arrays.
MINIBATCH_BYTES = 128
#: Bytes of the last bundle that are read to find the manifest in.
GLANCE_BYTES = 1 << 16
#: Threads that cut and encode minibatches; what they make does not depend on how many there are.
N_CUTTERS = 2
#: Minibatches that a thread cuts at a time, and such lots that may wait to be stored.
LOT, MOST_LOTS = 4, 8


@dataclass(frozen=True)
class Manifest:
    """What lies under ``datasets/<key>/`` in the object storage.

    Attributes
    ----------
    key : str
        Made from the content, the minibatch size and the seed (`pack_key`).
    kind, name, is_synthetic, n, shape, mean, origin, deviation
        As of the `Dataset`.
    size : int
        Rows in a minibatch (all of them where there are fewer); the last may be short.
    n_minibatches : int
    shards : tuple of int
        Where each shard's minibatches begin, and the end: (0, n_minibatches) of data that is not partitioned.
    bundles : tuple of int
        Where each object's minibatches begin, and the end; see `mlless_nb.data.bundle`.
    minibatch_bytes : int
        The largest minibatch, as it is stored.
    n_touched : int
        Users and items, or features, that a minibatch has, on average.
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
        """Users and items, or features: what the ids in a minibatch are below."""
        return sum(self.shape)

    @property
    def n_shards(self) -> int:
        """Shards of the data; 1 where it is not partitioned."""
        return len(self.shards) - 1

    def shard(self, number: int) -> range:
        """The minibatches of shard ``number``."""
        return range(self.shards[number], self.shards[number + 1])

    def bundle_of(self, index: int) -> int:
        """The bundle of minibatch ``index`` (0-based)."""
        return bisect.bisect(self.bundles, index) - 1

    def object_key(self, bundle: int) -> str:
        """Where bundle number ``bundle`` (0-based) lies."""
        return _last_key(self.key) if bundle == len(self.bundles) - 2 else f"datasets/{self.key}/{bundle:06d}"

    def to_json(self) -> dict[str, Any]:
        """The manifest as plain JSON."""
        return {**asdict(self), **{name: list(getattr(self, name)) for name in ("shape", "shards", "bundles")}}

    @classmethod
    def from_json(cls, spec: Any) -> Manifest:
        """The manifest that ``to_json`` wrote; DecodeError when it is anything else."""
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
        if not all(type(value) in (int, float) and math.isfinite(value) for value in units.values()):
            raise DecodeError(f"a dataset's manifest with {units!r}: must be finite numbers")
        if spec["deviation"] <= 0:
            raise DecodeError(f"a dataset's manifest with deviation {spec['deviation']!r}: must be > 0")
        numbers = {name: float(value) for name, value in units.items()}
        bounds = {name: tuple(spec[name]) for name in ("shards", "bundles")}
        return cls(**{**spec, **numbers, **bounds, "shape": tuple(shape)})


def pack_key(dataset: Dataset, size: int, seed: int | None, owners: Owners | None = None) -> str:
    """Name of the packed dataset: by content, format version, minibatch size, seed and partition."""
    partition = "" if owners is None else digest("owners", owners.shape, owners)
    text = f"{VERSION}.{BUNDLE_VERSION} {dataset.fingerprint()} {size} {seed} {partition}"
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def packed(
    dataset: Dataset, size: int, seed: int | None, objects: ObjectStore, owners: Owners | None = None
) -> Manifest | None:
    """The manifest of ``dataset`` where it is packed already, else None. One request, two of many minibatches."""
    key = pack_key(dataset, size, seed, owners)
    try:
        manifest = Manifest.from_json(json.loads(_told(objects, _last_key(key))))
    except (KeyError, ValueError):  # missing, or not what it claims to be: packed anew
        return None
    if manifest.key != key or (manifest.n, manifest.shape) != (dataset.n, dataset.shape):
        return None
    return replace(manifest, name=dataset.name, is_synthetic=dataset.is_synthetic)


def _told(objects: ObjectStore, key: str) -> bytes:
    """What the bundle under ``key`` tells."""
    glance = objects.get(key, 0, GLANCE_BYTES)
    first, end = told_span(glance)
    return glance[first:end] if end <= len(glance) else objects.get(key, first, end)


def most_bundles(dataset: Dataset, size: int, n_shards: int = 1) -> int:
    """Objects that packing ``dataset`` takes at most."""
    n_bytes = dataset.most_bytes + MINIBATCH_BYTES * (-(-dataset.n // size) + n_shards)
    return 1 + n_bytes // BUNDLE_BYTES


def pack(dataset: Dataset, size: int, seed: int | None, objects: ObjectStore, owners: Owners | None = None) -> Manifest:
    """Write ``dataset`` as minibatches in bundles, unless they are there already.

    Parameters
    ----------
    dataset : Dataset
    size : int
        Rows in a minibatch.
    seed : int or None
        Shuffles the rows over the whole set; None leaves them as they are.
    objects : ObjectStore
    owners : int32 (n_users,), optional
        The shard of each user (`Ratings.owners`): minibatches are then of one shard each.

    Returns
    -------
    Manifest
        It is in the bundle that is written last: where it is, all minibatches are.
    """
    check_size(size)
    return packed(dataset, size, seed, objects, owners) or write(dataset, size, seed, objects, owners)


def write(
    dataset: Dataset, size: int, seed: int | None, objects: ObjectStore, owners: Owners | None = None
) -> Manifest:
    """`pack` without looking whether it is there already.

    At no time are more encoded bytes in memory than those of three bundles.
    """
    shards, cuts = dataset.cuts(size, seed, owners)
    manifest = Manifest(
        key=pack_key(dataset, size, seed, owners),
        kind=dataset.kind,
        name=dataset.name,
        is_synthetic=dataset.is_synthetic,
        n=dataset.n,
        size=min(size, dataset.n),
        n_minibatches=shards[-1],
        shape=dataset.shape,
        mean=dataset.mean,
        shards=shards,
        bundles=(0, shards[-1]),
        minibatch_bytes=1,
        n_touched=1,
        origin=dataset.origin,
        deviation=dataset.deviation,
    )
    bounds, largest, n_touched = [0], 1, 0
    parts: list[bytes] = []
    n_bytes = 0
    with ThreadPoolExecutor(1, thread_name_prefix="mlless-put") as storing:
        stored: Future[None] | None = None
        for blob, touched in _encoded(cuts):
            if n_bytes >= BUNDLE_BYTES:
                if stored is not None:
                    stored.result()
                key, first = f"datasets/{manifest.key}/{len(bounds) - 1:06d}", bounds[-1]
                bounds.append(first + len(parts))
                stored = storing.submit(_put, objects, key, first, parts)
                parts, n_bytes = [], 0
            parts.append(blob)
            n_bytes += padded(len(blob))
            largest, n_touched = max(largest, len(blob)), n_touched + touched
        if stored is not None:
            stored.result()
    manifest = replace(
        manifest,
        bundles=(*bounds, shards[-1]),
        minibatch_bytes=largest,
        n_touched=max(n_touched // shards[-1], 1),
    )
    told = json.dumps(manifest.to_json()).encode()
    assert len(told) <= MOST_TOLD, "a bundle has 64 MiB, and a shard is a worker's"
    _put(objects, _last_key(manifest.key), bounds[-1], parts, told)
    return manifest


def _encoded(cuts: Iterator[Callable[[], Minibatch]]) -> Iterator[tuple[bytes, int]]:
    """Each minibatch encoded, and how many ids it has, in order; threads cut them."""
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
    """Store a bundle of encoded minibatches; ``parts`` is empty then."""
    sizes = [len(part) for part in parts]
    gaps = [bytes(padded(size) - size) for size in sizes]
    blob = b"".join([encode_head(first, sizes, told), *itertools.chain.from_iterable(zip(parts, gaps, strict=True))])
    parts.clear()
    objects.put(key, blob)


def _last_key(key: str) -> str:
    """Where the last bundle lies, which has the manifest; known before it is known how many there are."""
    return f"datasets/{key}/last"
