"""Rows on their way to the browser."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlless_nb.telemetry.live import COLUMNS
from mlless_nb.widgets.rows import VIEW_COLUMNS, decimate, encode_snapshot, view_rows

LOSS, VALIDATION, WORKERS = (VIEW_COLUMNS.index(c) for c in ("loss", "validation_loss", "n_workers"))


def some_rows(n: int, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    rows = np.zeros((n, len(VIEW_COLUMNS)), dtype=np.float32)
    rows[:, 0] = np.arange(1, n + 1)
    rows[:, LOSS] = random.normal(size=n)
    rows[:, VALIDATION] = np.where(np.arange(n) % 7 == 0, 1.0, np.nan)
    rows[:, WORKERS] = 8
    return rows


def test_view_rows_picks_columns_by_name() -> None:
    rows = np.arange(2 * len(COLUMNS), dtype=np.float64).reshape(2, -1)
    picked = view_rows(rows)
    assert picked.dtype == np.float32
    for i, column in enumerate(VIEW_COLUMNS):
        assert picked[1, i] == rows[1, COLUMNS.index(column)]


@settings(max_examples=60, deadline=None)
@given(n=st.integers(0, 5000), most=st.integers(16, 700), seed=st.integers(0, 99))
def test_decimated_rows_are_few_in_order_and_keep_the_extremes(n: int, most: int, seed: int) -> None:
    rows = some_rows(n, seed)
    kept = decimate(rows, most)
    assert len(kept) <= max(most, 0)
    assert np.all(np.diff(kept[:, 0]) > 0)
    if n:
        assert kept[0, 0] == 1
        assert kept[-1, 0] == n


def test_a_spike_and_a_change_of_workers_stay() -> None:
    rows = some_rows(9000)
    rows[4321, LOSS] = 99
    rows[5000:, WORKERS] = 7
    kept = decimate(rows)
    assert kept[:, LOSS].max() == 99
    assert kept[kept[:, WORKERS] == 7][0, 0] == 5001
    assert kept[kept[:, WORKERS] == 8][-1, 0] == 5000
    assert np.isfinite(kept[:, VALIDATION]).sum() >= 100


@pytest.mark.parametrize(("n", "most"), [(6634, 4000), (1487, 600), (601, 600)])
def test_no_part_of_the_curve_is_missing_up_to_its_end(n: int, most: int) -> None:
    rows = some_rows(n)
    rows[:-1, VALIDATION] = np.nan
    apart = np.diff(decimate(rows, most)[:, 0])
    assert apart.max() <= 9 * n / most + 2  # two of each stretch, of which there are about a quarter of ``most``


def test_the_best_evaluation_stays() -> None:
    rows = some_rows(9000)
    rows[7 * 613, VALIDATION] = 0.5
    assert (decimate(rows, 16)[:, VALIDATION] == 0.5).any()


def test_rows_without_a_finite_loss_are_no_trouble() -> None:
    rows = some_rows(3000)
    rows[:, LOSS] = np.nan
    assert len(decimate(rows)) <= 600


@pytest.mark.parametrize("n", [0, 1, 600, 20_000])
def test_snapshot_says_how_many_rows_it_stands_for(n: int) -> None:
    blob = encode_snapshot(some_rows(n))
    floats = np.frombuffer(blob, "<f4").reshape(-1, len(VIEW_COLUMNS))
    assert floats[0, 0] == n
    assert len(floats) == 1 + min(n, len(decimate(some_rows(n))))
    assert len(blob) <= 601 * 32
