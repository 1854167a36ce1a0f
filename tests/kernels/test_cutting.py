"""Sorting ratings into minibatches: as NumPy does it, to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlless_nb import kernels
from mlless_nb.kernels import reference

#: Users and items around the digits that the sort takes at a time, and beyond.
COUNTS = [1, 2, 2047, 2048, 2049, 100_000, 5_000_000, 1_000_000_000]


@given(
    n_users=st.sampled_from(COUNTS),
    n_items=st.sampled_from(COUNTS),
    n_all=st.integers(1, 400),
    n=st.integers(1, 600),
    n_distinct=st.integers(1, 500),
    seed=st.integers(0, 2**32 - 1),
)
def test_ratings_are_cut_as_the_reference_does(
    n_users: int, n_items: int, n_all: int, n: int, n_distinct: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    users = rng.choice(rng.integers(0, n_users, n_distinct), n_all).astype(np.int32)
    items = rng.choice(rng.integers(0, n_items, n_distinct), n_all).astype(np.int32)
    ratings = rng.choice(np.array([0.5, -0.0, 5.0, np.nan, 1e-45, -3e38], np.float32), n_all)
    taken = rng.integers(0, n_all, n)  # some more than once: equal pairs stay in their order
    arguments = users, items, ratings, taken, n_users, n_items
    for found, wanted in zip(kernels.cut_ratings(*arguments), reference.cut_ratings(*arguments), strict=True):
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found.view(np.int32), wanted.view(np.int32))


def test_no_rating_is_no_row() -> None:
    users, ratings = np.zeros(3, np.int32), np.zeros(3, np.float32)
    found = kernels.cut_ratings(users, users, ratings, np.empty(0, np.int64), 1, 1)
    assert [len(array) for array in found] == [0, 0, 0, 0]


@pytest.mark.parametrize(
    "wrong",
    [
        {"taken": [3]},
        {"taken": [-1]},
        {"users": [0, 4, 0]},
        {"users": [0, -1, 0]},
        {"items": [0, 5, 0]},
        {"items": [0, 0]},
        {"ratings": [0.0]},
        {"n_users": 0},
        {"n_items": 2**31},
    ],
)
def test_what_is_out_of_range_is_refused(wrong: dict[str, Any]) -> None:
    values: dict[str, Any] = {
        "users": [0, 1, 2],
        "items": [0, 1, 2],
        "ratings": [1, 2, 3],
        "taken": [0, 1],
        "n_users": 4,
        "n_items": 5,
    }
    types = {"users": np.int32, "items": np.int32, "ratings": np.float32, "taken": np.int64}
    values |= wrong
    if "users" in wrong or "items" in wrong:
        values["taken"] = [0, 1, 2]
    with pytest.raises(ValueError, match=r"must be"):
        kernels.cut_ratings(
            *(np.array(value, types[name]) if name in types else value for name, value in values.items())
        )
