"""A cache of the rows that a group of minibatches touches: the same groups occur again in every epoch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ...data.minibatches import Minibatch
from .base import Int32

#: Most groups of minibatches in the cache.
MOST_UNIONS = 256


class RowUnions:
    """The unions of the rows of groups of minibatches.

    Parameters
    ----------
    rows_of : callable
        The rows that a minibatch touches, int32 (m,).
    """

    def __init__(self, rows_of: Callable[[Minibatch], Int32]) -> None:
        self._rows_of = rows_of
        self._found: dict[tuple[int, ...], tuple[Sequence[Minibatch], Int32, list[Int32]]] = {}

    def of(self, minibatches: Sequence[Minibatch]) -> tuple[Int32, list[Int32]]:
        """The union of the rows of ``minibatches``, and the positions of each minibatch's rows in it."""
        key = tuple(map(id, minibatches))
        found = self._found.get(key)
        if found is None:
            if len(self._found) >= MOST_UNIONS:
                self._found.clear()
            each = [self._rows_of(minibatch) for minibatch in minibatches]
            rows = np.unique(np.concatenate(each))
            places = [np.searchsorted(rows, touched).astype(np.int32) for touched in each]
            found = self._found[key] = (minibatches, rows, places)  # keeps them alive, so ids stay unique
        return found[1], found[2]

    def clear(self) -> None:
        """Empty the cache, because other groups of minibatches follow."""
        self._found.clear()
