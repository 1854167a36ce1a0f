"""Minibatches as bytes: a header, plain arrays, a CRC32C. Nothing read is used before every count and index is checked.

Layout (little-endian; each array starts at a multiple of 8 bytes, so that it is used where it lies)::

    magic b"MLLM"   version u8   kind u8 {0 ratings, 1 csr}   reserved u16   m u32   n u32   nnz u64
    ratings:  rows i32 (m,)   user i32 (n,)   item i32 (n,)   rating f32 (n,)
    csr:      rows i32 (m,)   indptr i32 (n + 1,)   indices i32 (nnz,)   values f32 (nnz,)   labels f32 (n,)
    crc32c u32 over everything before it
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..errors import DecodeError
from ..kernels import crc32c

Int32 = NDArray[np.int32]
Float32 = NDArray[np.float32]

MAGIC = b"MLLM"
VERSION = 1
_HEADER = struct.Struct("<4sBBHIIQ")
_CRC = struct.Struct("<I")


@dataclass(frozen=True, eq=False)
class RatingsMinibatch:
    """Ratings and the parameter rows they touch.

    Attributes
    ----------
    rows : int32 (m,)
        Touched rows of the parameter table, sorted, unique: users, then ``n_users`` + items.
    user, item : int32 (n,)
        Positions in ``rows``; the ratings are sorted by (user, item).
    rating : float32 (n,)
    """

    rows: Int32
    user: Int32
    item: Int32
    rating: Float32
    kind: ClassVar[str] = "ratings"

    @property
    def n(self) -> int:
        """Ratings in the minibatch."""
        return len(self.rating)


@dataclass(frozen=True, eq=False)
class CsrMinibatch:
    """Sparse feature rows with labels, and the parameter rows they touch.

    Attributes
    ----------
    rows : int32 (m,)
        Touched rows of the parameter table, sorted, unique: features, and last the intercept's, ``n_features``.
    indptr : int32 (n + 1,)
        Row ``k`` is ``indices[indptr[k]:indptr[k + 1]]``.
    indices : int32 (nnz,)
        Positions in ``rows``; never that of the intercept.
    values : float32 (nnz,)
    labels : float32 (n,)
        0 or 1.
    """

    rows: Int32
    indptr: Int32
    indices: Int32
    values: Float32
    labels: Float32
    kind: ClassVar[str] = "csr"

    @property
    def n(self) -> int:
        """Rows in the minibatch."""
        return len(self.labels)


Minibatch = RatingsMinibatch | CsrMinibatch


def encode_minibatch(minibatch: Minibatch) -> bytes:
    """The minibatch as bytes, in the layout of this module."""
    m, n = len(minibatch.rows), minibatch.n
    if isinstance(minibatch, RatingsMinibatch):
        header = _HEADER.pack(MAGIC, VERSION, 0, 0, m, n, 0)
        arrays: list[tuple[NDArray[Any], str]] = [
            (minibatch.rows, "<i4"),
            (minibatch.user, "<i4"),
            (minibatch.item, "<i4"),
            (minibatch.rating, "<f4"),
        ]
    else:
        header = _HEADER.pack(MAGIC, VERSION, 1, 0, m, n, len(minibatch.indices))
        arrays = [
            (minibatch.rows, "<i4"),
            (minibatch.indptr, "<i4"),
            (minibatch.indices, "<i4"),
            (minibatch.values, "<f4"),
            (minibatch.labels, "<f4"),
        ]
    parts = [header]
    for array, dtype in arrays:
        parts.append(np.ascontiguousarray(array, dtype).tobytes())
        parts.append(bytes(-len(parts[-1]) % 8))
    body = b"".join(parts)
    return body + _CRC.pack(crc32c(body))


def decode_minibatch(blob: bytes, n_rows: int) -> Minibatch:
    """The minibatch in ``blob``; its arrays are read-only views of it.

    Parameters
    ----------
    blob : bytes
        As `encode_minibatch` wrote it.
    n_rows : int
        Rows of the parameter table: every row id must be below it, and for CSR the last must be the intercept's.

    Raises
    ------
    DecodeError
        When anything at all is not as it should be.
    """
    if len(blob) < _HEADER.size + _CRC.size:
        raise DecodeError(f"a minibatch of {len(blob)} bytes: must be at least {_HEADER.size + _CRC.size}")
    magic, version, kind, reserved, m, n, nnz = _HEADER.unpack_from(blob)
    if magic != MAGIC:
        raise DecodeError(f"not a minibatch: begins with {magic!r}, must be {MAGIC!r}")
    if version != VERSION:
        raise DecodeError(f"minibatch version {version}: this mlless_nb reads version {VERSION}")
    if kind not in (0, 1) or reserved != 0 or (kind == 0 and nnz != 0):
        raise DecodeError(f"minibatch header with kind {kind}, reserved {reserved}, nnz {nnz}: must be 0 or 1, 0, ...")
    if m == 0 or n == 0:
        raise DecodeError("an empty minibatch")
    layout = [(m, "<i4"), (n, "<i4"), (n, "<i4"), (n, "<f4")]
    if kind == 1:
        layout = [(m, "<i4"), (n + 1, "<i4"), (nnz, "<i4"), (nnz, "<f4"), (n, "<f4")]
    n_bytes = _HEADER.size + sum(4 * count + (-4 * count) % 8 for count, _ in layout) + _CRC.size
    if len(blob) != n_bytes:
        raise DecodeError(f"a minibatch of {len(blob)} bytes: its header says {n_bytes}")
    if crc32c(memoryview(blob)[: -_CRC.size]) != _CRC.unpack_from(blob, n_bytes - _CRC.size)[0]:
        raise DecodeError("minibatch with a wrong CRC32C: its bytes were damaged")
    arrays, offset = [], _HEADER.size
    for count, dtype in layout:
        arrays.append(np.frombuffer(blob, dtype, count, offset))
        offset += 4 * count + (-4 * count) % 8
    minibatch = CsrMinibatch(*arrays) if kind else RatingsMinibatch(*arrays)
    _check(minibatch, n_rows)
    return minibatch


def _check(minibatch: Minibatch, n_rows: int) -> None:
    """Raise DecodeError unless every index and value is in its range."""
    rows = minibatch.rows
    if rows[0] < 0 or rows[-1] >= n_rows or not bool((rows[1:] > rows[:-1]).all()):
        raise DecodeError(f"minibatch rows {rows[0]}..{rows[-1]}: must be sorted, unique and below {n_rows}")
    if isinstance(minibatch, RatingsMinibatch):
        for name in ("user", "item"):
            _check_range(name, getattr(minibatch, name), len(rows))
        _check_finite("ratings", minibatch.rating)
        return
    indptr, indices, labels = minibatch.indptr, minibatch.indices, minibatch.labels
    if rows[-1] != n_rows - 1:
        raise DecodeError(f"minibatch rows end with {rows[-1]}: must end with the intercept's, {n_rows - 1}")
    if indptr[0] != 0 or indptr[-1] != len(indices) or not bool((indptr[1:] >= indptr[:-1]).all()):
        raise DecodeError(f"minibatch indptr {indptr[0]}..{indptr[-1]}: must rise from 0 to {len(indices)}")
    if len(indices):
        _check_range("indices", indices, len(rows) - 1)
    _check_finite("values", minibatch.values)
    if not bool(((labels == 0) | (labels == 1)).all()):
        raise DecodeError("minibatch labels: must be 0 or 1")


def _check_range(name: str, array: Int32, end: int) -> None:
    low, high = int(array.min()), int(array.max())
    if low < 0 or high >= end:
        raise DecodeError(f"minibatch {name} {low}..{high}: must be from 0 to {end - 1}")


def _check_finite(name: str, array: Float32) -> None:
    if not bool(np.isfinite(array).all()):
        raise DecodeError(f"minibatch {name}: must be finite")
