"""Datasets in memory: what a job trains on, split and cut into minibatches by seed."""

from __future__ import annotations

import hashlib
import itertools
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from ..kernels import cut_ratings
from .cutter import MinibatchCutter
from .minibatches import CsrMinibatch, Float32, Int32, Minibatch, RatingsMinibatch

if TYPE_CHECKING:
    from scipy.sparse import csr_array

#: What a seed is for, so that a split and the order of minibatches are drawn apart (1 is the model's start).
SPLIT, ORDER = 0, 2
#: The shard of each user, int32 (n_users,).
Owners = NDArray[np.int32]
#: Rows among which a split draws at once.
DRAW_ROWS = 1 << 20


class Dataset(ABC):
    """Training rows: ratings, or sparse features with labels.

    Attributes
    ----------
    kind : str
        "ratings" or "csr".
    name : str
        As shown to people.
    is_synthetic : bool
        Whether the rows were generated; said wherever the dataset shows.
    n : int
        Rows.
    shape : tuple of int
        (n_users, n_items) of ratings, (n_features,) of CSR.
    origin, deviation : float
        A rating ``r`` of this dataset stands for ``origin + deviation * r``; 0 and 1 unless it was standardised.
    """

    kind: ClassVar[str]
    name: str
    is_synthetic: bool
    n: int
    shape: tuple[int, ...]
    origin: float = 0.0
    deviation: float = 1.0

    @property
    def mean(self) -> float:
        """Mean rating; 0.0 where there are no ratings."""
        return 0.0

    @property
    def nothing_to_learn(self) -> str:
        """Why no model can be better than a constant: "all are 3"; "" where one may, as far as is known."""
        return ""

    @abstractmethod
    def fingerprint(self) -> str:
        """SHA-256 (hex) of the content: shape and rows, not the name."""

    @abstractmethod
    def split(self, fraction: float, seed: int) -> tuple[Dataset, Dataset]:
        """(training rows, validation rows), drawn by ``seed``; both keep the order they were stored in.

        Parameters
        ----------
        fraction : float
            Of the rows that are held out, between 0 and 1; at least one row is, and never all.
        seed : int
            >= 0; the same seed draws the same rows.
        """

    @property
    @abstractmethod
    def most_bytes(self) -> int:
        """Bytes of all rows as they are stored in minibatches, at most."""

    @abstractmethod
    def minibatches(self, size: int, seed: int | None) -> Iterator[Minibatch]:
        """Minibatches of ``size`` rows, the last one shorter where ``size`` does not divide ``n``.

        Rows are shuffled over the whole set by ``seed``; in stored order where it is None.
        """

    def cuts(
        self, size: int, seed: int | None, owners: Owners | None = None
    ) -> tuple[tuple[int, ...], Iterator[Callable[[], Minibatch]]]:
        """What to call for each of `minibatches`, in any thread.

        Returns
        -------
        shards : tuple of int
            Where each shard's minibatches begin, and the end; one shard without ``owners``.
        cuts : iterator of callables
        """
        minibatches = self.minibatches(size, seed)
        return (0, -(-self.n // size)), (partial(_same, minibatch) for minibatch in minibatches)

    def __len__(self) -> int:
        return self.n

    def _label(self) -> str:
        return f"{self.name} (synthetic)" if self.is_synthetic else self.name


def _same(minibatch: Minibatch) -> Minibatch:
    return minibatch


def held_out(n: int, fraction: float) -> int:
    """How many of ``n`` rows a split by ``fraction`` holds out: at least one, and never all."""
    return min(max(round(n * fraction), 1), n - 1) if n > 1 else 0


def check_split(n: int, fraction: float, seed: int) -> int:
    """How many of ``n`` rows to hold out; DataError when ``fraction`` or ``seed`` make no sense."""
    if isinstance(fraction, bool) or not isinstance(fraction, (int, float)) or not 0 < fraction < 1:
        raise DataError("fraction", fraction, "a number between 0 and 1, e.g. 0.1")
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise DataError("seed", seed, "an integer >= 0")
    if n < 2:
        raise DataError("data", f"{n} row", "at least 2 rows, to hold one out")
    return held_out(n, fraction)


def check_size(size: int) -> None:
    """Raise DataError unless ``size`` is a minibatch size."""
    if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 1:
        raise DataError("minibatch", size, "an integer >= 1")


class Ratings(Dataset):
    """Ratings of items by users, in memory, checked; made by ``mlless_nb.datasets``.

    Attributes
    ----------
    users, items : int32 (n,)
        0-based ids; read-only.
    ratings : float32 (n,)
        Read-only.
    titles : list of str or None
        One a item, where the data has them.
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
            array.setflags(write=False)  # the fingerprint is remembered
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

    def in_units(self, origin: float, deviation: float) -> Ratings:
        """The same ratings as ``(rating - origin) / deviation``, float32."""
        ratings = ((self.ratings - np.float64(origin)) / deviation).astype(np.float32)
        shape = (self.shape[0], self.shape[1])
        other = Ratings(self.users, self.items, ratings, shape, self.name, is_synthetic=self.is_synthetic)
        other.origin, other.deviation = origin, deviation
        # Of what is known already: to hash all rows again would take as long as to change them.
        other._fingerprint = hashlib.sha256(f"{self.fingerprint()} {origin!r} {deviation!r}".encode()).hexdigest()
        return other

    def split(self, fraction: float, seed: int) -> tuple[Ratings, Ratings]:
        """See `Dataset`."""
        held = draw(self.n, check_split(self.n, fraction, seed), seed)
        return self._take(~held), self._take(held)

    def _take(self, mask: NDArray[np.bool_]) -> Ratings:
        rows = np.flatnonzero(mask)  # three times as quick as to take by the mask itself
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
        return taken

    @cached_property
    def _n_rated(self) -> NDArray[np.int64]:
        return np.bincount(self.users, minlength=self.shape[0])

    def seen(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Who and what has ratings here: flags (n_users,), (n_items,)."""
        items = np.zeros(self.shape[1], bool)
        items[self.items] = True
        return self._n_rated > 0, items

    @cached_property
    def n_raters(self) -> int:
        """Users who rated something."""
        return int(np.count_nonzero(self._n_rated))

    def shard_sizes(self, n_shards: int) -> NDArray[np.int64]:
        """Ratings of each of the shards that `owners` deals out, (n_shards,)."""
        return np.bincount(self.owners(n_shards), weights=self._n_rated, minlength=n_shards).astype(np.int64)

    def owners(self, n_shards: int) -> Owners:
        """The shard of each user: dealt out from the busiest on, to and fro, so that shards have about as many ratings.

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
    def most_bytes(self) -> int:
        """See `Dataset`."""
        return 20 * self.n  # two positions, a value, and two rows of its own

    def minibatches(self, size: int, seed: int | None) -> Iterator[RatingsMinibatch]:
        """See `Dataset`; within a minibatch ratings are sorted by (user, item)."""
        return (cut() for cut in self.cuts(size, seed)[1])

    def cuts(
        self, size: int, seed: int | None, owners: Owners | None = None
    ) -> tuple[tuple[int, ...], Iterator[Callable[[], RatingsMinibatch]]]:
        """See `Dataset`; with ``owners`` the minibatches are of one shard each, a shard after the other."""
        check_size(size)
        sizes = [self.n] if owners is None else np.bincount(owners, weights=self._n_rated).astype(int).tolist()
        bounds = tuple(itertools.accumulate((-(-n // size) for n in sizes), initial=0))
        return bounds, self._shard_cuts(size, seed, owners, len(sizes))

    def _shard_cuts(
        self, size: int, seed: int | None, owners: Owners | None, n_shards: int
    ) -> Iterator[Callable[[], RatingsMinibatch]]:
        """A shard is got ready while the one before it is cut."""
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
        """What cuts the ratings of a shard, and their order."""
        arrays = self.users, self.items, self.ratings
        if shard_of is not None:
            rows = np.flatnonzero(shard_of == shard)
            arrays = self.users.take(rows), self.items.take(rows), self.ratings.take(rows)
        n_users, n_items = self.shape[0], self.shape[1]

        def cut(taken: NDArray[np.int64]) -> RatingsMinibatch:
            return RatingsMinibatch(*cut_ratings(*arrays, taken, n_users, n_items))

        return cut, _order(len(arrays[0]), seed)

    def __repr__(self) -> str:
        n_users, n_items = self.shape
        return f"<Ratings {self._label()}: {self.n:,} ratings, {n_users:,} users x {n_items:,} items>"


class Csr(Dataset):
    """Sparse feature rows with labels, in memory, checked; made by ``mlless_nb.datasets``.

    Attributes
    ----------
    X : scipy.sparse.csr_array, float32 (n, n_features)
    y : float32 (n,)
        Labels.
    """

    kind = "csr"

    def __init__(
        self, X: csr_array, y: Float32, name: str = "features with labels", *, is_synthetic: bool = False
    ) -> None:
        self.X, self.y = X, y
        for array in (X.data, X.indices, X.indptr, y):
            array.setflags(write=False)  # the fingerprint is remembered
        self.n, self.shape = len(y), (int(X.shape[1]),)
        self.name, self.is_synthetic = name, is_synthetic

    @property
    def nothing_to_learn(self) -> str:
        """See `Dataset`."""
        if bool((self.y == self.y[0]).all()):
            return f"all {self.n:,} labels are {self.y[0]:g}"
        return "" if bool(self.X.data.any()) else f"all features of the {self.n:,} rows are 0"

    @cached_property
    def _fingerprint(self) -> str:
        # scipy widens the index types as it likes: the digest is of one width.
        indptr, indices = self.X.indptr.astype(np.int64), self.X.indices.astype(np.int32, copy=False)
        return digest("csr", self.shape, indptr, indices, self.X.data, self.y)

    def fingerprint(self) -> str:
        """See `Dataset`."""
        return self._fingerprint

    def with_rows(self, change: Callable[[Any], Any], key: str, n_more: int) -> Csr:
        """The same labels with ``change(X)`` as rows.

        Parameters
        ----------
        key : str
            Says what the change is; for the fingerprint.
        n_more : int
            Values that a row has more then, at most.
        """
        other = Csr(change(self.X), self.y, self.name, is_synthetic=self.is_synthetic)
        other._fingerprint = hashlib.sha256(f"{self.fingerprint()} {key}".encode()).hexdigest()
        return other

    def split(self, fraction: float, seed: int) -> tuple[Csr, Csr]:
        """See `Dataset`."""
        held = draw(self.n, check_split(self.n, fraction, seed), seed)
        return self._take(~held), self._take(held)

    def _take(self, mask: NDArray[np.bool_]) -> Csr:
        return Csr(self.X[np.flatnonzero(mask)], self.y[mask], self.name, is_synthetic=self.is_synthetic)

    @property
    def most_bytes(self) -> int:
        """See `Dataset`."""
        # Of an entry its row, and either a position and a value or, in a column half full, two values; of a row its
        # label and where it begins.
        return 24 * int(self.X.nnz) + 16 * self.n

    def minibatches(self, size: int, seed: int | None) -> Iterator[CsrMinibatch]:
        """See `Dataset`."""
        return (cut() for cut in self.cuts(size, seed)[1])

    def cuts(
        self, size: int, seed: int | None, owners: Owners | None = None
    ) -> tuple[tuple[int, ...], Iterator[Callable[[], CsrMinibatch]]]:
        """See `Dataset`."""
        check_size(size)
        order, of_thread = _order(self.n, seed), threading.local()

        def cut(start: int) -> CsrMinibatch:
            if not hasattr(of_thread, "cut"):
                of_thread.cut = MinibatchCutter(self.shape[0])
            taken = order[start : start + size] if seed is not None else slice(start, start + size)
            minibatch: CsrMinibatch = of_thread.cut(self.X[taken], self.y[taken])
            return minibatch

        return (0, -(-self.n // size)), (partial(cut, start) for start in range(0, self.n, size))

    def __repr__(self) -> str:
        return f"<Csr {self._label()}: {self.n:,} rows, {self.shape[0]:,} features, {self.X.nnz:,} non-zeros>"


def digest(kind: str, shape: tuple[int, ...], *arrays: NDArray[Any]) -> str:
    """SHA-256 (hex) of arrays with their lengths."""
    sha = hashlib.sha256(f"{kind} {shape} {[len(array) for array in arrays]}".encode())
    for array in arrays:
        sha.update(np.ascontiguousarray(array).data)
    return sha.hexdigest()


def draw(n: int, n_held: int, seed: int) -> NDArray[np.bool_]:
    """A mask (n,) with ``n_held`` rows set, every choice as likely; takes little memory beside the mask."""
    rng = np.random.default_rng([seed, SPLIT])
    mask = np.zeros(n, bool)
    left = n_held
    for start in range(0, n, DRAW_ROWS):
        size = min(DRAW_ROWS, n - start)
        here = int(rng.hypergeometric(left, n - start - left, size))
        mask[start + rng.permutation(size)[:here]] = True
        left -= here
    return mask


def _order(n: int, seed: int | None) -> NDArray[np.int64]:
    """A permutation of n rows; without ``seed`` they stay as they are."""
    return np.arange(n) if seed is None else np.random.default_rng([seed, ORDER]).permutation(n)
