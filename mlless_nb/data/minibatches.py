"""Minibatches as bytes: a header, plain arrays, a CRC32C. Nothing read is used before every count and index is checked.

Layout (little-endian; each array starts at a multiple of 8 bytes, so that it is used without a copy)::

    magic b"MLLM"   version u8   kind u8 {0 ratings, 1 csr}   flags u16   m u32   n u32   n_columns u64   nnz u64
    ratings:  ids i32 (m,)   user i32 (n,)   item i32 (n,)   rating f32 (n,)
    csr:      ids i32 (m,)   columns i32 (n_columns,)   dense f32 (n_columns, n)   indptr i32 (n + 1,)
              indices u16 if m <= 65536 else i32 (nnz,)   values f32 (nnz,)   labels f32 (n,)
    crc32c u32 over everything before it

Flag 1 of csr: every value is 1, and values are left out. A step reads its whole minibatch from memory, not from a
cache. So indices are short, values of 1 are left out, and columns that most rows have are stored without indices.

Ids are those of the data: users and items, or features. The model defines which rows of the parameter table they touch,
and what a label means.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..errors import DecodeError
from ..kernels import crc32c

Int32 = NDArray[np.int32]
Float32 = NDArray[np.float32]

MAGIC = b"MLLM"
VERSION = 3
#: Minibatches with at most this many ids have 16-bit indices.
SHORT_IDS = 1 << 16
_HEADER = struct.Struct("<4sBBHIIQQ")
_ALL_ONES = 1
_CRC = struct.Struct("<I")


@dataclass(frozen=True, eq=False)
class RatingsMinibatch:
    """Ratings, and the users and items that occur in them.

    Attributes
    ----------
    ids : int32 (m,)
        Sorted, unique: users, then ``n_users`` + items.
    user, item : int32 (n,)
        Positions in ``ids``; the ratings are sorted by (user, item).
    rating : float32 (n,)
    """

    ids: Int32
    user: Int32
    item: Int32
    rating: Float32
    kind: ClassVar[str] = "ratings"

    @property
    def n(self) -> int:
        """Number of ratings in the minibatch."""
        return len(self.rating)


@dataclass(frozen=True, eq=False)
class CsrMinibatch:
    """Sparse feature rows with labels, and the features that occur in them.

    Attributes
    ----------
    ids : int32 (m,)
        Features, sorted, unique; may be empty.
    columns : int32 (n_columns,)
        Positions in ``ids`` of the columns that are stored dense, ascending.
    dense : float32 (n_columns, n)
        Their values, 0 if a row has none.
    indptr : int32 (n + 1,)
        The other entries of row ``k`` are ``indices[indptr[k]:indptr[k + 1]]``.
    indices : uint16 or int32 (nnz,)
        Positions in ``ids``; int32 if there are more than `SHORT_IDS` ids.
    values : float32 (nnz,)
        Empty if every value is 1.
    labels : float32 (n,)
        Finite.
    """

    ids: Int32
    columns: Int32
    dense: Float32
    indptr: Int32
    indices: NDArray[np.uint16] | Int32
    values: Float32
    labels: Float32
    kind: ClassVar[str] = "csr"

    @property
    def n(self) -> int:
        """Number of rows in the minibatch."""
        return len(self.labels)

    @property
    def n_terms(self) -> int:
        """Number of products in the margins of all rows."""
        return self.dense.size + len(self.indices)


Minibatch = RatingsMinibatch | CsrMinibatch


def encode_minibatch(minibatch: Minibatch) -> bytes:
    """The minibatch as bytes, in the layout of this module."""
    m, n = len(minibatch.ids), minibatch.n
    if isinstance(minibatch, RatingsMinibatch):
        kind, flags, n_columns, nnz = 0, 0, 0, 0
    else:
        kind, n_columns, nnz = 1, len(minibatch.columns), len(minibatch.indices)
        flags = 0 if len(minibatch.values) else _ALL_ONES
    header = _HEADER.pack(MAGIC, VERSION, kind, flags, m, n, n_columns, nnz)
    parts = [header]
    for name, dtype, _ in _layout(kind, flags, m, n, n_columns, nnz):
        parts.append(np.ascontiguousarray(getattr(minibatch, name), dtype).tobytes())
        parts.append(bytes(-len(parts[-1]) % 8))
    body = b"".join(parts)
    return body + _CRC.pack(crc32c(body))


def decode_minibatch(blob: bytes | memoryview, n_ids: int) -> Minibatch:
    """The minibatch in ``blob``; its arrays are read-only views of it.

    Parameters
    ----------
    blob : bytes or memoryview of bytes
        As `encode_minibatch` wrote it.
    n_ids : int
        Number of users and items, or of features, in the dataset: every id must be below it.

    Raises
    ------
    DecodeError
        When any part of the blob is invalid.
    """
    if len(blob) < _HEADER.size + _CRC.size:
        raise DecodeError(f"a minibatch of {len(blob)} bytes: must be at least {_HEADER.size + _CRC.size}")
    magic, version, kind, flags, m, n, n_columns, nnz = _HEADER.unpack_from(blob)
    if magic != MAGIC:
        raise DecodeError(f"not a minibatch: begins with {magic!r}, must be {MAGIC!r}")
    if version != VERSION:
        raise DecodeError(f"minibatch version {version}: this mlless_nb reads version {VERSION}")
    if kind not in (0, 1) or flags not in ((0, _ALL_ONES) if kind else (0,)):
        raise DecodeError(f"minibatch header with kind {kind}, flags {flags}: must be 0, 0 or 1, 0..{_ALL_ONES}")
    if kind == 0 and (n_columns, nnz) != (0, 0):
        raise DecodeError(f"minibatch of ratings with {n_columns} columns, nnz {nnz}: must be 0, 0")
    if n == 0 or (m == 0 and kind == 0):
        raise DecodeError("an empty minibatch")
    layout = _layout(kind, flags, m, n, n_columns, nnz)
    sizes = [np.dtype(dtype).itemsize * math.prod(shape) for _, dtype, shape in layout]
    n_bytes = _HEADER.size + sum(size + -size % 8 for size in sizes) + _CRC.size
    if len(blob) != n_bytes:
        raise DecodeError(f"a minibatch of {len(blob)} bytes: its header says {n_bytes}")
    if crc32c(memoryview(blob)[: -_CRC.size]) != _CRC.unpack_from(blob, n_bytes - _CRC.size)[0]:
        raise DecodeError("minibatch with a wrong CRC32C: its bytes were damaged")
    arrays, offset = {}, _HEADER.size
    for (name, dtype, shape), size in zip(layout, sizes, strict=True):
        arrays[name] = np.frombuffer(blob, dtype, math.prod(shape), offset).reshape(shape)
        offset += size + -size % 8
    minibatch: Minibatch = CsrMinibatch(**arrays) if kind else RatingsMinibatch(**arrays)
    _check(minibatch, n_ids)
    return minibatch


def _layout(kind: int, flags: int, m: int, n: int, n_columns: int, nnz: int) -> list[tuple[str, str, tuple[int, ...]]]:
    """Name, dtype and shape of each array."""
    if kind == 0:
        return [("ids", "<i4", (m,)), ("user", "<i4", (n,)), ("item", "<i4", (n,)), ("rating", "<f4", (n,))]
    return [
        ("ids", "<i4", (m,)),
        ("columns", "<i4", (n_columns,)),
        ("dense", "<f4", (n_columns, n)),
        ("indptr", "<i4", (n + 1,)),
        ("indices", "<u2" if m <= SHORT_IDS else "<i4", (nnz,)),
        ("values", "<f4", (0 if flags & _ALL_ONES else nnz,)),
        ("labels", "<f4", (n,)),
    ]


def _check(minibatch: Minibatch, n_ids: int) -> None:
    """Raise DecodeError unless every index and value is in its range."""
    ids, m = minibatch.ids, len(minibatch.ids)
    if m and (ids[0] < 0 or ids[-1] >= n_ids or not bool((ids[1:] > ids[:-1]).all())):
        raise DecodeError(f"minibatch ids {ids[0]}..{ids[-1]}: must be sorted, unique and below {n_ids}")
    if isinstance(minibatch, RatingsMinibatch):
        for name in ("user", "item"):
            _check_range(name, getattr(minibatch, name), m)
        _check_finite("ratings", minibatch.rating)
        return
    columns, indptr, indices = minibatch.columns, minibatch.indptr, minibatch.indices
    _check_range("columns", columns, m)
    if not bool((columns[1:] > columns[:-1]).all()):
        raise DecodeError("minibatch columns: must be sorted and unique")
    if indptr[0] != 0 or indptr[-1] != len(indices) or not bool((indptr[1:] >= indptr[:-1]).all()):
        raise DecodeError(f"minibatch indptr {indptr[0]}..{indptr[-1]}: must rise from 0 to {len(indices)}")
    _check_range("indices", indices, m)
    for name in ("dense", "values", "labels"):
        _check_finite(name, getattr(minibatch, name))


def _check_range(name: str, array: NDArray[np.uint16] | Int32, end: int) -> None:
    if not len(array):
        return
    low, high = int(array.min()), int(array.max())
    if low < 0 or high >= end:
        raise DecodeError(f"minibatch {name} {low}..{high}: must be from 0 to {end - 1}")


def _check_finite(name: str, array: Float32) -> None:
    if not bool(np.isfinite(array).all()):
        raise DecodeError(f"minibatch {name}: must be finite")
