"""The kernels of ``products`` in plain NumPy, for the tests to compare with."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .reference import _dense

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Int32 = NDArray[np.int32]
UInt16 = NDArray[np.uint16]


def rows_product(
    columns: Int32,
    dense: Float32,
    indptr: Int32,
    indices: UInt16 | Int32,
    values: Float32,
    weights: Float64,
    out: Float64,
) -> None:
    """``out += X weights``."""
    out += _whole(columns, dense, indptr, indices, values, len(weights)) @ weights


def transposed_product(
    columns: Int32,
    dense: Float32,
    indptr: Int32,
    indices: UInt16 | Int32,
    values: Float32,
    slopes: Float64,
    out: Float64,
) -> None:
    """``out += X^T slopes``."""
    out += _whole(columns, dense, indptr, indices, values, len(out)).T @ slopes


def _whole(columns: Int32, dense: Float32, indptr: Int32, indices: UInt16 | Int32, values: Float32, m: int) -> Float64:
    X = _dense(indptr, indices, values if len(values) else np.ones(len(indices), np.float32), m)
    X[:, columns] += dense.T
    return X
