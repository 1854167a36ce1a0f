"""Ratings in memory, and the assignment of users to shards."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels import cut_ratings
from ..plurals import count
from .dataset import Dataset, Owners, digest, sampled
from .minibatches import Float32, Int32, RatingsMinibatch
from .sampling import check_size, row_order


class Ratings(Dataset):
    """Ratings of items by users, in memory, checked; made by ``mlless_nb.datasets``.

    Attributes
    ----------
    users, items : int32 (n,)
        0-based ids; read-only.
    ratings : float32 (n,)
        Read-only.
    titles : list of str or None
        One for each item, if the data has them.
    """

    kind = "ratings"

    def __init__(
        self,
        users: Int32,
        items: Int32,
        ratings: Float32,
        shape: tuple[int, int],
        name: str = "ratings",
        *,
        is_synthetic: bool = False,
        titles: list[str] | None = None,
    ) -> None:
        self.users, self.items, self.ratings = users, items, ratings
        for array in (users, items, ratings):
            array.setflags(write=False)  # the fingerprint is cached
        self.n, self.shape = len(ratings), shape
        self.name, self.is_synthetic, self.titles = name, is_synthetic, titles

    @cached_property
    def _mean(self) -> float:
        return float(self.ratings.mean(dtype=np.float64))

    @property
    def mean(self) -> float:
        """Mean rating."""
        return self._mean

    @property
    def nothing_to_learn(self) -> str:
        """See `Dataset`."""
        same = self.ratings[0]
        is_constant = all(bool((some == same).all()) for some in (self.ratings[:1000], self.ratings))
        return f"all {self.n:,} ratings are {same:g}" if is_constant else ""

    @cached_property
    def _fingerprint(self) -> str:
        return digest("ratings", self.shape, self.users, self.items, self.ratings)

    def fingerprint(self) -> str:
        """See `Dataset`."""
        return self._fingerprint

    def sketch(self) -> str:
        """See `Dataset`."""
        return digest("ratings", (self.n, *self.shape), *map(sampled, (self.users, self.items, self.ratings)))

    def in_units(self, origin: float, deviation: float) -> Ratings:
        """The same ratings as ``(rating - origin) / deviation``, float32."""
        ratings = ((self.ratings - np.float64(origin)) / deviation).astype(np.float32)
        shape = (self.shape[0], self.shape[1])
        other = Ratings(self.users, self.items, ratings, shape, self.name, is_synthetic=self.is_synthetic)
        other.origin, other.deviation = origin, deviation
        # Derived from the known fingerprint: hashing all rows again would take as long as changing them.
        other._fingerprint = hashlib.sha256(f"{self.fingerprint()} {origin!r} {deviation!r}".encode()).hexdigest()
        return other

    def taken(self, mask: NDArray[np.bool_]) -> Ratings:
        """See `Dataset`."""
        rows = np.flatnonzero(mask)  # three times as fast as indexing by the mask
        taken = Ratings(
            self.users.take(rows),
            self.items.take(rows),
            self.ratings.take(rows),
            (self.shape[0], self.shape[1]),
            self.name,
            is_synthetic=self.is_synthetic,
            titles=self.titles,
        )
        taken.origin, taken.deviation = self.origin, self.deviation
        self._mark(taken, mask)
        return taken

    @cached_property
    def _n_rated(self) -> NDArray[np.int64]:
        return np.bincount(self.users, minlength=self.shape[0])

    def seen(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which users and items have ratings: flags (n_users,), (n_items,)."""
        items = np.zeros(self.shape[1], bool)
        items[self.items] = True
        return self._n_rated > 0, items

    @cached_property
    def n_raters(self) -> int:
        """Number of users with at least one rating."""
        return int(np.count_nonzero(self._n_rated))

    def shard_sizes(self, n_shards: int) -> NDArray[np.int64]:
        """Number of ratings in each shard of `owners`, (n_shards,)."""
        return np.bincount(self.owners(n_shards), weights=self._n_rated, minlength=n_shards).astype(np.int64)

    def owners(self, n_shards: int) -> Owners:
        """The shard of each user. Users are assigned by falling number of ratings, in alternating order of shards.

        So shards have about equally many ratings.

        Parameters
        ----------
        n_shards : int
            At most `n_raters`, so that no shard is empty.
        """
        n_users = self.shape[0]
        busiest = np.argsort(-self._n_rated, kind="stable")
        lap, place = np.divmod(np.arange(n_users), n_shards)
        owners = np.empty(n_users, np.int32)
        owners[busiest] = np.where(lap % 2, n_shards - 1 - place, place)
        return owners

    @property
    def ids_per_row(self) -> float:
        """A user and an item."""
        return 2.0

    @property
    def most_bytes(self) -> int:
        """See `Dataset`."""
        return 20 * self.n  # two positions, a value, and the ids of at most two rows

    def minibatches(self, size: int, seed: int | None) -> Iterator[RatingsMinibatch]:
        """See `Dataset`; within a minibatch ratings are sorted by (user, item)."""
        return (cut() for cut in self.cuts(size, seed)[1])

    def cuts(
        self, size: int, seed: int | None, owners: Owners | None = None
    ) -> tuple[tuple[int, ...], Iterator[Callable[[], RatingsMinibatch]]]:
        """See `Dataset`; with ``owners`` each minibatch has rows of one shard, and shards follow one another."""
        check_size(size)
        sizes = [self.n] if owners is None else np.bincount(owners, weights=self._n_rated).astype(int).tolist()
        bounds = tuple(itertools.accumulate((-(-n // size) for n in sizes), initial=0))
        return bounds, self._shard_cuts(size, seed, owners, len(sizes))

    def _shard_cuts(
        self, size: int, seed: int | None, owners: Owners | None, n_shards: int
    ) -> Iterator[Callable[[], RatingsMinibatch]]:
        """The cuts of all shards; each shard is prepared while the one before it is cut."""
        shard_of = None
        if owners is not None:
            shard_of = owners.astype(np.min_scalar_type(n_shards))[self.users]
        with ThreadPoolExecutor(1, thread_name_prefix="mlless-shard") as preparing:
            coming = preparing.submit(self._shard, shard_of, 0, seed)
            for shard in range(n_shards):
                cut, order = coming.result()
                if shard + 1 < n_shards:
                    coming = preparing.submit(self._shard, shard_of, shard + 1, seed)
                for start in range(0, len(order), size):
                    yield partial(cut, order[start : start + size])

    def _shard(
        self, shard_of: NDArray[np.unsignedinteger[Any]] | None, shard: int, seed: int | None
    ) -> tuple[Callable[[NDArray[np.int64]], RatingsMinibatch], NDArray[np.int64]]:
        """The cutter of a shard's ratings, and their order."""
        arrays = self.users, self.items, self.ratings
        if shard_of is not None:
            rows = np.flatnonzero(shard_of == shard)
            arrays = self.users.take(rows), self.items.take(rows), self.ratings.take(rows)
        n_users, n_items = self.shape[0], self.shape[1]

        def cut(taken: NDArray[np.int64]) -> RatingsMinibatch:
            return RatingsMinibatch(*cut_ratings(*arrays, taken, n_users, n_items))

        return cut, row_order(len(arrays[0]), seed)

    def __repr__(self) -> str:
        n_users, n_items = self.shape
        return (
            f"<Ratings {self._label()}: {count(self.n, 'rating')}, {count(n_users, 'user')} x {count(n_items, 'item')}>"
        )
