"""Sparse feature rows with labels, in memory."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..plurals import count
from .cutter import MinibatchCutter
from .dataset import Dataset, Owners, digest, sampled
from .minibatches import CsrMinibatch, Float32
from .sampling import check_size, row_order

if TYPE_CHECKING:
    from scipy.sparse import csr_array


class Csr(Dataset):
    """Sparse feature rows with labels, in memory, checked; made by ``mlless_nb.datasets``.

    Attributes
    ----------
    X : scipy.sparse.csr_array, float32 (n, n_features)
    y : float32 (n,)
        Labels, 0 where there are none.
    has_labels : bool
    """

    kind = "csr"

    def __init__(
        self, X: csr_array, y: Float32 | None, name: str = "features with labels", *, is_synthetic: bool = False
    ) -> None:
        self.has_labels = y is not None
        y = y if y is not None else np.zeros(X.shape[0], np.float32)
        self.X, self.y = X, y
        for array in (X.data, X.indices, X.indptr, y):
            array.setflags(write=False)  # the fingerprint is cached
        self.n, self.shape = len(y), (int(X.shape[1]),)
        self.name, self.is_synthetic = name, is_synthetic

    @property
    def nothing_to_learn(self) -> str:
        """See `Dataset`."""
        if self.has_labels and bool((self.y == self.y[0]).all()):
            return f"all {self.n:,} labels are {self.label_text(self.y[0])}"
        return "" if bool(self.X.data.any()) else f"all features of the {count(self.n, 'row')} are 0"

    @cached_property
    def _fingerprint(self) -> str:
        # scipy may widen the index types; the digest always uses the same width.
        indptr, indices = self.X.indptr.astype(np.int64), self.X.indices.astype(np.int32, copy=False)
        return digest("csr", self.shape, indptr, indices, self.X.data, self.y)

    def fingerprint(self) -> str:
        """See `Dataset`."""
        return self._fingerprint

    def sketch(self) -> str:
        """See `Dataset`."""
        indices = sampled(self.X.indices).astype(np.int32, copy=False)
        return digest("csr", (self.n, *self.shape, self.X.nnz), indices, *map(sampled, (self.X.data, self.y)))

    def with_rows(self, change: Callable[[Any], Any], key: str, n_more: int) -> Csr:
        """The same labels with ``change(X)`` as rows.

        Parameters
        ----------
        key : str
            Identifies the change, for the fingerprint.
        n_more : int
            Most values that the change adds to a row.
        """
        other = Csr(change(self.X), self.y if self.has_labels else None, self.name, is_synthetic=self.is_synthetic)
        other._fingerprint = hashlib.sha256(f"{self.fingerprint()} {key}".encode()).hexdigest()
        return other

    def taken(self, mask: NDArray[np.bool_]) -> Csr:
        """See `Dataset`."""
        y = self.y[mask] if self.has_labels else None
        taken = Csr(self.X[np.flatnonzero(mask)], y, self.name, is_synthetic=self.is_synthetic)
        self._mark(taken, mask)
        return taken

    @property
    def ids_per_row(self) -> float:
        """See `Dataset`."""
        return float(self.X.nnz) / self.n

    @property
    def most_bytes(self) -> int:
        """See `Dataset`."""
        # For an entry: its row, and either a position and a value or, in a dense column that is half full, two values.
        # For a row: its label and its begin.
        return 24 * int(self.X.nnz) + 16 * self.n

    def minibatches(self, size: int, seed: int | None) -> Iterator[CsrMinibatch]:
        """See `Dataset`."""
        return (cut() for cut in self.cuts(size, seed)[1])

    def cuts(
        self, size: int, seed: int | None, owners: Owners | None = None
    ) -> tuple[tuple[int, ...], Iterator[Callable[[], CsrMinibatch]]]:
        """See `Dataset`."""
        check_size(size)
        order, of_thread = row_order(self.n, seed), threading.local()

        def cut(start: int) -> CsrMinibatch:
            if not hasattr(of_thread, "cut"):
                of_thread.cut = MinibatchCutter(self.shape[0])
            taken = order[start : start + size] if seed is not None else slice(start, start + size)
            minibatch: CsrMinibatch = of_thread.cut(self.X[taken], self.y[taken])
            return minibatch

        return (0, -(-self.n // size)), (partial(cut, start) for start in range(0, self.n, size))

    def __repr__(self) -> str:
        size = f"{count(self.n, 'row')}, {count(self.shape[0], 'feature')}, {count(self.X.nnz, 'non-zero')}"
        return f"<Csr {self._label()}: {size}>"
