"""Rows on their way from the function that reads them to the function that makes their minibatches, as bytes.

A piece is an object with rows for all lots (ranges of minibatches)::

    n_lots u64   ends u64 (n_lots,), offsets in the object   then the rows of each lot
    rows: n u64   nnz u64   slots i64 (n,)   lengths i32 (n,)   indices i32 (nnz,)   values f32 (nnz,)   labels f32 (n,)

The slot of a row is its place in the order of all minibatches.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..data.minibatches import Float32
from ..errors import DecodeError

_COUNTS = struct.Struct("<QQ")
_LOTS = struct.Struct("<Q")


class SlottedRows(NamedTuple):
    """Rows with their slots: ``X`` CSR float32 (n, n_features), ``y`` float32 (n,), ``slots`` int64 (n,)."""

    X: Any
    y: Float32
    slots: NDArray[np.int64]

    def taken(self, at: NDArray[Any]) -> SlottedRows:
        """The rows at these positions."""
        return SlottedRows(self.X[at], self.y[at], self.slots[at])

    @property
    def n_bytes(self) -> int:
        """Size in memory, about, bytes."""
        return 8 * int(self.X.nnz) + 16 * len(self.y)


def stacked(parts: Sequence[SlottedRows]) -> SlottedRows:
    """All parts as one."""
    from scipy.sparse import vstack

    if len(parts) == 1:
        return parts[0]
    X, y, slots = zip(*parts, strict=True)
    return SlottedRows(vstack(X, format="csr"), np.concatenate(y), np.concatenate(slots))


def encode_piece(lots: Sequence[Sequence[SlottedRows]]) -> bytes:
    """A piece with the rows of each lot."""
    blobs = [b"".join(map(_encoded, parts)) for parts in lots]
    ends = _LOTS.size + 8 * len(blobs) + np.cumsum([len(blob) for blob in blobs])
    return b"".join([_LOTS.pack(len(blobs)), ends.astype("<u8").tobytes(), *blobs])


def head_bytes(n_lots: int) -> int:
    """Size of the head of a piece, bytes."""
    return _LOTS.size + 8 * n_lots


def decode_head(head: bytes, n_lots: int) -> NDArray[np.int64]:
    """Offsets in the piece: where the rows of each lot begin, and where the last ones end, int64 (n_lots + 1,)."""
    if len(head) != head_bytes(n_lots) or _LOTS.unpack_from(head)[0] != n_lots:
        raise DecodeError(f"not a piece of {n_lots} lots of rows")
    ends = np.frombuffer(head, "<u8", n_lots, _LOTS.size).astype(np.int64)
    if not bool((np.diff(ends, prepend=len(head)) >= 0).all()):
        raise DecodeError("a piece of rows whose lots end before they begin")
    return np.append(len(head), ends)


def _encoded(rows: SlottedRows) -> bytes:
    X = rows.X
    arrays = (rows.slots, "<i8"), (np.diff(X.indptr), "<i4"), (X.indices, "<i4"), (X.data, "<f4"), (rows.y, "<f4")
    parts = [np.ascontiguousarray(array, dtype).tobytes() for array, dtype in arrays]
    return b"".join([_COUNTS.pack(len(rows.y), X.nnz), *parts])


def decode_rows(blob: bytes, n_features: int) -> list[SlottedRows]:
    """The rows of one lot in a piece; DecodeError if they are invalid."""
    from scipy.sparse import csr_array

    found, at = [], 0
    while at < len(blob):
        if len(blob) - at < _COUNTS.size:
            raise DecodeError("rows of a piece that end too early")
        n, nnz = _COUNTS.unpack_from(blob, at)
        at += _COUNTS.size
        if len(blob) - at < 16 * n + 8 * nnz:
            raise DecodeError(f"{n} rows of a piece that end too early")
        arrays = []
        for dtype, count in (("<i8", n), ("<i4", n), ("<i4", nnz), ("<f4", nnz), ("<f4", n)):
            arrays.append(np.frombuffer(blob, dtype, count, at))
            at += arrays[-1].nbytes
        slots, lengths, indices, values, y = arrays
        if (
            (n and int(lengths.min()) < 0)
            or int(lengths.sum(dtype=np.int64)) != nnz
            or (nnz and not 0 <= indices.min() <= indices.max() < n_features)
        ):
            raise DecodeError(f"{n} rows of a piece with wrong indices")
        X = csr_array((values, indices, np.append(0, np.cumsum(lengths))), shape=(n, n_features))
        found.append(SlottedRows(X, y, slots))
    return found
