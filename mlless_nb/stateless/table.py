"""The rows of a model's table that each reducer has."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]


def ranges(n_rows: int, n_reducers: int) -> list[tuple[int, int]]:
    """The rows [first, end) of each reducer, about equally many: those of `Replica.ranges`."""
    return list(itertools.pairwise(n_rows * number // n_reducers for number in range(n_reducers + 1)))
