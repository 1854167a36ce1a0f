"""Cuts CSR rows into minibatches: finds the features that they touch, and columns to store dense."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .minibatches import SHORT_IDS, CsrMinibatch, Float32, Int32

#: Up to this number of features, a table of all of them is kept while cutting minibatches (int32: 256 MiB).
TABLE_FEATURES = 1 << 26
#: A column is stored dense if at least this share of the minibatch's rows have a value in it. A dense value takes a
#: fifteenth of the time of an entry with an index, but each row takes 4 bytes, with or without a value, instead of 6.
DENSE_FROM = 0.5
#: An entry of 2 is stored as two entries of 1, if that makes the number of entries at most so many times as large.
MOST_ENTRIES = 1.1
#: Features are marked in a table, instead of sorted, if the table is at most so many times a minibatch's entries.
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
    """Columns to store dense, their values (n_columns, n), and a mask of the other entries.

    They are the columns in which `DENSE_FROM` of the rows have a value; and also all columns with values other than 1,
    if that takes no more room than it saves: the values of all other entries, which are then all 1.
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
    """Leave out values that are all 1. A 2, from two categories in one bucket, becomes two entries first."""
    if not _is_small(values).all() or values.sum(dtype=np.float64) > MOST_ENTRIES * len(values):
        return indptr, local, values
    times = values.astype(np.int64)
    ends = np.append(0, np.cumsum(times))
    return ends[indptr].astype(np.int32), np.repeat(local, times), np.empty(0, np.float32)


def _is_small(values: Float32) -> NDArray[np.bool_]:
    """Which values are 1 or 2."""
    is_small: NDArray[np.bool_] = (values == 1.0) | (values == 2.0)
    return is_small
