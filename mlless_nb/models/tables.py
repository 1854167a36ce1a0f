"""The common part of models whose table has a row for each feature, a last row, and several columns."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from ..frames.sources import described
from ..plurals import count

Int32 = NDArray[np.int32]


def padded_width(width: int) -> int:
    """``width`` rounded up to a multiple of 8, with which the products of `mlless_nb.kernels` are fastest."""
    return width + -width % 8


def rows_with_last(ids: Int32, last: int) -> Int32:
    """``ids``, then row ``last``; int32 (m + 1,)."""
    rows = np.empty(len(ids) + 1, np.int32)
    rows[:-1], rows[-1] = ids, last
    return rows


def entries_of(minibatch: Any) -> dict[str, Any]:
    """The entries of the minibatch's rows, as the products of `mlless_nb.kernels` take them."""
    return {name: getattr(minibatch, name) for name in ("columns", "dense", "indptr", "indices", "values")}


def features_of(X: Any, n_features: int, dtype: type = np.float64) -> Any:
    """The user's X, scipy sparse or array, as CSR (n, n_features); a single row may be (n_features,).

    DataError for other columns, and for what are no finite numbers.
    """
    from scipy.sparse import csr_matrix  # takes 0.25 s, and no function needs it

    try:
        with np.errstate(over="ignore"):  # numbers that are too large become infinite, and are refused
            rows = csr_matrix(X, dtype=dtype)
    except (TypeError, ValueError):  # texts, for instance
        valid = f"rows of {count(n_features, 'column')} of numbers, or a table with the columns of the training rows"
        raise DataError("X", described(X), valid) from None
    if rows.shape[1] != n_features:
        raise DataError("X", f"shape {rows.shape}", f"rows of {count(n_features, 'column')}")
    is_wrong = ~np.isfinite(rows.data)
    if bool(is_wrong.any()):
        at = int(np.flatnonzero(is_wrong)[0])
        row = int(np.searchsorted(rows.indptr, at, side="right")) - 1
        raise DataError(f"X[{row}, {rows.indices[at]}]", float(rows.data[at]), "a finite number")
    return rows
