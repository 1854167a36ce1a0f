"""What rankings of items are made of. Pure."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import JobError

Int64 = NDArray[np.int64]


def best_of(scores: NDArray[np.float32], is_named: NDArray[np.bool_], n: int) -> tuple[Int64, NDArray[np.float32]]:
    """The items with the ``n`` largest scores among the named ones, and the scores; the lowest numbers in a tie.

    Parameters
    ----------
    scores : float32 (n_items,)
    is_named : bool (n_items,)
    n : int
        Fewer are returned if fewer are named.
    """
    places: Int64 = np.flatnonzero(is_named)
    if 0 < n < len(places):
        least = np.partition(scores[places], len(places) - n)[len(places) - n]
        places = places[scores[places] >= least]
    best = places[np.argsort(-scores[places], kind="stable")[:n]]
    return best, scores[best]


def items_by_user(users: NDArray[np.int32], items: NDArray[np.int32], n_users: int) -> tuple[Int64, NDArray[np.int32]]:
    """Where the items of each user begin, (n_users + 1,), and the items, user by user, (n,)."""
    order = np.argsort(users, kind="stable")
    return np.append(0, np.cumsum(np.bincount(users, minlength=n_users))), items[order]


def check_count(field: str, n: Any) -> None:
    """Raise JobError unless ``n`` is a whole number >= 0."""
    if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 0:
        raise JobError(field, n, "a whole number >= 0")
