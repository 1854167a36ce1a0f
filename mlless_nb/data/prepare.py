"""Packing: a dataset as minibatch objects with a manifest. The same data packed twice is a cache hit."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from ..errors import DecodeError
from ..objects import ObjectStore
from .dataset import Dataset, check_size
from .minibatches import VERSION, encode_minibatch


@dataclass(frozen=True)
class Manifest:
    """What lies under ``datasets/<key>/`` in the object storage.

    Attributes
    ----------
    key : str
        Made from the content, the minibatch size and the seed (`pack_key`).
    kind, name, is_synthetic, n, shape, mean
        As of the `Dataset`.
    size : int
        Rows in a minibatch (all of them where there are fewer); the last may be short.
    n_minibatches : int
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

    def object_key(self, index: int) -> str:
        """Where minibatch ``index`` (0-based) lies."""
        return f"datasets/{self.key}/{index:06d}"

    def to_json(self) -> dict[str, Any]:
        """The manifest as plain JSON."""
        return {**asdict(self), "shape": list(self.shape)}

    @classmethod
    def from_json(cls, spec: Any) -> Manifest:
        """The manifest that ``to_json`` wrote; DecodeError when it is anything else."""
        names = {field.name for field in fields(cls)}
        if not isinstance(spec, dict) or set(spec) != names:
            raise DecodeError(f"a dataset's manifest must have the fields {', '.join(sorted(names))}")
        texts = [spec[name] for name in ("key", "kind", "name")]
        if not all(isinstance(text, str) for text in texts) or type(spec["is_synthetic"]) is not bool:
            raise DecodeError("a dataset's manifest with a wrong type in key, kind, name or is_synthetic")
        shape, counts = spec["shape"], [spec[name] for name in ("n", "size", "n_minibatches")]
        if not isinstance(shape, (list, tuple)) or len(shape) != {"ratings": 2, "csr": 1}.get(spec["kind"]):
            raise DecodeError(f"a dataset's manifest with kind {spec['kind']!r} and shape {shape!r}")
        if not all(type(count) is int and count > 0 for count in [*counts, *shape]):
            raise DecodeError(f"a dataset's manifest with counts {counts!r} and shape {shape!r}: must be integers > 0")
        if spec["n_minibatches"] != -(-spec["n"] // spec["size"]):
            raise DecodeError(f"a dataset's manifest with n, size, n_minibatches {counts!r}")
        if type(spec["mean"]) not in (int, float) or not math.isfinite(spec["mean"]):
            raise DecodeError(f"a dataset's manifest with mean {spec['mean']!r}")
        return cls(**{**spec, "shape": tuple(shape), "mean": float(spec["mean"])})


def pack_key(dataset: Dataset, size: int, seed: int | None) -> str:
    """Name of the packed dataset: by content, format version, minibatch size and seed."""
    text = f"{VERSION} {dataset.fingerprint()} {size} {seed}"
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def packed(dataset: Dataset, size: int, seed: int | None, objects: ObjectStore) -> Manifest | None:
    """The manifest of ``dataset`` where it is packed already, else None. One request."""
    key = pack_key(dataset, size, seed)
    try:
        manifest = Manifest.from_json(json.loads(objects.get(_manifest_key(key))))
    except (KeyError, ValueError):  # missing, or not what it claims to be: packed anew
        return None
    if manifest.key != key or (manifest.n, manifest.shape) != (dataset.n, dataset.shape):
        return None
    return replace(manifest, name=dataset.name, is_synthetic=dataset.is_synthetic)


def pack(dataset: Dataset, size: int, seed: int | None, objects: ObjectStore) -> Manifest:
    """Write ``dataset`` as minibatch objects, then its manifest, unless they are there already.

    Parameters
    ----------
    dataset : Dataset
    size : int
        Rows in a minibatch.
    seed : int or None
        Shuffles the rows over the whole set; None leaves them as they are.
    objects : ObjectStore

    Returns
    -------
    Manifest
        Written last: where it is, all minibatches are.
    """
    check_size(size)
    manifest = packed(dataset, size, seed, objects)
    if manifest is not None:
        return manifest
    manifest = Manifest(
        key=pack_key(dataset, size, seed),
        kind=dataset.kind,
        name=dataset.name,
        is_synthetic=dataset.is_synthetic,
        n=dataset.n,
        size=min(size, dataset.n),
        n_minibatches=-(-dataset.n // size),
        shape=dataset.shape,
        mean=dataset.mean,
    )
    for index, minibatch in enumerate(dataset.minibatches(size, seed)):
        objects.put(manifest.object_key(index), encode_minibatch(minibatch))
    objects.put(_manifest_key(manifest.key), json.dumps(manifest.to_json()).encode())
    return manifest


def _manifest_key(key: str) -> str:
    return f"datasets/{key}/manifest.json"
