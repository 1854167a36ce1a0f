"""The common part of models whose table has a row for each feature, a last row, and several columns."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

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


def features_of(X: Any, n_features: int) -> Any:
    """The user's X, scipy sparse or array, as CSR float64 (n, n_features); ValueError for other columns."""
    from scipy.sparse import csr_array  # takes 0.25 s, and no function needs it

    rows = csr_array(X, dtype=np.float64)
    if rows.shape[1] != n_features:
        raise ValueError(f"X has {rows.shape[1]} columns: must have {n_features}")
    return rows
