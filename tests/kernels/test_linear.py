"""Linear kernels, each loss, against their NumPy reference, finite differences, extremes and bad input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlless_nb import kernels
from mlless_nb.kernels import reference

N_FEATURES, M = 100, 60
LOSSES = ["logistic", "squared", "hinge"]


def problem(
    n: int,
    seed: int,
    scale: float = 1.0,
    n_columns: int = 3,
    dtype: type[np.uint16] | type[np.int32] = np.uint16,
    *,
    ones: bool = False,
    loss: str = "logistic",
) -> dict[str, Any]:
    """A minibatch of ``n`` rows over 60 of 100 features."""
    rng = np.random.default_rng(seed)
    ids = np.sort(rng.choice(N_FEATURES, M, replace=False))
    indptr = np.concatenate([[0], np.cumsum(rng.integers(0, 20, n))]).astype(np.int32)
    return {
        "loss": loss,
        "params": (scale * rng.normal(size=(N_FEATURES + 1, 1))).astype(np.float32),
        "ids": ids.astype(np.int32),
        "columns": np.sort(rng.choice(M, n_columns, replace=False)).astype(np.int32),
        "dense": rng.normal(size=(n_columns, n)).astype(np.float32),
        "indptr": indptr,
        "indices": rng.integers(0, M, indptr[-1]).astype(dtype),
        "values": rng.normal(size=0 if ones else indptr[-1]).astype(np.float32),
        "labels": (rng.normal(size=n) if loss == "squared" else rng.integers(0, 2, n)).astype(np.float32),
    }


@given(
    loss=st.sampled_from(LOSSES),
    n=st.integers(0, 200),
    seed=st.integers(0, 2**32 - 1),
    scale=st.sampled_from([0.0, 0.1, 3.0, 100.0]),
    n_columns=st.sampled_from([0, 1, 13, M]),
    dtype=st.sampled_from([np.uint16, np.int32]),
    ones=st.booleans(),
)
def test_gradient_and_loss_equal_the_reference(
    loss: str, n: int, seed: int, scale: float, n_columns: int, dtype: Any, ones: bool
) -> None:
    data = problem(n, seed, scale, n_columns, dtype, ones=ones, loss=loss)
    grad, expected = np.full((M + 1, 1), np.nan, np.float32), np.empty((M + 1, 1), np.float32)
    total = kernels.linear_gradient(**data, divisor=max(n, 1), grad=grad)
    wanted = reference.linear_gradient(**data, divisor=max(n, 1), grad=expected)
    assert total == pytest.approx(wanted, rel=1e-5, abs=1e-6)
    np.testing.assert_allclose(grad, expected, rtol=1e-3, atol=1e-5 * max(scale, 1.0))
    assert kernels.linear_loss(**data) == total


@pytest.mark.parametrize(("loss", "divisor"), [("logistic", 1.0), ("squared", 0.5)])
def test_gradient_is_the_slope_of_the_loss(loss: str, divisor: float) -> None:
    data, small = problem(80, 1, 0.3, loss=loss), 1e-2
    grad = np.empty((M + 1, 1), np.float32)
    kernels.linear_gradient(**data, divisor=divisor, grad=grad)
    rows = np.append(data["ids"], N_FEATURES)
    for local in (0, 10, 33, M):
        above, below = data["params"].copy(), data["params"].copy()
        above[rows[local]] += small
        below[rows[local]] -= small
        slope = (
            reference.linear_loss(**{**data, "params": above}) - reference.linear_loss(**{**data, "params": below})
        ) / float(above[rows[local], 0] - below[rows[local], 0])
        assert grad[local, 0] == pytest.approx(slope, rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("margin", [0.0, 1e-9, 1.0, -1.0, 40.0, -40.0, 800.0, -800.0, 3e38, -3e38])
@pytest.mark.parametrize("label", [0.0, 1.0])
def test_extreme_margins_neither_overflow_nor_vanish(margin: float, label: float) -> None:
    data = problem(1, 2)
    data["params"][:] = 0
    data["params"][-1] = margin
    data["labels"][:] = label
    grad = np.empty((M + 1, 1), np.float32)
    loss = kernels.linear_gradient(**data, divisor=1.0, grad=grad)
    z = float(np.float32(margin))
    assert loss == pytest.approx(np.logaddexp(0, z) - label * z, rel=1e-9, abs=1e-12)
    assert grad[-1, 0] == pytest.approx(0.5 * (1 + np.tanh(z / 2)) - label, abs=1e-6)


def test_positions_beyond_16_bits() -> None:
    m = 70_000
    rng = np.random.default_rng(6)
    data = {
        "loss": "logistic",
        "params": rng.normal(size=(m + 1, 1)).astype(np.float32),
        "ids": np.arange(m, dtype=np.int32),
        "columns": np.array([m - 1], np.int32),
        "dense": np.ones((1, 2), np.float32),
        "indptr": np.array([0, 2, 3], np.int32),
        "indices": np.array([65_535, 65_536, 3], np.int32),
        "values": np.empty(0, np.float32),
        "labels": np.array([0.0, 1.0], np.float32),
    }
    grad = np.empty((m + 1, 1), np.float32)
    kernels.linear_gradient(**data, divisor=1.0, grad=grad)
    assert set(np.flatnonzero(grad)) == {3, 65_535, 65_536, m - 1, m}
    data["indices"] = np.array([65_535, 0, 3], np.uint16)
    kernels.linear_gradient(**data, divisor=1.0, grad=grad)
    assert set(np.flatnonzero(grad)) == {0, 3, 65_535, m - 1, m}
    with pytest.raises(TypeError):
        kernels.linear_gradient(**{**data, "indices": [1, 2, 3]}, divisor=1.0, grad=grad)


def test_hinge_takes_labels_of_minus_one_as_zero() -> None:
    data, grads = problem(80, 1, loss="hinge"), np.empty((2, M + 1, 1), np.float32)
    with_zeros = kernels.linear_gradient(**data, divisor=1.0, grad=grads[0])
    data["labels"] = 2 * data["labels"] - 1
    assert kernels.linear_gradient(**data, divisor=1.0, grad=grads[1]) == with_zeros > 0
    np.testing.assert_array_equal(grads[0], grads[1])


def test_rows_without_any_feature_have_the_intercept() -> None:
    data = problem(3, 1, n_columns=0, loss="squared")
    none: dict[str, Any] = {"ids": np.empty(0, np.int32), "indptr": np.zeros(4, np.int32)}
    none |= {"indices": np.empty(0, np.uint16), "values": np.empty(0, np.float32)}
    grad = np.empty((1, 1), np.float32)
    kernels.linear_gradient(**{**data, **none}, divisor=1.0, grad=grad)
    assert grad[0, 0] == pytest.approx(3 * data["params"][-1, 0] - data["labels"].sum(), rel=1e-5)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_nan_shows(loss: str) -> None:
    data = problem(10, 3, loss=loss)
    data["params"][-1] = np.nan
    grad = np.empty((M + 1, 1), np.float32)
    assert np.isnan(kernels.linear_gradient(**data, divisor=1.0, grad=grad))
    assert np.isnan(grad[-1, 0])


def test_margins_equal_the_reference() -> None:
    data = problem(50, 4, dtype=np.int32)
    indices = data["ids"][data["indices"]]
    out, expected = np.empty(50, np.float32), np.empty(50, np.float32)
    kernels.linear_margins(data["params"], data["indptr"], indices, data["values"], out)
    reference.linear_margins(data["params"], data["indptr"], indices, data["values"], expected)
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
        ("ids", lambda data: data["ids"][::-1].copy(), "ids must be strictly ascending"),
        ("ids", lambda data: data["ids"] + np.int32(N_FEATURES - data["ids"][-1]), r"ids must be .* in \[0, 100\)"),
        ("ids", lambda data: data["ids"][:0], "columns must be"),
        ("params", lambda data: np.zeros((N_FEATURES + 1, 2), np.float32), "params has shape"),
        ("params", lambda data: np.zeros((0, 1), np.float32), "params has shape"),
        ("loss", lambda data: "absolute", "loss='absolute': must be one of logistic, squared, hinge"),
        ("labels", lambda data: data["labels"].astype(np.float64), "dtype"),
    ],
)
def test_bad_input_is_an_error_and_writes_nothing(name: str, value: Any, words: str) -> None:
    data = problem(10, 5)
    data[name] = value(data)
    grad = np.full((len(data["ids"]) + 1, 1), 7.0, np.float32)
    with pytest.raises(ValueError, match=words):
        kernels.linear_gradient(**data, divisor=1.0, grad=grad)
    assert (grad == 7.0).all()


def test_margins_of_an_unknown_feature_are_an_error() -> None:
    params, indptr = np.zeros((5, 1), np.float32), np.array([0, 1], np.int32)
    for bad in (-1, 4):
        with pytest.raises(ValueError, match="indices must be"):
            kernels.linear_margins(
                params, indptr, np.array([bad], np.int32), np.ones(1, np.float32), np.empty(1, np.float32)
            )
