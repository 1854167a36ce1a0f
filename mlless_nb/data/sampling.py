"""Which rows a split holds out, and in which order minibatches take the rows: drawn by seed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError

#: What a seed is for, so that a split and the order of minibatches are drawn apart (1 is the model's start).
SPLIT, ORDER = 0, 2
#: Rows among which a split draws at once.
DRAW_ROWS = 1 << 20


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


def row_order(n: int, seed: int | None) -> NDArray[np.int64]:
    """A permutation of n rows; without ``seed`` they stay as they are."""
    return np.arange(n) if seed is None else np.random.default_rng([seed, ORDER]).permutation(n)
