"""Merging several minibatches into one, for a step of a worker that holds more than one shard."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from functools import singledispatch
from typing import Any

import numpy as np

from ..data.minibatches import SHORT_IDS, CsrMinibatch, Int32, RatingsMinibatch
from .minibatch_loader import CACHE_BYTES, MinibatchFeed


@singledispatch
def merge(first: Any, parts: Sequence[Any]) -> Any:
    """One minibatch with the rows of all ``parts``; its loss and gradient are the sums of theirs.

    Parameters
    ----------
    first : RatingsMinibatch or CsrMinibatch
        The first of ``parts``; its type selects the implementation.
    parts : sequence of the same type, at least one

    Raises
    ------
    TypeError
        When ``first`` is not a minibatch.
    """
    raise TypeError(f"{type(first).__name__}: must be a minibatch")


def _union(parts: Sequence[Any]) -> tuple[Int32, list[Int32]]:
    """The union of the ids of all ``parts``, int32 (m,), and the positions of each part's ids in it."""
    ids = np.unique(np.concatenate([part.ids for part in parts]))
    return ids, [np.searchsorted(ids, part.ids).astype(np.int32) for part in parts]


@merge.register
def _(first: RatingsMinibatch, parts: Sequence[RatingsMinibatch]) -> RatingsMinibatch:
    ids, places = _union(parts)
    user = np.concatenate([place[part.user] for place, part in zip(places, parts, strict=True)])
    item = np.concatenate([place[part.item] for place, part in zip(places, parts, strict=True)])
    # Sorted by (user, item) like each part, so that a kernel reuses a user's row.
    order = np.argsort(user.astype(np.int64) * len(ids) + item, kind="stable")
    rating = np.concatenate([part.rating for part in parts])
    return RatingsMinibatch(ids, user[order], item[order], rating[order])


@merge.register
def _(first: CsrMinibatch, parts: Sequence[CsrMinibatch]) -> CsrMinibatch:
    ids, places = _union(parts)
    columns = np.unique(np.concatenate([place[part.columns] for place, part in zip(places, parts, strict=True)]))
    bounds = np.cumsum([0, *(part.n for part in parts)])
    # A column that is dense in one part may have sparse entries in another: a margin is the sum of both.
    dense = np.zeros((len(columns), bounds[-1]), np.float32)
    for place, part, begin, end in zip(places, parts, bounds, bounds[1:], strict=False):
        dense[np.searchsorted(columns, place[part.columns]), begin:end] = part.dense
    offsets = np.cumsum([0, *(len(part.indices) for part in parts)])
    indptr = [part.indptr[1:] + offset for part, offset in zip(parts, offsets, strict=False)]
    indices = np.concatenate([place[part.indices] for place, part in zip(places, parts, strict=True)])
    has_values = any(len(part.values) for part in parts)
    values = [part.values if len(part.values) else np.ones(len(part.indices), np.float32) for part in parts]
    return CsrMinibatch(
        ids,
        columns.astype(np.int32),
        dense,
        np.concatenate([[0], *indptr]).astype(np.int32),
        indices.astype(np.uint16) if len(ids) <= SHORT_IDS else indices,
        np.concatenate(values) if has_values else np.empty(0, np.float32),
        np.concatenate([part.labels for part in parts]),
    )


class MergedFeed:
    """The minibatches of a feed, merged by groups that one step takes, with a cache of the merged ones.

    Parameters
    ----------
    feed : MinibatchFeed
    """

    def __init__(self, feed: MinibatchFeed) -> None:
        self._feed = feed
        self._kept: OrderedDict[tuple[int, ...], Any] = OrderedDict()
        self._kept_bytes = 0

    def get(self, indices: Sequence[int]) -> Any:
        """The minibatches ``indices``, merged into one. Raises like `MinibatchFeed.get`."""
        if len(indices) == 1:
            return self._feed.get(indices[0])
        key = tuple(indices)
        merged = self._kept.get(key)
        if merged is not None:
            self._kept.move_to_end(key)
            return merged
        parts = [self._feed.get(index) for index in indices]
        merged = self._kept[key] = merge(parts[0], parts)
        self._kept_bytes += _n_bytes(merged)
        while self._kept_bytes > CACHE_BYTES and len(self._kept) > 1:
            self._kept_bytes -= _n_bytes(self._kept.popitem(last=False)[1])
        return merged

    def ids(self, index: int) -> Int32:
        """The ids of one minibatch, int32 (m,)."""
        ids: Int32 = self._feed.get(index).ids
        return ids

    def expect(self, indices: Sequence[int]) -> None:
        """See `MinibatchFeed`. The groups change, so the cache is emptied."""
        self._kept.clear()
        self._kept_bytes = 0
        self._feed.expect(indices)

    @property
    def has_all(self) -> bool:
        """See `MinibatchFeed`."""
        return self._feed.has_all

    def n_gets(self, groups: Sequence[Sequence[int]]) -> int:
        """See `MinibatchFeed`."""
        return self._feed.n_gets([index for group in groups if tuple(group) not in self._kept for index in group])

    def prefetch(self, indices: Sequence[int]) -> None:
        """Begin to read the minibatches ``indices`` that are not in memory, unless they are merged already."""
        if tuple(indices) not in self._kept:
            for index in indices:
                self._feed.prefetch(index)

    def close(self) -> None:
        """Stop fetching."""
        self._feed.close()


def _n_bytes(minibatch: Any) -> int:
    return sum(array.nbytes for array in getattr(minibatch, "__dict__", {}).values())  # 0 for a simulated minibatch
