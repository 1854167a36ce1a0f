"""Rows become minibatches: ratings sorted, with the rows that they touch; CSR rows with columns that are held dense."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .minibatches import SHORT_ROWS, CsrMinibatch, Float32, Int32, RatingsMinibatch

#: Up to so many features a table of all of them is kept while cutting minibatches (int32: 256 MiB).
TABLE_FEATURES = 1 << 26
#: A minibatch's columns that at least this share of its rows have are held dense. A row takes a fifteenth of the time
#: there that an entry with an index does, but 4 bytes, whether it has a value or not, instead of 6.
DENSE_FROM = 0.5
#: Entries of 1 and 2 are told as so many ones where that makes at most so many times as many of them.
MOST_ENTRIES = 1.1
#: Items or features are marked in a table of all, instead of sorted, where that is at most so many times a minibatch's
#: ratings or entries.
UNIQUE_FROM = 16
#: Up to so many ratings are put side by side before they are cut (256 MiB).
MOST_RECORDS = 1 << 24


class RatingsCutter:
    """Turns ratings into minibatches, in any thread; each thread keeps tables of all items between calls.

    Parameters
    ----------
    users, items : int32 (n,)
    ratings : float32 (n,)
    shape : (int, int)
        Users and items.
    """

    def __init__(self, users: Int32, items: Int32, ratings: Float32, shape: tuple[int, int]) -> None:
        self._n_users, self._n_items = shape
        self._item_bits = (self._n_items - 1).bit_length()
        self._pair_bits = (self._n_users - 1).bit_length() + self._item_bits
        self._arrays = users, items, ratings
        self._records: NDArray[np.complex128] | None = None
        if len(ratings) <= MOST_RECORDS:
            # A rating in 16 bytes side by side: one cache line where three arrays have three.
            records = np.empty((len(ratings), 2), np.int64)
            np.left_shift(users, self._item_bits, out=records[:, 0], dtype=np.int64)
            records[:, 0] |= items
            records[:, 1] = ratings.view(np.int32)
            self._records = records.view(np.complex128)[:, 0]
            self._arrays = users[:0], items[:0], ratings[:0]
        self._of_thread = threading.local()

    def __call__(self, taken: NDArray[np.int64] | slice) -> RatingsMinibatch:
        """The minibatch of the ratings ``taken``, sorted by (user, item), equal ones in the order they have."""
        users, items, rating = self._sorted(*self._take(taken))
        is_first = np.empty(len(users), bool)
        is_first[0] = True
        np.not_equal(users[1:], users[:-1], out=is_first[1:])
        user_rows = users[is_first].astype(np.int32)
        user = is_first.view(np.int8).astype(np.int32)
        user[0] = 0
        np.cumsum(user, out=user)
        local_item, is_there = self._tables()
        if self._n_items < UNIQUE_FROM * len(items):
            is_there[items] = True
            item_rows = np.flatnonzero(is_there).astype(np.int32)
            is_there[item_rows] = False
        else:
            item_rows = np.unique(items).astype(np.int32)
        local_item[item_rows] = np.arange(len(user_rows), len(user_rows) + len(item_rows), dtype=np.int32)
        rows = np.concatenate([user_rows, item_rows + np.int32(self._n_users)])
        return RatingsMinibatch(rows, user, local_item[items], rating)

    def _take(self, taken: NDArray[np.int64] | slice) -> tuple[NDArray[np.int64], Float32]:
        """User and item of ratings in one number, and the ratings."""
        if self._records is not None:
            pairs = self._records[taken].view(np.int64).reshape(-1, 2)
            return pairs[:, 0], pairs[:, 1].astype(np.int32).view(np.float32)
        users, items, ratings = self._arrays
        return users[taken].astype(np.int64) << self._item_bits | items[taken], ratings[taken]

    def _sorted(
        self, pairs: NDArray[np.int64], rating: Float32
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], Float32]:
        """Users, items and ratings of a minibatch in order, the same on every machine."""
        n, item_mask = len(pairs), (1 << self._item_bits) - 1
        place_bits = (n - 1).bit_length()
        if self._pair_bits + place_bits > 63:
            places = np.argsort(pairs, kind="stable")
            pairs = pairs[places]
        else:
            # With its place in it no key is there twice: any sort will do, and one of values is the quickest there is.
            keys = pairs << place_bits
            keys |= np.arange(n)
            keys.sort()
            places, pairs = keys & ((1 << place_bits) - 1), keys >> place_bits
        return pairs >> self._item_bits, pairs & item_mask, rating[places]

    def _tables(self) -> tuple[Int32, NDArray[np.bool_]]:
        """Where each item's row is in the minibatch, and whether it is there; room for it, (n_items,)."""
        tables = self._of_thread
        if not hasattr(tables, "local_item"):
            tables.local_item, tables.is_there = np.empty(self._n_items, np.int32), np.zeros(self._n_items, bool)
        return tables.local_item, tables.is_there


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
            np.append(features, self._n_features).astype(np.int32),
            columns,
            dense,
            indptr,
            local.astype(np.uint16) if len(features) < SHORT_ROWS else local,
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
