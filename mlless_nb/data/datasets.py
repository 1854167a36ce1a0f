"""Datasets to train on: ``mlless_nb.datasets``.

Every function checks what it is given and raises `DataError` with the field, the value and what would be valid.
"""

from __future__ import annotations

from typing import Any

from .checks import checked_features, checked_floats, checked_ids, checked_labels, same_lengths
from .criteo import criteo
from .dataset import Csr, Ratings
from .libsvm import libsvm
from .movielens import movielens
from .synthetic import synthetic_clicks, synthetic_ratings

__all__ = ["criteo", "csr", "libsvm", "movielens", "ratings", "synthetic_clicks", "synthetic_ratings"]


def ratings(users: Any, items: Any, ratings: Any, n_users: int | None = None, n_items: int | None = None) -> Ratings:
    """Ratings of items by users; the arrays are copied.

    Parameters
    ----------
    users, items : array_like of int (n,)
        0-based ids.
    ratings : array_like of float (n,)
    n_users, n_items : int, optional
        How many there are; by default the largest id + 1.
    """
    user_ids, n_users = checked_ids("users", users, "n_users", n_users)
    item_ids, n_items = checked_ids("items", items, "n_items", n_items)
    values = checked_floats("ratings", ratings)
    same_lengths(users=user_ids, items=item_ids, ratings=values)
    return Ratings(user_ids, item_ids, values, (n_users, n_items))


def csr(X: Any, y: Any) -> Csr:
    """Sparse feature rows with labels; the arrays are copied.

    Parameters
    ----------
    X : scipy.sparse CSR (n, n_features)
        Other sparse formats and 2-D arrays are converted. float32 inside.
    y : array_like (n,)
        0 or 1.
    """
    rows = checked_features("X", X)
    return Csr(rows, checked_labels("y", y, rows.shape[0]))
