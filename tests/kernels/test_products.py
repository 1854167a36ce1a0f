"""Products of sparse rows with a table of several columns, against their NumPy reference; bad input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlless_nb import kernels
from mlless_nb.kernels import reference_products as reference

M = 60


def problem(
    n: int, seed: int, n_columns: int = 3, dtype: type[np.uint16] | type[np.int32] = np.uint16, *, ones: bool = False
) -> dict[str, Any]:
    """The entries of ``n`` rows over 60 features."""
    rng = np.random.default_rng(seed)
    indptr = np.concatenate([[0], np.cumsum(rng.integers(0, 20, n))]).astype(np.int32)
    return {
        "columns": np.sort(rng.choice(M, n_columns, replace=False)).astype(np.int32),
        "dense": rng.normal(size=(n_columns, n)).astype(np.float32),
        "indptr": indptr,
        "indices": rng.integers(0, M, indptr[-1]).astype(dtype),
        "values": rng.normal(size=0 if ones else indptr[-1]).astype(np.float32),
    }


@given(
    n=st.integers(0, 40),
    width=st.sampled_from([1, 7, 8, 10, 16, 19]),
    seed=st.integers(0, 2**32 - 1),
    n_columns=st.sampled_from([0, 1, 13, M]),
    dtype=st.sampled_from([np.uint16, np.int32]),
    ones=st.booleans(),
)
def test_both_products_equal_the_reference(
    n: int, width: int, seed: int, n_columns: int, dtype: Any, ones: bool
) -> None:
    data, rng = problem(n, seed, n_columns, dtype, ones=ones), np.random.default_rng(seed)
    of_rows, of_features = rng.normal(size=(n, width)), rng.normal(size=(M, width))
    for name, table, before in (
        ("rows_product", of_features, of_rows),
        ("transposed_product", of_rows, of_features),
    ):
        out, expected = before.copy(), before.copy()
        getattr(kernels, name)(*data.values(), table, out)
        getattr(reference, name)(*data.values(), table, expected)
        np.testing.assert_allclose(out, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("indices", lambda data: data["indices"] + np.uint16(M), "indices must be"),
        ("indices", lambda data: data["indices"].astype(np.int32) - np.int32(M), "indices must be"),
        ("indices", lambda data: data["indices"].astype(np.int64), "dtype"),
        ("values", lambda data: data["values"][:-1], "lengths"),
        ("columns", lambda data: data["columns"][::-1].copy(), "columns must be"),
        ("columns", lambda data: data["columns"] + np.int32(M), "columns must be"),
        ("dense", lambda data: data["dense"][:, :-1].copy(), "dense has shape"),
        ("indptr", lambda data: data["indptr"][::-1].copy(), "indptr must rise"),
        ("indptr", lambda data: data["indptr"][:-1], "indptr has length"),
    ],
)
def test_bad_input_is_an_error_and_writes_nothing(name: str, value: Any, words: str) -> None:
    data = problem(10, 5)
    data[name] = value(data)
    out = np.full((10, 4), 7.0)
    with pytest.raises(ValueError, match=words):
        kernels.rows_product(*data.values(), np.ones((M, 4)), out)
    assert (out == 7.0).all()


def test_tables_of_different_widths_are_refused() -> None:
    with pytest.raises(ValueError, match="out has 3 columns: must have 4"):
        kernels.transposed_product(*problem(10, 5).values(), np.ones((10, 4)), np.ones((M, 3)))
    with pytest.raises(TypeError):
        kernels.rows_product(**{**problem(10, 5), "indices": [1]}, weights=np.ones((M, 4)), out=np.ones((10, 4)))
