"""The interface of a dataset: training rows that can be split and cut into minibatches by seed."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ..frames.names import RatingNames, TableNames
from .minibatches import Minibatch
from .sampling import check_split, draw

#: The shard of each user, int32 (n_users,).
Owners = NDArray[np.int32]
#: About so many values of each array are in a dataset's sketch.
SKETCHED = 2000


class Dataset(ABC):
    """Training rows: ratings, or sparse features with labels.

    Attributes
    ----------
    kind : str
        "ratings" or "csr".
    name : str
        The name shown to users.
    is_synthetic : bool
        Whether the rows were generated; shown wherever the dataset is.
    n : int
        Number of rows.
    shape : tuple of int
        (n_users, n_items) for ratings, (n_features,) for CSR.
    names : RatingNames, TableNames or None
        The user's ids or columns, if the data came with some.
    times : float64 (n,) or None
        The time of each row, if it was given; any unit.
    groups : int32 (n,) or None
        The group of each row, if it was given.
    origin, deviation : float
        A rating ``r`` of this dataset stands for ``origin + deviation * r``; 0 and 1 unless it was standardised.
    """

    kind: ClassVar[str]
    name: str
    is_synthetic: bool
    n: int
    shape: tuple[int, ...]
    names: RatingNames | TableNames | None = None
    times: NDArray[np.float64] | None = None
    groups: NDArray[np.int32] | None = None
    origin: float = 0.0
    deviation: float = 1.0

    @property
    def mean(self) -> float:
        """Mean rating; 0.0 for data without ratings."""
        return 0.0

    @property
    def nothing_to_learn(self) -> str:
        """Why no model can be better than a constant, e.g. "all are 3"; "" if no reason is known."""
        return ""

    def label_text(self, number: Any) -> str:
        """A label, which ``number`` stands for, as the user has it."""
        classes = self.names.classes if isinstance(self.names, TableNames) else None
        return f"{float(number):g}" if classes is None else repr(classes[int(number)])

    @abstractmethod
    def fingerprint(self) -> str:
        """SHA-256 (hex) of the content: shape and rows, not the name."""

    def sketch(self) -> str:
        """SHA-256 (hex) of the shape and a sample of the rows, made in a moment; other data have another one."""
        return self.fingerprint()

    def split(self, fraction: float, seed: int) -> tuple[Self, Self]:
        """(training rows, validation rows), drawn by ``seed``; both keep the stored order.

        Parameters
        ----------
        fraction : float
            Share of rows to hold out, between 0 and 1; at least one row is held out, and never all.
        seed : int
            >= 0; equal seeds draw equal rows.
        """
        held = draw(self.n, check_split(self.n, fraction, seed), seed)
        return self.taken(~held), self.taken(held)

    @abstractmethod
    def taken(self, mask: NDArray[np.bool_]) -> Self:
        """The rows in ``mask``, bool (n,), in the stored order."""

    def _mark(self, taken: Dataset, mask: NDArray[np.bool_]) -> None:
        """Give ``taken``, the rows in ``mask``, their names, times and groups."""
        taken.names = self.names
        taken.times = None if self.times is None else self.times[mask]
        taken.groups = None if self.groups is None else self.groups[mask]

    @property
    @abstractmethod
    def ids_per_row(self) -> float:
        """Mean number of users and items, or of features, that a row has a value for."""

    @property
    @abstractmethod
    def most_bytes(self) -> int:
        """Upper bound of the size of all rows as stored in minibatches, bytes."""

    @abstractmethod
    def minibatches(self, size: int, seed: int | None) -> Iterator[Minibatch]:
        """Minibatches of ``size`` rows; the last one is shorter if ``size`` does not divide ``n``.

        Rows are shuffled over the whole set by ``seed``; with None they are in stored order.
        """

    def cuts(
        self, size: int, seed: int | None, owners: Owners | None = None
    ) -> tuple[tuple[int, ...], Iterator[Callable[[], Minibatch]]]:
        """Callables that make the minibatches of `minibatches`, each in any thread.

        Returns
        -------
        shards : tuple of int
            First minibatch of each shard, then the number of all minibatches; one shard without ``owners``.
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


def sampled(array: NDArray[Any]) -> NDArray[Any]:
    """Evenly spaced values of ``array`` (n,), about `SKETCHED` of them."""
    return array[:: max(len(array) // SKETCHED, 1)]


def digest(kind: str, shape: tuple[int, ...], *arrays: NDArray[Any]) -> str:
    """SHA-256 (hex) of arrays with their lengths."""
    sha = hashlib.sha256(f"{kind} {shape} {[len(array) for array in arrays]}".encode())
    for array in arrays:
        sha.update(np.ascontiguousarray(array).data)
    return sha.hexdigest()
