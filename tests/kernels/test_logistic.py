"""Logistic kernels against their NumPy reference, finite differences, extremes and bad input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlless_nb import kernels
from mlless_nb.kernels import reference

N_FEATURES, M = 100, 60


def problem(
    n: int,
    seed: int,
    scale: float = 1.0,
    n_columns: int = 3,
    dtype: type[np.uint16] | type[np.int32] = np.uint16,
    *,
    ones: bool = False,
) -> dict[str, Any]:
    """A minibatch of ``n`` rows over 59 of 100 features and the intercept."""
    rng = np.random.default_rng(seed)
    features = np.sort(rng.choice(N_FEATURES, M - 1, replace=False))
    indptr = np.concatenate([[0], np.cumsum(rng.integers(0, 20, n))]).astype(np.int32)
    return {
        "params": (scale * rng.normal(size=(N_FEATURES + 1, 1))).astype(np.float32),
        "rows": np.append(features, N_FEATURES).astype(np.int32),
        "columns": np.sort(rng.choice(M - 1, n_columns, replace=False)).astype(np.int32),
        "dense": rng.normal(size=(n_columns, n)).astype(np.float32),
        "indptr": indptr,
        "indices": rng.integers(0, M - 1, indptr[-1]).astype(dtype),
        "values": rng.normal(size=0 if ones else indptr[-1]).astype(np.float32),
        "labels": rng.integers(0, 2, n).astype(np.float32),
    }


@given(
    n=st.integers(0, 200),
    seed=st.integers(0, 2**32 - 1),
    scale=st.sampled_from([0.0, 0.1, 3.0, 100.0]),
    n_columns=st.sampled_from([0, 1, 13, M - 1]),
    dtype=st.sampled_from([np.uint16, np.int32]),
    ones=st.booleans(),
)
def test_gradient_and_loss_equal_the_reference(
    n: int, seed: int, scale: float, n_columns: int, dtype: Any, ones: bool
) -> None:
    data = problem(n, seed, scale, n_columns, dtype, ones=ones)
    grad, expected = np.full((M, 1), np.nan, np.float32), np.empty((M, 1), np.float32)
    loss = kernels.logistic_gradient(**data, divisor=max(n, 1), grad=grad)
    wanted = reference.logistic_gradient(**data, divisor=max(n, 1), grad=expected)
    assert loss == pytest.approx(wanted, rel=1e-5, abs=1e-6)
    np.testing.assert_allclose(grad, expected, rtol=1e-3, atol=1e-5)
    assert kernels.logistic_loss(**data) == loss


def test_gradient_is_the_slope_of_the_loss() -> None:
    data, small = problem(80, 1, 0.3), 1e-2
    grad = np.empty((M, 1), np.float32)
    kernels.logistic_gradient(**data, divisor=1.0, grad=grad)
    for local in (0, 10, 33, M - 1):
        above, below = data["params"].copy(), data["params"].copy()
        above[data["rows"][local]] += small
        below[data["rows"][local]] -= small
        slope = (
            reference.logistic_loss(**{**data, "params": above}) - reference.logistic_loss(**{**data, "params": below})
        ) / float(above[data["rows"][local], 0] - below[data["rows"][local], 0])
        assert grad[local, 0] == pytest.approx(slope, rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("margin", [0.0, 1e-9, 1.0, -1.0, 40.0, -40.0, 800.0, -800.0, 3e38, -3e38])
@pytest.mark.parametrize("label", [0.0, 1.0])
def test_extreme_margins_neither_overflow_nor_vanish(margin: float, label: float) -> None:
    data = problem(1, 2)
    data["params"][:] = 0
    data["params"][-1] = margin
    data["labels"][:] = label
    grad = np.empty((M, 1), np.float32)
    loss = kernels.logistic_gradient(**data, divisor=1.0, grad=grad)
    z = float(np.float32(margin))
    assert loss == pytest.approx(np.logaddexp(0, z) - label * z, rel=1e-9, abs=1e-12)
    assert grad[-1, 0] == pytest.approx(0.5 * (1 + np.tanh(z / 2)) - label, abs=1e-6)


def test_positions_beyond_16_bits() -> None:
    m = 70_000
    rng = np.random.default_rng(6)
    data = {
        "params": rng.normal(size=(m, 1)).astype(np.float32),
        "rows": np.arange(m, dtype=np.int32),
        "columns": np.array([m - 2], np.int32),
        "dense": np.ones((1, 2), np.float32),
        "indptr": np.array([0, 2, 3], np.int32),
        "indices": np.array([65_535, 65_536, 3], np.int32),
        "values": np.empty(0, np.float32),
        "labels": np.array([0.0, 1.0], np.float32),
    }
    grad = np.empty((m, 1), np.float32)
    kernels.logistic_gradient(**data, divisor=1.0, grad=grad)
    assert set(np.flatnonzero(grad)) == {3, 65_535, 65_536, m - 2, m - 1}
    data["indices"] = np.array([65_535, 0, 3], np.uint16)
    kernels.logistic_gradient(**data, divisor=1.0, grad=grad)
    assert set(np.flatnonzero(grad)) == {0, 3, 65_535, m - 2, m - 1}
    with pytest.raises(TypeError):
        kernels.logistic_gradient(**{**data, "indices": [1, 2, 3]}, divisor=1.0, grad=grad)


def test_a_nan_shows() -> None:
    data = problem(10, 3)
    data["params"][-1] = np.nan
    grad = np.empty((M, 1), np.float32)
    assert np.isnan(kernels.logistic_gradient(**data, divisor=1.0, grad=grad))
    assert np.isnan(grad[-1, 0])


def test_margins_equal_the_reference() -> None:
    data = problem(50, 4, dtype=np.int32)
    indices = data["rows"][data["indices"]]
    out, expected = np.empty(50, np.float32), np.empty(50, np.float32)
    kernels.logistic_margins(data["params"], data["indptr"], indices, data["values"], out)
    reference.logistic_margins(data["params"], data["indptr"], indices, data["values"], expected)
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("indices", lambda data: data["indices"] + np.uint16(M), "indices must be"),
        ("indices", lambda data: data["indices"].astype(np.int32) + np.int32(M), "indices must be"),
        ("indices", lambda data: data["indices"].astype(np.int32) - np.int32(M), "indices must be"),
        ("indices", lambda data: data["indices"].astype(np.int64), "dtype"),
        ("indices", lambda data: data["indices"].astype(np.int16), "dtype"),
        ("indices", lambda data: data["indices"][:-1], "lengths"),
        ("columns", lambda data: data["columns"][::-1].copy(), "columns must be"),
        ("columns", lambda data: data["columns"] + np.int32(M), "columns must be"),
        ("columns", lambda data: data["columns"] - np.int32(M), "columns must be"),
        ("columns", lambda data: data["columns"][:-1], "dense has shape"),
        ("dense", lambda data: data["dense"][:, :-1].copy(), "dense has shape"),
        ("indptr", lambda data: data["indptr"] + np.int32(1), "indptr must rise"),
        ("indptr", lambda data: data["indptr"][::-1].copy(), "indptr must rise"),
        ("indptr", lambda data: data["indptr"][:-1], "indptr has length"),
        ("rows", lambda data: data["rows"] + np.int32(1), "ascending"),
        ("rows", lambda data: data["rows"][:0], "intercept"),
        ("params", lambda data: np.zeros((N_FEATURES + 1, 2), np.float32), "width"),
        ("labels", lambda data: data["labels"].astype(np.float64), "dtype"),
    ],
)
def test_bad_input_is_an_error_and_writes_nothing(name: str, value: Any, words: str) -> None:
    data = problem(10, 5)
    data[name] = value(data)
    grad = np.full((len(data["rows"]), 1), 7.0, np.float32)
    with pytest.raises(ValueError, match=words):
        kernels.logistic_gradient(**data, divisor=1.0, grad=grad)
    assert (grad == 7.0).all()


def test_margins_of_an_unknown_feature_are_an_error() -> None:
    params, indptr = np.zeros((5, 1), np.float32), np.array([0, 1], np.int32)
    for bad in (-1, 4):
        with pytest.raises(ValueError, match="indices must be"):
            kernels.logistic_margins(
                params, indptr, np.array([bad], np.int32), np.ones(1, np.float32), np.empty(1, np.float32)
            )
