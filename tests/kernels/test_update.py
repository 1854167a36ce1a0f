"""Adding updates and the significance split: nothing is lost, nothing strays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlless_nb import kernels
from mlless_nb.kernels import reference


def touched(rng: np.random.Generator, n_rows: int, share: float) -> np.ndarray:
    """Some of the rows, ascending."""
    return np.flatnonzero(rng.random(n_rows) < share).astype(np.int32)


@given(
    n_rows=st.integers(1, 60),
    width=st.integers(1, 40),
    share=st.none() | st.floats(0, 1),
    threshold=st.sampled_from([0.0, 0.1, 0.7, 5.0, np.inf]),
    seed=st.integers(0, 2**32 - 1),
)
def test_split_equals_the_reference_to_the_bit(
    n_rows: int, width: int, share: float | None, threshold: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    special = np.array([0.0, -0.0, 1.0, -1.0, np.nan, np.inf, 1e-45, 3e38], np.float32)

    def table(n: int) -> np.ndarray:
        drawn = rng.normal(size=(n, width)).astype(np.float32)
        return np.where(rng.random((n, width)) < 0.3, rng.choice(special, (n, width)), drawn)

    params, residual = table(n_rows), table(n_rows)
    rows = None if share is None else touched(rng, n_rows, share)
    update = table(n_rows if rows is None else len(rows))
    results = []
    for module in (kernels, reference):
        left = residual.copy()
        positions, values = np.zeros(update.size, np.uint32), np.zeros(update.size, np.float32)
        with np.errstate(all="ignore"):
            count = module.split_significant(params, rows, update, left, threshold, positions, values)
        results.append((count, positions[:count].tolist(), values[:count].tobytes(), left.tobytes()))
    assert results[0][:2] == results[1][:2]
    for got, expected in zip(results[0][2:], results[1][2:], strict=True):
        np.testing.assert_array_equal(np.frombuffer(got, np.float32), np.frombuffer(expected, np.float32))


@given(
    n_rows=st.integers(1, 30),
    width=st.integers(1, 25),
    threshold=st.sampled_from([0.0, 0.7, 3.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_published_and_residual_are_everything_produced(n_rows: int, width: int, threshold: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    params = rng.integers(-8, 9, (n_rows, width)).astype(np.float32)
    residual, produced, published = (np.zeros((n_rows, width), np.float32) for _ in range(3))
    positions, values = np.empty(params.size, np.uint32), np.empty(params.size, np.float32)
    for step in range(1, 8):
        rows = touched(rng, n_rows, 0.6)
        update = rng.integers(-4, 5, (len(rows), width)).astype(np.float32)  # whole numbers: sums are exact
        produced[rows] += update
        kernels.apply_rows(params, rows, update)
        v = threshold / np.sqrt(step)
        count = kernels.split_significant(params, rows, update, residual, v, positions, values)
        assert (np.diff(positions[:count].astype(np.int64)) > 0).all()
        np.add.at(published.reshape(-1), positions[:count], values[:count])
        np.testing.assert_array_equal(published + residual, produced)
        still = np.abs(residual[rows]) <= np.float32(v) * np.abs(params[rows])
        assert still.all()
    count = kernels.flush_residual(residual, positions, values)
    np.add.at(published.reshape(-1), positions[:count], values[:count])
    np.testing.assert_array_equal(published, produced)
    assert not residual.any()


def test_what_is_zero_is_significant_and_a_threshold_of_0_sends_every_non_zero() -> None:
    params = np.array([[0.0, 0.0, 100.0, 100.0]], np.float32)
    update = np.array([[1e-30, 0.0, 1.0, 71.0]], np.float32)
    positions, values = np.empty(4, np.uint32), np.empty(4, np.float32)
    residual = np.zeros_like(params)
    count = kernels.split_significant(params, None, update, residual, 0.7, positions, values)
    assert positions[:count].tolist() == [0, 3]
    assert residual.tolist() == [[0.0, 0.0, 1.0, 0.0]]
    residual[:] = 0
    count = kernels.split_significant(params, None, update, residual, 0.0, positions, values)
    assert positions[:count].tolist() == [0, 2, 3]
    assert not residual.any()


@pytest.mark.parametrize("width", [1, 3, 21])
def test_adding_equals_the_reference(width: int) -> None:
    rng = np.random.default_rng(1)
    params = rng.normal(size=(50, width)).astype(np.float32)
    rows = touched(rng, 50, 0.5)
    for each in (rows, None):
        update = rng.normal(size=(50 if each is None else len(each), width)).astype(np.float32)
        got, expected = params.copy(), params.copy()
        kernels.apply_rows(got, each, update)
        reference.apply_rows(expected, each, update)
        assert got.tobytes() == expected.tobytes()


def test_flush_equals_the_reference() -> None:
    rng = np.random.default_rng(2)
    residual = (rng.normal(size=(50, 7)) * (rng.random((50, 7)) < 0.3)).astype(np.float32)
    results = []
    for module in (kernels, reference):
        left, positions, values = residual.copy(), np.empty(350, np.uint32), np.empty(350, np.float32)
        count = module.flush_residual(left, positions, values)
        assert not left.any()
        results.append((positions[:count].tolist(), values[:count].tolist()))
    assert results[0] == results[1]


@pytest.mark.parametrize("bad", [[-1], [5], [2, 1], [1, 1]])
def test_bad_rows_are_an_error_and_write_nothing(bad: list[int]) -> None:
    params, residual = np.zeros((5, 2), np.float32), np.zeros((5, 2), np.float32)
    rows, update = np.array(bad, np.int32), np.ones((len(bad), 2), np.float32)
    positions, values = np.empty(10, np.uint32), np.empty(10, np.float32)
    with pytest.raises(ValueError, match="ascending"):
        kernels.apply_rows(params, rows, update)
    with pytest.raises(ValueError, match="ascending"):
        kernels.split_significant(params, rows, update, residual, 0.0, positions, values)
    assert not params.any()
    assert not residual.any()


def test_too_little_room_is_an_error() -> None:
    table = np.ones((5, 2), np.float32)
    positions, values = np.empty(9, np.uint32), np.empty(10, np.float32)
    with pytest.raises(ValueError, match="at least 10"):
        kernels.split_significant(table, None, table, table.copy(), 0.0, positions, values)
    with pytest.raises(ValueError, match="at least 10"):
        kernels.flush_residual(table.copy(), positions, values)
    with pytest.raises(ValueError, match="threshold"):
        kernels.split_significant(table, None, table, table.copy(), float("nan"), np.empty(10, np.uint32), values)
    with pytest.raises(ValueError, match="update has shape"):
        kernels.apply_rows(table, None, np.ones((4, 2), np.float32))
