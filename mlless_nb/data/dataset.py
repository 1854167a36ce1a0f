"""The interface of a dataset: training rows that can be split and cut into minibatches by seed."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from .minibatches import Minibatch

#: The shard of each user, int32 (n_users,).
Owners = NDArray[np.int32]


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
        """Mean rating; 0.0 for data without ratings."""
        return 0.0

    @property
    def nothing_to_learn(self) -> str:
        """Why no model can be better than a constant, e.g. "all are 3"; "" if no reason is known."""
        return ""

    @abstractmethod
    def fingerprint(self) -> str:
        """SHA-256 (hex) of the content: shape and rows, not the name."""

    @abstractmethod
    def split(self, fraction: float, seed: int) -> tuple[Dataset, Dataset]:
        """(training rows, validation rows), drawn by ``seed``; both keep the stored order.

        Parameters
        ----------
        fraction : float
            Share of rows to hold out, between 0 and 1; at least one row is held out, and never all.
        seed : int
            >= 0; equal seeds draw equal rows.
        """

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


def digest(kind: str, shape: tuple[int, ...], *arrays: NDArray[Any]) -> str:
    """SHA-256 (hex) of arrays with their lengths."""
    sha = hashlib.sha256(f"{kind} {shape} {[len(array) for array in arrays]}".encode())
    for array in arrays:
        sha.update(np.ascontiguousarray(array).data)
    return sha.hexdigest()
