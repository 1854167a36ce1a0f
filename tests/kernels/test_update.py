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
        split = module.SignificanceSplit(n_rows, width, residual.copy())
        split.threshold = threshold
        with np.errstate(all="ignore"):
            count = module.split_significant(params, rows, update, split)
        assert count == split.count == len(split.sent_values)
        results.append((count, split.sent_positions.tolist(), split.sent_values.tobytes(), split.residual.tobytes()))
    assert results[0][:2] == results[1][:2]
    for got, expected in zip(results[0][2:], results[1][2:], strict=True):
        np.testing.assert_array_equal(np.frombuffer(got, np.float32), np.frombuffer(expected, np.float32))


def test_an_infinite_threshold_holds_everything_back() -> None:
    params, update = np.array([[0.0, 1.0, np.inf]], np.float32), np.array([[2.0, np.nan, 3.0]], np.float32)
    split = kernels.SignificanceSplit(1, 3)
    split.threshold = np.inf
    assert kernels.split_significant(params, None, update, split) == 0
    np.testing.assert_array_equal(split.residual, update)


@given(
    n_rows=st.integers(1, 30),
    width=st.integers(1, 25),
    threshold=st.sampled_from([0.0, 0.7, 3.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_published_and_residual_are_everything_produced(n_rows: int, width: int, threshold: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    params = rng.integers(-8, 9, (n_rows, width)).astype(np.float32)
    produced, published = (np.zeros((n_rows, width), np.float32) for _ in range(2))
    split = kernels.SignificanceSplit(n_rows, width)
    residual = split.residual
    for step in range(1, 8):
        rows = touched(rng, n_rows, 0.6)
        update = rng.integers(-4, 5, (len(rows), width)).astype(np.float32)  # whole numbers: sums are exact
        produced[rows] += update
        kernels.apply_rows(params, rows, update)
        split.threshold = v = threshold / np.sqrt(step)
        kernels.split_significant(params, rows, update, split)
        assert (np.diff(split.sent_positions.astype(np.int64)) > 0).all()
        np.add.at(published.reshape(-1), split.sent_positions, split.sent_values)
        np.testing.assert_array_equal(published + residual, produced)
        still = np.abs(residual[rows]) <= np.float32(v) * np.abs(params[rows])
        assert still.all()
    positions, values = np.empty(params.size, np.uint32), np.empty(params.size, np.float32)
    count = kernels.flush_residual(residual, positions, values)
    np.add.at(published.reshape(-1), positions[:count], values[:count])
    np.testing.assert_array_equal(published, produced)
    assert not residual.any()


def test_what_is_zero_is_significant_and_a_threshold_of_0_sends_every_non_zero() -> None:
    params = np.array([[0.0, 0.0, 100.0, 100.0]], np.float32)
    update = np.array([[1e-30, 0.0, 1.0, 71.0]], np.float32)
    split = kernels.SignificanceSplit(1, 4)
    split.threshold = 0.7
    kernels.split_significant(params, None, update, split)
    assert split.sent_positions.tolist() == [0, 3]
    assert split.residual.tolist() == [[0.0, 0.0, 1.0, 0.0]]
    split.residual[:] = 0
    split.threshold = 0.0
    kernels.split_significant(params, None, update, split)
    assert split.sent_positions.tolist() == [0, 2, 3]
    assert not split.residual.any()


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
    params, split = np.zeros((5, 2), np.float32), kernels.SignificanceSplit(5, 2)
    rows, update = np.array(bad, np.int32), np.ones((len(bad), 2), np.float32)
    with pytest.raises(ValueError, match="ascending"):
        kernels.apply_rows(params, rows, update)
    with pytest.raises(ValueError, match="ascending"):
        kernels.split_significant(params, rows, update, split)
    with pytest.raises(ValueError, match="ascending"):
        kernels.snapshot_rows(params, rows, params + 1, np.zeros(5, np.uint32), 1)
    with pytest.raises(ValueError, match="ascending"):
        kernels.extract_delta(params, rows, params + 1, 1.0, update)
    assert not params.any()
    assert not split.residual.any()


def test_wrong_room_and_shapes_are_errors() -> None:
    table = np.ones((5, 2), np.float32)
    positions, values = np.empty(9, np.uint32), np.empty(10, np.float32)
    with pytest.raises(ValueError, match="at least 10"):
        kernels.flush_residual(table.copy(), positions, values)
    split = kernels.SignificanceSplit(5, 2)
    for bad in (-0.1, float("nan")):
        with pytest.raises(ValueError, match="threshold"):
            split.threshold = bad
    with pytest.raises(ValueError, match="residual has shape"):
        kernels.SignificanceSplit(5, 3, table)
    with pytest.raises(ValueError, match=r"2\*\*32"):
        kernels.SignificanceSplit(2**16, 2**16)
    with pytest.raises(ValueError, match="update has shape"):
        kernels.apply_rows(table, None, np.ones((4, 2), np.float32))


@pytest.mark.parametrize("width", [1, 5, 21])
@pytest.mark.parametrize("is_partial", [True, False])
def test_local_steps_are_taken_back_to_the_bit(width: int, is_partial: bool) -> None:
    rng = np.random.default_rng(3)
    params = rng.normal(size=(60, width)).astype(np.float32)
    start, base, marks = params.copy(), np.empty_like(params), np.zeros(60, np.uint32)
    everything = np.zeros((60, width), np.float32)
    for round_id in (1, 2):
        walked = np.zeros(60, bool)
        for _ in range(4):
            rows = touched(rng, 60, 0.3) if is_partial else None
            kernels.snapshot_rows(params, rows, base, marks, round_id)
            n = 60 if rows is None else len(rows)
            kernels.apply_rows(params, rows, rng.normal(size=(n, width)).astype(np.float32))
            walked[slice(None) if rows is None else rows] = True
        all_rows = np.flatnonzero(walked).astype(np.int32) if is_partial else None
        out, expected = (np.empty((60 if all_rows is None else len(all_rows), width), np.float32) for _ in range(2))
        twin = params.copy()
        kernels.extract_delta(params, all_rows, base, 0.25, out)
        reference.extract_delta(twin, all_rows, base, 0.25, expected)
        assert params.tobytes() == start.tobytes() == twin.tobytes()
        assert out.tobytes() == expected.tobytes()
        everything[slice(None) if all_rows is None else all_rows] += out
    assert everything.any()


def test_kept_rows_equal_the_reference() -> None:
    rng = np.random.default_rng(4)
    params = rng.normal(size=(30, 3)).astype(np.float32)
    kept = []
    for module in (kernels, reference):
        base, marks = np.zeros_like(params), np.array([7, 8] * 15, np.uint32)
        module.snapshot_rows(params, np.arange(10, 20, dtype=np.int32), base, marks, 8)
        kept.append((base.tobytes(), marks.tolist()))
    assert kept[0] == kept[1]
    with pytest.raises(ValueError, match="marks has length"):
        kernels.snapshot_rows(params, None, base, marks[:-1], 9)
    with pytest.raises(ValueError, match="base has shape"):
        kernels.snapshot_rows(params, None, base[:-1], marks, 9)


@pytest.mark.parametrize("width", [1, 5, 21])
@pytest.mark.parametrize("is_partial", [True, False])
def test_spaced_rows_give_the_same_bits(width: int, is_partial: bool) -> None:
    rng = np.random.default_rng(5)
    rows = touched(rng, 40, 0.5) if is_partial else None
    update = rng.normal(size=(40 if rows is None else len(rows), width)).astype(np.float32)
    start = rng.normal(size=(40, width)).astype(np.float32)
    results = []
    for is_spaced in (False, True):
        block = np.full((40, 3 * width + 2), 9.0, np.float32)
        params, base, held = (block[:, k * width : (k + 1) * width] for k in range(3))
        if not is_spaced:
            params, base, held = params.copy(), base.copy(), held.copy()
        params[:], base[:], held[:] = start, start, 0
        split, out = kernels.SignificanceSplit(40, width, held), np.empty_like(update)
        split.threshold = 0.7
        kernels.split_significant(params, rows, update, split)
        sent = split.sent_positions.tobytes() + split.sent_values.tobytes()
        kernels.snapshot_rows(params, rows, base, np.zeros(40, np.uint32), 1)
        kernels.apply_rows(params, rows, update)
        left = params.tobytes()
        kernels.extract_delta(params, rows, base, 0.5, out)
        positions, values = np.zeros(40 * width, np.uint32), np.zeros(40 * width, np.float32)
        residual = held.tobytes()
        kernels.flush_residual(held, positions, values)
        results.append((sent, left, out.tobytes(), residual, positions.tobytes(), values.tobytes()))
        assert (block[:, 3 * width :] == 9.0).all()
    assert results[0] == results[1]


def test_overlapping_rows_are_an_error() -> None:
    flat = np.zeros(20, np.float32)
    overlapping = np.lib.stride_tricks.as_strided(flat, (5, 4), (8, 4))
    with pytest.raises(ValueError, match="bytes apart"):
        kernels.apply_rows(overlapping, None, np.ones((5, 4), np.float32))
    with pytest.raises(ValueError, match="contiguous"):
        kernels.apply_rows(np.zeros((5, 8), np.float32)[:, ::2], None, np.ones((5, 4), np.float32))
    assert not flat.any()
