"""Datasets to train on: ``mlless_nb.datasets``.

Every function checks its arguments and raises `DataError` with the field, the value and what would be valid. If the
data can be trained on, but looks wrong, it warns with a `DataWarning`.
"""

from __future__ import annotations

import uuid
import warnings
from typing import Any

import numpy as np

from ..errors import DataError, DataWarning
from .checks import checked_features, checked_floats, checked_ids, checked_labels, same_lengths
from .criteo import criteo
from .csr import Csr
from .csv import csv
from .libsvm import libsvm
from .movielens import movielens
from .parquet import parquet
from .plausibility import check_id_range, doubts_of_features, doubts_of_ids, doubts_of_ratings
from .rating_tables import ratings_of_table
from .ratings import Ratings
from .splitting import split
from .stored_files import StoredFiles
from .synthetic import synthetic_clicks, synthetic_ratings
from .tables import table

__all__ = [
    "StoredFiles",
    "criteo",
    "csr",
    "csv",
    "libsvm",
    "movielens",
    "parquet",
    "ratings",
    "split",
    "synthetic_clicks",
    "synthetic_ratings",
    "table",
]


def ratings(
    users: Any,
    items: Any = None,
    ratings: Any = None,
    n_users: int | None = None,
    n_items: int | None = None,
    *,
    user: str | None = None,
    item: str | None = None,
    rating: str | None = None,
    time: str | None = None,
    missing: str = "error",
    like: Any = None,
) -> Ratings:
    """Ratings of items by users; the arrays are copied.

    Three arrays of ids that begin at 0, or a table with the names of its columns: ``ratings(frame, user="user",
    item="film", rating="stars")``. Ids of a table are any integers, texts or UUIDs; they are numbered in ascending
    order, and the model takes and answers with them. Texts and UUIDs are so in arrays, too.

    Parameters
    ----------
    users, items : array_like of int (n,)
        0-based ids. ``users`` is the table if ``items`` is left out: pandas, Polars, Arrow or other tables with the
        Arrow C stream interface; a NumPy structured array, or a 2-D array (its columns are named "0", "1" and so on);
        a dictionary of columns; a SciPy sparse matrix (n_users, n_items) of ratings; or the path of CSV or Parquet
        files (a path, a glob, a zip archive, a URL of an object storage, or a list of these), read in batches.
    ratings : array_like of float (n,)
    n_users, n_items : int, optional
        Number of users and items, with 0-based ids; by default the largest id + 1.
    user, item, rating, time : str, optional
        Columns of a table. Without ``rating`` each row is a rating of 1, for `ImplicitMF`. ``time``, numbers or dates,
        is for `datasets.split`.
    missing : {"error", "drop"}
        What is done about rows of a table without a user, item, rating or time, or, with ``like``, of an unknown one.
    like : dataset or fitted model, optional
        Numbers the ids as this one does, for validation rows and ``model.evaluate``.

    Raises
    ------
    DataError
        Naming the field or column, the row (from 0), and what would be valid; also for an argument that does not go
        with the others.
    """
    columns = {"user": user, "item": item, "rating": rating, "time": time}
    counts = {"n_users": n_users, "n_items": n_items}
    if items is None:
        if hasattr(users, "tocoo"):
            rule = None if missing == "error" else missing
            others = {**columns, "ratings": ratings, **counts, "missing": rule, "like": like}
            _left_out("used with tables and arrays, not with a matrix", **others)
            return _of_matrix(users)
        _left_out("used with arrays; a table's columns are named: user=..., item=...", ratings=ratings, **counts)
        found = ratings_of_table(users, user, item, rating, time, missing, like)
        doubts = doubts_of_ratings(found.users, found.items, found.ratings) if rating is not None else []
        return _warned(found, doubts)
    if isinstance(items, str):
        valid = "an array of ids; the columns of a table are named: ratings(frame, user=..., item=..., rating=...)"
        raise DataError("items", items, valid)
    _left_out("used with a table, whose column it names", **columns)
    if like is not None or any(_is_text(ids) for ids in (users, items)):
        _left_out("used with ids that begin at 0", **counts)
        arrays = {"users": users, "items": items, **({} if ratings is None else {"ratings": ratings})}
        column = None if ratings is None else "ratings"
        found = ratings_of_table(arrays, "users", "items", column, None, missing, like)
        doubts = doubts_of_ratings(found.users, found.items, found.ratings) if column is not None else []
        return _warned(found, doubts)
    if missing != "error":
        raise DataError("missing", missing, "used with a table, or with ids that are texts or UUIDs")
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
    return _warned(Ratings(user_ids, item_ids, values, (n_all_users, n_all_items)), doubts)


def _left_out(valid: str, **arguments: Any) -> None:
    """Raise DataError if one of ``arguments`` was given, which is only valid as ``valid`` says."""
    for field, value in arguments.items():
        if value is not None:
            raise DataError(field, value, valid)


def _warned(found: Ratings, doubts: list[str]) -> Ratings:
    for doubt in doubts:
        warnings.warn(doubt, DataWarning, stacklevel=3)
    return found


def _is_text(ids: Any) -> bool:
    """Whether ids are texts or UUIDs, by the first of them."""
    is_listed = isinstance(ids, (list, tuple))
    first = next(iter(ids[:1] if is_listed else np.asarray(ids).ravel()[:1].tolist()), None)
    return isinstance(first, (str, uuid.UUID))


def _of_matrix(matrix: Any) -> Ratings:
    """The stored entries of a SciPy sparse matrix as ratings."""
    entries = matrix.tocoo()
    if entries.ndim != 2 or not entries.nnz:
        raise DataError("users", f"matrix of shape {entries.shape}", "a sparse matrix (n_users, n_items) with entries")
    users, items = (axis.astype(np.int32) for axis in (entries.row, entries.col))
    values = checked_floats("users.data", entries.data)
    return _warned(Ratings(users, items, values, entries.shape), doubts_of_ratings(users, items, values))


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
