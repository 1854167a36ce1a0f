"""CSR rows become minibatches: with the features that they touch, and columns that are held dense."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .minibatches import SHORT_IDS, CsrMinibatch, Float32, Int32

#: Up to so many features a table of all of them is kept while cutting minibatches (int32: 256 MiB).
TABLE_FEATURES = 1 << 26
#: A minibatch's columns that at least this share of its rows have are held dense. A row takes a fifteenth of the time
#: there that an entry with an index does, but 4 bytes, whether it has a value or not, instead of 6.
DENSE_FROM = 0.5
#: Entries of 1 and 2 are told as so many ones where that makes at most so many times as many of them.
MOST_ENTRIES = 1.1
#: Features are marked in a table of all, instead of sorted, where that is at most so many times a minibatch's entries.
UNIQUE_FROM = 16


class MinibatchCutter:
    """Turns CSR rows with global feature ids into minibatches; keeps one table of all features between calls."""

    def __init__(self, n_features: int) -> None:
        self._n_features = n_features
        self._local = np.empty(n_features, np.int32) if n_features <= TABLE_FEATURES else None

    def __call__(self, X: Any, y: Float32) -> CsrMinibatch:
        """The minibatch of ``X`` (n, n_features) and ``y`` (n,)."""
        indptr, values = X.indptr.astype(np.int32), np.ascontiguousarray(X.data, np.float32)
        if self._n_features < UNIQUE_FROM * len(X.indices):
            is_there = np.zeros(self._n_features, bool)
            is_there[X.indices] = True
            features = np.flatnonzero(is_there)
        else:
            features = np.unique(X.indices)
        if self._local is not None:
            self._local[features] = np.arange(len(features), dtype=np.int32)
            local = self._local[X.indices]
        else:
            local = np.searchsorted(features, X.indices).astype(np.int32)
        columns, dense, is_rest = _dense_columns(indptr, local, values, len(features))  # a row has a feature once
        if len(columns):
            indptr = np.append(0, np.cumsum(is_rest))[indptr].astype(np.int32)
            local, values = local[is_rest], values[is_rest]
        indptr, local, values = _as_ones(indptr, local, values)
        return CsrMinibatch(
            features.astype(np.int32),
            columns,
            dense,
            indptr,
            local.astype(np.uint16) if len(features) <= SHORT_IDS else local,
            values,
            np.ascontiguousarray(y, np.float32),
        )


def _dense_columns(
    indptr: Int32, local: Int32, values: Float32, n_features: int
) -> tuple[Int32, Float32, NDArray[np.bool_]]:
    """Columns to hold dense, their values (n_columns, n), and which entries are others.

    They are those that `DENSE_FROM` of the rows have; and all with values of their own, where they take no more room
    than the ones that no other entry then has to tell.
    """
    n = len(indptr) - 1
    is_dense = np.bincount(local, minlength=n_features) >= DENSE_FROM * n
    is_odd = np.zeros(n_features, bool)
    is_odd[local[~_is_small(values)]] = True
    is_odd &= ~is_dense
    if np.count_nonzero(is_odd) * n <= len(local) - np.count_nonzero(is_dense[local]):
        is_dense |= is_odd
    columns = np.flatnonzero(is_dense).astype(np.int32)
    dense = np.zeros((len(columns), n), np.float32)
    column_of = np.empty(n_features, np.int32)
    column_of[columns] = np.arange(len(columns))
    is_held = is_dense[local]
    row = np.repeat(np.arange(n), np.diff(indptr))
    dense[column_of[local[is_held]], row[is_held]] = values[is_held]
    return columns, dense, ~is_held


def _as_ones(indptr: Int32, local: Int32, values: Float32) -> tuple[Int32, Int32, Float32]:
    """No values where all are 1. Features that are hashed to one place in a row sum up to 2: told as two entries."""
    if not _is_small(values).all() or values.sum(dtype=np.float64) > MOST_ENTRIES * len(values):
        return indptr, local, values
    times = values.astype(np.int64)
    ends = np.append(0, np.cumsum(times))
    return ends[indptr].astype(np.int32), np.repeat(local, times), np.empty(0, np.float32)


def _is_small(values: Float32) -> NDArray[np.bool_]:
    """Which values are 1 or 2."""
    is_small: NDArray[np.bool_] = (values == 1.0) | (values == 2.0)
    return is_small
