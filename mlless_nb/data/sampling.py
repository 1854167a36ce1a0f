"""Random draws by seed: which rows a split holds out, and the order in which minibatches take the rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError

#: Purpose of a seed, so that a split and the order of minibatches are independent (1 is the model's start).
SPLIT, ORDER = 0, 2
#: A split draws from blocks of this number of rows.
DRAW_ROWS = 1 << 20


def held_out(n: int, fraction: float) -> int:
    """Number of rows that a split of ``n`` rows by ``fraction`` holds out: at least one, and never all."""
    return min(max(round(n * fraction), 1), n - 1) if n > 1 else 0


def check_split(n: int, fraction: float, seed: int) -> int:
    """Number of rows to hold out of ``n``; DataError if ``fraction`` or ``seed`` is invalid."""
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
    """A mask (n,) with ``n_held`` rows set, all choices equally likely; needs little memory besides the mask."""
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
    """A permutation of n rows; the identity if ``seed`` is None."""
    return np.arange(n) if seed is None else np.random.default_rng([seed, ORDER]).permutation(n)


def part_order(n: int, n_parts: int, seed: int | None) -> NDArray[np.int64]:
    """The order in which `CsrStream` takes ``n`` rows: each goes to a random part, and each part is shuffled."""
    if seed is None or n_parts == 1:
        return row_order(n, seed)
    rng = np.random.default_rng([seed, ORDER])
    part_of = rng.integers(n_parts, size=n)
    parts = (np.flatnonzero(part_of == number) for number in range(n_parts))
    return np.concatenate([rows[rng.permutation(len(rows))] for rows in parts])
