"""Datasets to train on: ``mlless_nb.datasets``.

Every function checks its arguments and raises `DataError` with the field, the value and what would be valid. If the
data can be trained on, but looks wrong, it warns with a `DataWarning`.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from ..errors import DataWarning
from .checks import checked_features, checked_floats, checked_ids, checked_labels, same_lengths
from .criteo import criteo
from .csr import Csr
from .csv import csv
from .libsvm import libsvm
from .movielens import movielens
from .parquet import parquet
from .plausibility import check_id_range, doubts_of_features, doubts_of_ids, doubts_of_ratings
from .ratings import Ratings
from .stored_files import StoredFiles
from .synthetic import synthetic_clicks, synthetic_ratings

__all__ = [
    "StoredFiles",
    "criteo",
    "csr",
    "csv",
    "libsvm",
    "movielens",
    "parquet",
    "ratings",
    "synthetic_clicks",
    "synthetic_ratings",
]


def ratings(users: Any, items: Any, ratings: Any, n_users: int | None = None, n_items: int | None = None) -> Ratings:
    """Ratings of items by users; the arrays are copied.

    Parameters
    ----------
    users, items : array_like of int (n,)
        0-based ids.
    ratings : array_like of float (n,)
    n_users, n_items : int, optional
        Number of users and items; by default the largest id + 1.
    """
    user_ids, n_all_users = checked_ids("users", users, "n_users", n_users)
    item_ids, n_all_items = checked_ids("items", items, "n_items", n_items)
    values = checked_floats("ratings", ratings)
    same_lengths(users=user_ids, items=item_ids, ratings=values)
    doubts = doubts_of_ratings(user_ids, item_ids, values)
    for field, ids, given, n_ids in (
        ("users", user_ids, n_users, n_all_users),
        ("items", item_ids, n_items, n_all_items),
    ):
        if given is None:
            check_id_range(field, f"n_{field}", n_ids, len(values))
            doubts += doubts_of_ids(field, ids, n_ids)
    for doubt in doubts:
        warnings.warn(doubt, DataWarning, stacklevel=2)
    return Ratings(user_ids, item_ids, values, (n_all_users, n_all_items))


def csr(X: Any, y: Any = None) -> Csr:
    """Sparse feature rows, with labels for all models except `KMeans`; the arrays are copied.

    Parameters
    ----------
    X : scipy.sparse CSR (n, n_features)
        Other sparse formats and 2-D arrays are converted. float32 inside.
    y : array_like (n,), optional
        Finite numbers, float32 inside. The model checks them: 0 and 1 for a `LogisticRegression`, -1 and 1 too for a
        `LinearSVM`, 0 to ``n_classes - 1`` for a `SoftmaxRegression`.
    """
    rows = checked_features("X", X)
    labels = checked_labels("y", y, rows.shape[0]) if y is not None else None
    for doubt in doubts_of_features(rows, labels if labels is not None else np.empty(0, np.float32)):
        warnings.warn(doubt, DataWarning, stacklevel=2)
    return Csr(rows, labels) if labels is not None else Csr(rows, None, "features")
