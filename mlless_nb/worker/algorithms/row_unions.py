"""Which rows several minibatches touch together, remembered: the same ones come together again in every epoch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...data.minibatches import Minibatch
from .base import Int32

#: Groups of minibatches of which it is remembered which rows they touch together.
MOST_UNIONS = 256


class RowUnions:
    """The unions of the rows of groups of minibatches."""

    def __init__(self) -> None:
        self._found: dict[tuple[int, ...], tuple[Sequence[Minibatch], Int32, list[Int32]]] = {}

    def of(self, minibatches: Sequence[Minibatch]) -> tuple[Int32, list[Int32]]:
        """The rows that ``minibatches`` touch together, and where those of each are among them."""
        key = tuple(map(id, minibatches))
        found = self._found.get(key)
        if found is None:
            if len(self._found) >= MOST_UNIONS:
                self._found.clear()
            rows = np.unique(np.concatenate([minibatch.rows for minibatch in minibatches]))
            places = [np.searchsorted(rows, minibatch.rows).astype(np.int32) for minibatch in minibatches]
            found = self._found[key] = (minibatches, rows, places)  # they live as long: no other has their id
        return found[1], found[2]

    def clear(self) -> None:
        """Forget all: other minibatches will come together."""
        self._found.clear()
