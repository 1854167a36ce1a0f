"""Generated datasets: seeded, of the shape asked for, with something to learn in them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mlless_nb import datasets
from mlless_nb.errors import DataError


@pytest.mark.parametrize(
    ("n_users", "n_items", "n"), [(1, 1, 1), (30, 20, 400), (30, 20, 600), (200, 300, 1000), (2000, 500, 10_000)]
)
def test_ratings_are_of_the_size_asked_for_and_pairs_differ(n_users: int, n_items: int, n: int) -> None:
    ratings = datasets.synthetic_ratings(n_users, n_items, n, rank=2)
    assert (ratings.n, ratings.shape) == (n, (n_users, n_items))
    assert len(set(zip(ratings.users.tolist(), ratings.items.tolist(), strict=True))) == n
    assert ratings.users.max() < n_users
    assert ratings.items.max() < n_items
    assert set(ratings.ratings.tolist()) <= set(np.arange(1, 5.5, 0.5).tolist())


def test_the_seed_decides() -> None:
    def prints(seed: int) -> list[str]:
        return [
            datasets.synthetic_ratings(50, 40, 300, seed=seed).fingerprint(),
            datasets.synthetic_clicks(200, n_features=100, seed=seed).fingerprint(),
        ]

    assert prints(3) == prints(3)
    assert not set(prints(3)) & set(prints(4))


def test_biases_are_planted() -> None:
    ratings = datasets.synthetic_ratings(100, 50, 4000, rank=2)
    by_item = [ratings.ratings[ratings.items == item].mean() for item in range(50)]
    assert np.std(by_item) > 0.3


def test_clicks_have_39_fields_and_about_a_third_of_ones() -> None:
    clicks = datasets.synthetic_clicks(5000)
    assert clicks.shape == (100_013,)
    counts = np.diff(clicks.X.indptr)
    assert counts.max() == 39
    assert counts.min() >= 36
    assert clicks.X.data.min() >= 0
    assert 0.2 < clicks.y.mean() < 0.45


def test_block_borders_leave_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlless_nb.data.synthetic.BLOCK_ROWS", 64)
    assert datasets.synthetic_ratings(50, 40, 300).n == 300
    assert datasets.synthetic_clicks(200, n_features=100).X.shape == (200, 100)


@pytest.mark.parametrize(
    ("make", "arguments", "message"),
    [
        ("synthetic_ratings", {"n_users": 3, "n_items": 2, "n": 7}, "n=7: must be an integer from 1 to 6"),
        ("synthetic_ratings", {"n_users": 0, "n_items": 2, "n": 1}, "n_users=0"),
        ("synthetic_ratings", {"n_users": 3, "n_items": 2, "n": 5, "rank": 0}, "rank=0"),
        ("synthetic_ratings", {"n_users": 3, "n_items": 2, "n": 5, "seed": -1}, "seed=-1"),
        ("synthetic_clicks", {"n": 0}, "n=0"),
        ("synthetic_clicks", {"n": 5, "n_features": 13}, "n_features=13: must be an integer from 14"),
    ],
)
def test_sizes_that_make_no_sense_are_refused(make: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        getattr(datasets, make)(**arguments)
