"""Sums over the columns of feature rows, from which follow the units of training and the rows' mean length."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data.csr import Csr
from ..data.stored_files import StoredRows
from ..data.stream import CsrStream
from ..errors import DecodeError

Float64 = NDArray[np.float64]

#: Columns with a value in at least this share of the rows are centred; zeros of the other rows are stored explicitly.
CENTRED_FROM = 0.9
#: A deviation below this many times the root mean square is a rounding error: the column is treated as constant.
LEAST_DEVIATION = 1e-5
#: Columns or ratings whose root mean square or deviation is outside this range are not scaled: float32 would overflow.
LEAST, MOST = 1e-18, 1e18
#: Rows of a stream that its columns' statistics are computed from: reading all would take as long as packing.
STREAM_ROWS = 100_000


class ColumnSums:
    """Statistics of each column, accumulated block by block; where blocks end does not matter.

    Attributes
    ----------
    n : int
        Number of rows.
    """

    def __init__(self, n_features: int) -> None:
        self.n = 0
        self._count = np.zeros(n_features)
        self._sum: Float64 = np.zeros(n_features)
        self._squares: Float64 = np.zeros(n_features)
        self._is_odd = np.zeros(n_features, bool)

    def add(self, X: Any, *, is_all: bool = False) -> None:
        """Rows ``X``, CSR (n, n_features); ``is_all`` if there are no others."""
        indices, values, n_features = X.indices, X.data, X.shape[1]
        self.n += X.shape[0]
        self._is_odd[indices[(values != 1.0) & (values != 2.0) & (values != 0.0)]] = True
        is_counted = values != 0.0
        if is_all:  # else a later block may have the first odd value of a column
            is_counted &= self._is_odd[indices]
        indices, values = indices[is_counted], values[is_counted].astype(np.float64)
        self._count += np.bincount(indices, minlength=n_features)
        # The sums so far are the first summands, so that the order of additions is that of one block.
        places = np.append(np.arange(n_features), indices)
        self._sum = np.bincount(places, np.append(self._sum, values), n_features).astype(np.float64)
        squares = np.append(self._squares, values * values)
        self._squares = np.bincount(places, squares, n_features).astype(np.float64)

    def units(self) -> tuple[Float64, Float64]:
        """(shift, scale) of each column."""
        shift, scale = np.zeros_like(self._sum), np.ones_like(self._sum)
        root = np.sqrt(self._squares / np.maximum(self._count, 1))
        is_odd = self._is_odd & (root > LEAST) & (root < MOST)
        scale[is_odd] = root[is_odd]
        mean = self._sum / max(self.n, 1)
        deviation = np.sqrt(np.maximum(self._squares / max(self.n, 1) - mean * mean, 0.0))
        is_centred = is_odd & (self._count >= CENTRED_FROM * self.n) & (deviation > LEAST_DEVIATION * root)
        shift[is_centred], scale[is_centred] = mean[is_centred], deviation[is_centred]
        return shift, scale

    def squared_length(self, shift: Float64, scale: Float64) -> float:
        """The mean squared length of the rows once their columns have these units."""
        squares = self._squares - 2.0 * shift * self._sum + self.n * shift * shift
        return float((squares / (scale * scale)).sum()) / max(self.n, 1)

    def encode(self) -> bytes:
        """The sums as bytes; the number of rows is not among them."""
        return np.stack([self._count, self._sum, self._squares, self._is_odd]).astype("<f8").tobytes()

    @classmethod
    def decode(cls, blob: bytes, n: int, n_features: int) -> ColumnSums:
        """The sums of ``n`` rows that `encode` wrote; DecodeError if they are of another number of columns."""
        if len(blob) != 32 * n_features:
            raise DecodeError(f"sums of {n_features} columns in {len(blob)} bytes: must be {32 * n_features}")
        sums = cls(n_features)
        sums.n = n
        sums._count, sums._sum, sums._squares, is_odd = np.frombuffer(blob, "<f8").reshape(4, n_features)
        sums._is_odd = is_odd != 0.0
        return sums


def column_sums(dataset: Csr | CsrStream) -> ColumnSums:
    """The sums of a dataset's columns; for a stream, of its first rows."""
    if isinstance(dataset, StoredRows) and dataset.sum_columns is not None:
        return dataset.sum_columns(dataset)  # type: ignore[no-any-return]
    sums = ColumnSums(dataset.shape[0])
    if isinstance(dataset, Csr):
        sums.add(dataset.X, is_all=True)
    else:
        add_first(sums, (X for X, _ in dataset.blocks()), summed_rows(dataset))
    return sums


def summed_rows(dataset: CsrStream) -> int | None:
    """Number of rows whose columns are summed, None for all: those of a file that ``datasets`` has in memory."""
    return None if isinstance(dataset, StoredRows) and dataset.is_as_in_memory else STREAM_ROWS


def add_first(sums: ColumnSums, blocks: Iterable[Any], most: int | None) -> None:
    """Add the first blocks, until these have ``most`` rows or more (None: all blocks)."""
    for X in blocks:
        sums.add(X)
        if most is not None and sums.n >= most:
            break
