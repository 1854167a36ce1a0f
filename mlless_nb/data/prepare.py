"""Packing: a dataset as minibatch objects with a manifest. The same data packed twice is a cache hit."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from ..errors import DecodeError
from ..objects import ObjectStore
from .dataset import Dataset, Owners, Ratings, check_size, digest
from .minibatches import VERSION, encode_minibatch


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
    n_touched : int
        Rows of the parameter table that a minibatch touches, on average.
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
    n_touched: int
    origin: float = 0.0
    deviation: float = 1.0

    @property
    def n_shards(self) -> int:
        """Shards of the data; 1 where it is not partitioned."""
        return len(self.shards) - 1

    def shard(self, number: int) -> range:
        """The minibatches of shard ``number``."""
        return range(self.shards[number], self.shards[number + 1])

    def object_key(self, index: int) -> str:
        """Where minibatch ``index`` (0-based) lies."""
        return f"datasets/{self.key}/{index:06d}"

    def to_json(self) -> dict[str, Any]:
        """The manifest as plain JSON."""
        return {**asdict(self), "shape": list(self.shape), "shards": list(self.shards)}

    @classmethod
    def from_json(cls, spec: Any) -> Manifest:
        """The manifest that ``to_json`` wrote; DecodeError when it is anything else."""
        names = {field.name for field in fields(cls)}
        if not isinstance(spec, dict) or set(spec) != names:
            raise DecodeError(f"a dataset's manifest must have the fields {', '.join(sorted(names))}")
        texts = [spec[name] for name in ("key", "kind", "name")]
        if not all(isinstance(text, str) for text in texts) or type(spec["is_synthetic"]) is not bool:
            raise DecodeError("a dataset's manifest with a wrong type in key, kind, name or is_synthetic")
        shape, counts = spec["shape"], [spec[name] for name in ("n", "size", "n_minibatches", "n_touched")]
        if not isinstance(shape, (list, tuple)) or len(shape) != {"ratings": 2, "csr": 1}.get(spec["kind"]):
            raise DecodeError(f"a dataset's manifest with kind {spec['kind']!r} and shape {shape!r}")
        if not all(type(count) is int and count > 0 for count in [*counts, *shape]):
            raise DecodeError(f"a dataset's manifest with counts {counts!r} and shape {shape!r}: must be integers > 0")
        shards = spec["shards"]
        if not isinstance(shards, (list, tuple)) or not all(type(bound) is int for bound in shards):
            raise DecodeError(f"a dataset's manifest with shards {shards!r}: must be integers")
        if len(shards) < 2 or list(shards) != sorted(shards) or (shards[0], shards[-1]) != (0, counts[2]):
            raise DecodeError(f"a dataset's manifest with shards {shards!r}: must rise from 0 to {counts[2]}")
        least = -(-spec["n"] // spec["size"])  # each shard's last minibatch may be short
        if not least <= counts[2] <= least + len(shards) - 2:
            raise DecodeError(f"a dataset's manifest with n, size, n_minibatches {counts!r}")
        units = {name: spec[name] for name in ("mean", "origin", "deviation")}
        if not all(type(value) in (int, float) and math.isfinite(value) for value in units.values()):
            raise DecodeError(f"a dataset's manifest with {units!r}: must be finite numbers")
        if spec["deviation"] <= 0:
            raise DecodeError(f"a dataset's manifest with deviation {spec['deviation']!r}: must be > 0")
        numbers = {name: float(value) for name, value in units.items()}
        return cls(**{**spec, **numbers, "shape": tuple(shape), "shards": tuple(shards)})


def pack_key(dataset: Dataset, size: int, seed: int | None, owners: Owners | None = None) -> str:
    """Name of the packed dataset: by content, format version, minibatch size, seed and partition."""
    partition = "" if owners is None else digest("owners", owners.shape, owners)
    text = f"{VERSION} {dataset.fingerprint()} {size} {seed} {partition}"
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def packed(
    dataset: Dataset, size: int, seed: int | None, objects: ObjectStore, owners: Owners | None = None
) -> Manifest | None:
    """The manifest of ``dataset`` where it is packed already, else None. One request."""
    key = pack_key(dataset, size, seed, owners)
    try:
        manifest = Manifest.from_json(json.loads(objects.get(_manifest_key(key))))
    except (KeyError, ValueError):  # missing, or not what it claims to be: packed anew
        return None
    if manifest.key != key or (manifest.n, manifest.shape) != (dataset.n, dataset.shape):
        return None
    return replace(manifest, name=dataset.name, is_synthetic=dataset.is_synthetic)


def pack(dataset: Dataset, size: int, seed: int | None, objects: ObjectStore, owners: Owners | None = None) -> Manifest:
    """Write ``dataset`` as minibatch objects, then its manifest, unless they are there already.

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
        Written last: where it is, all minibatches are.
    """
    check_size(size)
    manifest = packed(dataset, size, seed, objects, owners)
    if manifest is not None:
        return manifest
    parts: list[Dataset] = [dataset]
    if owners is not None and isinstance(dataset, Ratings):
        parts = [dataset.of_shard(owners, shard) for shard in range(int(owners.max()) + 1)]
    bounds = list(itertools.accumulate((-(-part.n // size) for part in parts), initial=0))
    manifest = Manifest(
        key=pack_key(dataset, size, seed, owners),
        kind=dataset.kind,
        name=dataset.name,
        is_synthetic=dataset.is_synthetic,
        n=dataset.n,
        size=min(size, dataset.n),
        n_minibatches=bounds[-1],
        shape=dataset.shape,
        mean=dataset.mean,
        shards=tuple(bounds),
        n_touched=1,
        origin=dataset.origin,
        deviation=dataset.deviation,
    )
    minibatches = itertools.chain.from_iterable(part.minibatches(size, seed) for part in parts)
    n_touched = 0
    for index, minibatch in enumerate(minibatches):
        objects.put(manifest.object_key(index), encode_minibatch(minibatch))
        n_touched += len(minibatch.rows)
    manifest = replace(manifest, n_touched=max(n_touched // bounds[-1], 1))
    objects.put(_manifest_key(manifest.key), json.dumps(manifest.to_json()).encode())
    return manifest


def _manifest_key(key: str) -> str:
    return f"datasets/{key}/manifest.json"
