"""Splits by time, by user's last rating and by group: no row on both sides, and none on the wrong one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from mlless_nb import datasets
from mlless_nb.errors import DataError

N = 400


def rows(seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame({
        "user": rng.integers(1, 40, N),
        "film": rng.integers(0, 30, N),
        "stars": rng.integers(1, 6, N),
        "at": rng.integers(0, 50, N),
        "row": np.arange(N),
    })  # fmt: skip


def ratings(frame: pd.DataFrame, **more: Any) -> Any:
    return datasets.ratings(frame, user="user", item="film", rating="stars", **more)


def test_by_time_the_newest_rows_are_held_out_and_none_of_their_time_is_kept() -> None:
    data = ratings(rows(), time="at")
    train, held = datasets.split(data, "time", 0.25)
    assert train.times.max() < held.times.min()
    assert (train.n + held.n, held.names) == (N, data.names)
    assert held.n == pytest.approx(100, abs=20)


def test_the_last_rating_of_each_user_is_held_out() -> None:
    frame = rows().drop_duplicates(["user", "at"])
    train, held = datasets.split(ratings(frame, time="at"), "last")
    newest = frame.sort_values("at").groupby("user").tail(1)
    assert held.n == len(newest) == len(np.unique(frame["user"]))
    assert sorted(held.names.users[held.users].tolist()) == sorted(newest["user"])
    for user in np.unique(held.users):
        assert train.times[train.users == user].max() < held.times[held.users == user].min()


def test_without_times_the_last_in_the_data_are_held_out_and_single_ones_stay() -> None:
    frame = pd.DataFrame({"user": ["a", "b", "a", "a"], "film": [1, 2, 3, 4], "stars": [1, 2, 3, 4]})
    train, held = datasets.split(ratings(frame), "last")
    assert (train.ratings.tolist(), held.ratings.tolist()) == ([1, 2, 3], [4])
    assert datasets.split(ratings(frame), "last", n_last=2)[1].ratings.tolist() == [3, 4]
    with pytest.raises(DataError, match="n_last=3: must be below the ratings of some user; none has more than 3"):
        datasets.split(ratings(frame), "last", n_last=3)


@pytest.mark.parametrize("is_file", [False, True])
def test_no_group_is_on_both_sides(tmp_path: Path, *, is_file: bool) -> None:
    frame: Any = rows()
    if is_file:
        frame.to_parquet(tmp_path / "rows.parquet")
        frame = tmp_path / "rows.parquet"
    data = datasets.table(frame, "stars", group="user", features=["film", "row"])
    seen = []
    for seed in range(3):
        train, held = datasets.split(data, "group", 0.2, seed=seed)
        assert not set(train.groups) & set(held.groups)
        assert train.n + held.n == N
        assert held.n == pytest.approx(80, abs=15)
        held_rows = (held if not is_file else held.load()).X.toarray()[:, 1]
        assert np.array_equal(held_rows, np.flatnonzero(np.isin(data.groups, np.unique(held.groups))))
        seen.append(tuple(np.unique(held.groups)))
    assert len(set(seen)) > 1


def test_at_random_is_the_split_of_a_job() -> None:
    data = ratings(rows())
    one, other = datasets.split(data, fraction=0.3, seed=5), data.split(0.3, 5)
    assert [each.fingerprint() for each in one] == [each.fingerprint() for each in other]


@pytest.mark.parametrize(
    ("by", "says"),
    [
        ("time", "by='time': must be used with data that has times, as by time="),
        ("group", "by='group': must be used with data that has groups"),
        ("user", "by='user': must be 'random' or 'time' or 'last' or 'group'"),
    ],
)
def test_what_the_data_lacks_is_named(by: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        datasets.split(ratings(rows()), by)


def test_a_side_without_rows_is_refused() -> None:
    frame = rows().assign(at=3, user=7)
    with pytest.raises(DataError, match="rows of different times; all have the same"):
        datasets.split(ratings(frame, time="at"), "time")
    with pytest.raises(DataError, match="two or more groups; there is one"):
        datasets.split(datasets.table(frame, "stars", group="user"), "group")
    with pytest.raises(DataError, match="must be used with ratings"):
        datasets.split(datasets.table(frame, "stars"), "last")
    mostly_new = ratings(rows().assign(at=[0] * 5 + [1] * (N - 5)), time="at")
    assert datasets.split(mostly_new, "time", 0.999)[1].n == N - 5
