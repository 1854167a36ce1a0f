"""The units that training works in: what is changed, what stays, and the way back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse

from mlless_nb import PMF, LogisticRegression, datasets
from mlless_nb.data.csr import Csr
from mlless_nb.data.stream import CsrStream
from mlless_nb.job.units import ColumnUnits, RatingUnits, units_of

RNG = np.random.default_rng(3)


def features(n: int = 60) -> Csr:
    """Columns: sparse with values of their own, ones, ones and twos, far from 0, nearly dense, constant, empty."""
    X = np.zeros((n, 7))
    X[::3, 0] = RNG.normal(0, 40, len(X[::3]))
    X[RNG.random(n) < 0.3, 1] = 1
    X[:, 2] = RNG.integers(0, 3, n)
    X[:, 3] = RNG.normal(1000, 2, n)
    X[:, 4] = RNG.normal(5, 1, n)
    X[4, 4] = 0
    X[:, 5] = 7
    return datasets.csr(X, RNG.integers(0, 2, n))


def streamed(data: Csr, size: int = 13) -> CsrStream:
    """``data`` in blocks of ``size`` rows."""

    def read(keep: Any) -> Any:
        rows = np.arange(data.n) if keep is None else np.flatnonzero(keep)
        for start in range(0, len(rows), size):
            yield data.X[rows[start : start + size]], data.y[rows[start : start + size]]

    return CsrStream(read, data.n, data.shape[0], data.X.nnz, "content", "stream", data.y == 1)


def test_ratings_have_mean_0_and_deviation_1_inside() -> None:
    data = datasets.ratings([0, 1, 2, 0], [0, 1, 0, 1], [10.0, 30.0, 90.0, 50.0])
    units = units_of(PMF(), data)
    inside = units.apply(data)
    assert inside.ratings.mean() == pytest.approx(0, abs=1e-6)
    assert inside.ratings.std() == pytest.approx(1)
    np.testing.assert_allclose(inside.origin + inside.deviation * inside.ratings, data.ratings, rtol=1e-6)
    assert inside.fingerprint() != data.fingerprint()
    assert inside.fingerprint() == units_of(PMF(), data).apply(data).fingerprint()
    assert units_of(PMF(standardize=False), data).apply(data) is data


def test_a_shift_and_a_factor_of_the_ratings_change_nothing_inside() -> None:
    data = datasets.synthetic_ratings(30, 20, 300, rank=2, seed=1)
    other = datasets.ratings(data.users, data.items, 20 * data.ratings + 7, *data.shape)
    one, two = (units_of(PMF(), each).apply(each) for each in (data, other))
    np.testing.assert_allclose(one.ratings, two.ratings, atol=1e-5)


def test_ratings_that_are_all_the_same_stay_finite() -> None:
    data = datasets.ratings([0, 1], [0, 1], [3.0, 3.0])
    assert units_of(PMF(), data) == RatingUnits(3.0, 1.0)
    assert (units_of(PMF(), data).apply(data).ratings == 0).all()


def test_a_fitted_factorisation_predicts_in_the_ratings_own_units() -> None:
    model, shape = PMF(rank=3), (5, 4)
    table = RNG.normal(size=(9, 4)).astype(np.float32)
    users, items = np.array([0, 4, 2]), np.array([3, 0, 2])
    fitted = model.fitted(table, shape, 0.25)
    restored = RatingUnits(50.0, 20.0).restore(fitted)
    np.testing.assert_allclose(restored.predict(users, items), 50 + 20 * fitted.predict(users, items), rtol=1e-5)


def test_sparse_columns_are_divided_and_dense_ones_centred() -> None:
    data = features()
    inside = units_of(LogisticRegression(), data).apply(data)
    X, dense = data.X.toarray(), inside.X.toarray()
    has = X[:, 0] != 0
    assert np.sqrt((dense[has, 0] ** 2).mean()) == pytest.approx(1)
    assert (dense[~has, 0] == 0).all()
    np.testing.assert_array_equal(dense[:, [1, 2, 6]], X[:, [1, 2, 6]])
    for column in (3, 4):
        assert dense[:, column].mean() == pytest.approx(0, abs=1e-4)
        assert dense[:, column].std() == pytest.approx(1, rel=1e-3)
    np.testing.assert_allclose(dense[:, 5], 1)
    assert inside.X.has_canonical_format
    assert units_of(LogisticRegression(scale=False), data).apply(data) is data
    ones = datasets.csr(scipy.sparse.csr_matrix(np.eye(4)), [0, 1, 0, 1])
    assert units_of(LogisticRegression(), ones).apply(ones) is ones, "columns of ones keep their short form"


def test_a_fitted_regression_has_coefficients_for_the_data_as_they_are() -> None:
    data = features()
    units = units_of(LogisticRegression(), data)
    weights = RNG.normal(size=(8, 1)).astype(np.float32)
    fitted = LogisticRegression().fitted(weights, data.shape, 0.0)
    inside, outside = fitted.predict_proba(units.apply(data).X), units.restore(fitted).predict_proba(data.X)
    np.testing.assert_allclose(outside, inside, atol=1e-3)


def test_a_factor_of_a_column_changes_nothing_inside() -> None:
    data = features()
    factors = np.array([1e-4, 1, 1, 30, -5, 1e6, 2])
    other = datasets.csr(data.X.toarray() * factors, data.y)
    one, two = (units_of(LogisticRegression(), each).apply(each).X.toarray() for each in (data, other))
    np.testing.assert_allclose(one * np.sign(factors * (abs(one).sum(0) > 0)), two * abs(np.sign(factors)), atol=2e-3)


def test_a_stream_is_scaled_block_by_block_like_rows_in_memory() -> None:
    data = features()
    stream = streamed(data)
    units = units_of(LogisticRegression(), data)
    of_stream = units_of(LogisticRegression(), stream)
    assert isinstance(units, ColumnUnits)
    assert isinstance(of_stream, ColumnUnits)
    np.testing.assert_array_equal(of_stream.shift, units.shift)
    np.testing.assert_array_equal(of_stream.scale, units.scale)
    scaled = of_stream.apply(stream)
    np.testing.assert_allclose(scaled.load().X.toarray(), units.apply(data).X.toarray(), rtol=1e-5, atol=1e-6)
    training, held_out = scaled.split(0.2, 0)
    assert (training.n, held_out.n) == (48, 12)
    assert scaled.fingerprint() != stream.fingerprint()


def test_a_model_goes_into_the_units_of_training_and_back() -> None:
    data = datasets.synthetic_ratings(30, 20, 300, rank=2, seed=1)
    model, clicks = PMF(rank=3), features()
    for spec, each in ((model, data), (PMF(rank=3, biases=False), data), (LogisticRegression(), clicks)):
        units = units_of(spec, each)
        inside = units.apply(each)
        table = RNG.normal(size=spec.table_shape(each.shape)).astype(np.float32)
        fitted = units.restore(spec.fitted(table, each.shape, inside.mean))
        back = units.adopt(fitted)
        np.testing.assert_allclose(spec.table_of(back), table, rtol=1e-4, atol=1e-4)
        if "mean" in back.params:
            assert back.params["mean"] == pytest.approx(inside.mean, abs=1e-5)
