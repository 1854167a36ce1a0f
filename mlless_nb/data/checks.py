"""Checks of the user's data, and its conversion to a dataset's arrays. Errors name field, value and what is valid."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from ..plurals import count
from .minibatches import Float32, Int32

if TYPE_CHECKING:
    from scipy.sparse import csr_array

#: Ids are int32.
MOST_IDS = 2**31 - 1


def checked_count(field: str, value: Any, least: int = 1, most: int = MOST_IDS) -> int:
    """``value`` as an int from ``least`` to ``most``."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)) or not least <= value <= most:
        raise DataError(field, value, f"an integer from {least} to {most}")
    return int(value)


def checked_ids(field: str, values: Any, count_field: str, n: int | None) -> tuple[Int32, int]:
    """(ids as int32 (len,), number of ids): ``n``, or the largest id + 1 if ``n`` is None."""
    array = _vector(field, values)
    if array.dtype.kind == "b":
        raise DataError(field, f"array of type {array.dtype}", "0-based integer ids")
    if not np.issubdtype(array.dtype, np.integer):
        array = _numbers(field, array, "0-based integer ids")
        _refuse(field, array, ~np.isfinite(array) | (array != np.floor(array)), "a 0-based integer id")
    if n is not None:
        n = checked_count(count_field, n)
    end = n if n is not None else MOST_IDS
    low, high = array.min(), array.max()
    if low < 0 or high >= end:
        reason = f" (below {count_field})" if n is not None else ""
        if low == 1 and high == end:
            reason += f"; these begin at 1, hand in {field} - 1"
        _refuse(field, array, (array < 0) | (array >= end), f"a 0-based id from 0 to {end - 1}{reason}")
    return array.astype(np.int32), n if n is not None else int(high) + 1


def checked_floats(field: str, values: Any) -> Float32:
    """``values`` as a new array of finite float32 (len,)."""
    with np.errstate(over="ignore"):  # values too large for float32 become infinite, and are refused then
        array = _numbers(field, _vector(field, values), "numbers").astype(np.float32)
    _refuse(field, array, ~np.isfinite(array), "a finite number")
    return array


def checked_labels(field: str, values: Any, n: int) -> Float32:
    """Labels as finite float32 (n,); a model may check them further."""
    array = checked_floats(field, values)
    if len(array) != n:
        raise DataError(field, count(len(array), "label"), f"as long as X has rows, {n}")
    return array


def checked_features(field: str, X: Any) -> csr_array:
    """``X`` as a new CSR float32 with sorted, unique column ids; at least one row and column."""
    from scipy.sparse import csr_array, issparse

    if not issparse(X):
        X = _array(field, X)
        if X.ndim != 2 or X.dtype.kind not in "biuf":
            raise DataError(field, _shape_of(X), "a scipy CSR matrix or a 2-D array of numbers (n, n_features)")
    elif X.ndim != 2 or X.dtype.kind not in "biuf":
        raise DataError(field, _shape_of(X), "a scipy CSR matrix of numbers (n, n_features)")
    if X.shape[0] == 0:
        raise DataError(field, _shape_of(X), "at least one row")
    checked_count(f"{field}.shape[1]", X.shape[1], most=MOST_IDS - 1)
    if issparse(X) and X.format == "csr":
        try:
            X.check_format(full_check=True)
        except ValueError as error:
            raise DataError(field, _shape_of(X), f"a valid CSR matrix ({error})") from None
    # The converted matrix may share memory with the argument.
    with np.errstate(over="ignore"):
        rows = csr_array(X, dtype=np.float32, copy=True)
    rows.sum_duplicates()
    bad = ~np.isfinite(rows.data)
    if bool(bad.any()):
        at = int(np.flatnonzero(bad)[0])
        row = int(np.searchsorted(rows.indptr, at, side="right")) - 1
        raise DataError(f"{field}[{row}, {rows.indices[at]}]", float(rows.data[at]), "a finite number")
    return rows


def same_lengths(**arrays: NDArray[Any]) -> None:
    """Raise DataError unless all arrays are equally long."""
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise DataError("lengths of " + ", ".join(lengths), tuple(lengths.values()), "the same")


def _vector(field: str, values: Any) -> NDArray[Any]:
    """``values`` as an array (n,), n > 0."""
    array = _array(field, values)
    if array.ndim != 1:
        raise DataError(field, _shape_of(array), "one-dimensional")
    if len(array) == 0:
        raise DataError(field, _shape_of(array), "not empty")
    return array


def _array(field: str, values: Any) -> NDArray[Any]:
    try:
        return np.asarray(values)
    except (TypeError, ValueError) as error:
        raise DataError(field, values, f"an array ({error})") from None


def _numbers(field: str, array: NDArray[Any], valid: str) -> NDArray[Any]:
    """``array`` if it holds real numbers; else DataError that names the first entry that is not a number."""
    if array.dtype.kind in "biuf":
        return array
    if array.dtype.kind == "O":
        for position, value in enumerate(array):
            if isinstance(value, str) or not isinstance(value, (int, float, np.number)):
                raise DataError(f"{field}[{position}]", value, valid)
        return array.astype(np.float64)
    raise DataError(field, f"array of type {array.dtype}", valid)


def _refuse(field: str, array: NDArray[Any], bad: NDArray[np.bool_], valid: str) -> None:
    """If ``bad`` is set anywhere, raise DataError that names the first such entry."""
    if bool(bad.any()):
        position = int(np.flatnonzero(bad)[0])
        raise DataError(f"{field}[{position}]", array[position].item(), valid)


def _shape_of(array: Any) -> str:
    return f"shape {tuple(array.shape)}, {array.dtype}"
