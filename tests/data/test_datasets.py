"""Arrays handed in: converted where that is safe, otherwise refused with field, value and what would be valid."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from scipy.sparse import coo_array, csr_array, csr_matrix

from mlless_nb import datasets
from mlless_nb.data import plausibility
from mlless_nb.errors import DataError, DataWarning


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0, -1], [0, 1], [1, 2]), r"users\[1\]=-1: must be a 0-based id"),
        (([0, np.nan], [0, 1], [1, 2]), r"users\[1\]=nan: must be a 0-based integer id"),
        (([0, 1], [0, 1.5], [1, 2]), r"items\[1\]=1.5: must be a 0-based integer id"),
        (([0, 1], [0, 2**31], [1, 2]), r"items\[1\]=2147483648: must be a 0-based id"),
        (([0, 1], [0, 1], [1, np.nan]), r"ratings\[1\]=nan: must be a finite number"),
        (([0, 1], [0, 1], [np.inf, 1]), r"ratings\[0\]=inf: must be a finite number"),
        (([0, 1], [0, 1], [1e300, 1]), r"ratings\[0\]=inf"),
        (([0, 1], [0, 1], [1, 2, 3]), r"lengths of users, items, ratings=\(2, 2, 3\): must be the same"),
        (([], [], []), "users=.*must be not empty"),
        (([[0, 1]], [0, 1], [1, 2]), "users=.*must be one-dimensional"),
        (([[0], [0, 1]], [0, 1], [1, 2]), "users=.*must be an array"),
        (([b"a", b"b"], [0, 1], [1, 2]), "users=.*must be 0-based integer ids"),
        (([0, 1], [0, 1], ["x", "y"]), "ratings=.*must be numbers"),
        (([0, 1], [0, 1], [1, None]), r"ratings\[1\]=None: must be numbers"),
        (([True, False], [0, 1], [1, 2]), "users=.*bool"),
        (([0, 1], [0, 1], [1 + 2j, 2]), "ratings=.*complex"),
    ],
)
def test_ratings_that_are_wrong_are_named(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(DataError, match=message):
        datasets.ratings(*arguments)


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ({"n_users": 1}, r"users\[1\]=1: must be a 0-based id from 0 to 0 \(below n_users\)"),
        ({"n_items": 2}, r"items\[1\]=2: must be a 0-based id from 0 to 1 \(below n_items\)"),
        ({"n_users": 0}, "n_users=0: must be an integer from 1"),
        ({"n_items": 2.5}, "n_items=2.5: must be an integer"),
        ({"n_users": True}, "n_users=True: must be an integer"),
    ],
)
def test_counts_that_do_not_fit_are_named(counts: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        datasets.ratings([0, 1], [0, 2], [1, 2], **counts)


def test_ratings_take_what_is_exactly_an_id() -> None:
    ratings = datasets.ratings(np.array([0.0, 3.0]), np.array([1, 0], np.uint64), [4, 5])
    assert ratings.shape == (4, 2)
    assert (ratings.users.dtype, ratings.ratings.dtype) == (np.int32, np.float32)
    assert datasets.ratings([0], [0], [1], n_users=9, n_items=8).shape == (9, 8)


@pytest.mark.parametrize("convert", [csr_array, csr_matrix, coo_array, np.asarray])
def test_csr_takes_sparse_and_dense_rows(convert: Any) -> None:
    dense = np.array([[0, 1.5, 0], [2, 0, 0]])
    data = datasets.csr(convert(dense), np.array([True, False]))
    np.testing.assert_array_equal(data.X.toarray(), dense)
    assert data.X.dtype == data.y.dtype == np.float32
    assert data.shape == (3,)


def test_what_labels_mean_is_the_models_business() -> None:
    y = [-1.0, 2.5, 1e30]
    data = datasets.csr(np.eye(3), y)
    np.testing.assert_array_equal(data.y, np.array(y, np.float32))
    np.testing.assert_array_equal(next(data.minibatches(3, None)).labels, data.y)


def test_csr_sums_entries_that_are_stored_twice() -> None:
    X = csr_array((np.array([1.0, 2.0]), np.array([1, 1]), np.array([0, 2])), shape=(1, 3))
    assert datasets.csr(X, [1]).X.toarray().tolist() == [[0, 3, 0]]


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (np.eye(2), [0, np.nan], r"y\[1\]=nan: must be a finite number"),
        (np.eye(2), [0], "y='1 label': must be as long as X has rows, 2"),
        (np.eye(2), [[0], [1]], "y=.*one-dimensional"),
        (np.eye(2), ["0", "1"], "y=.*must be numbers"),
        (np.array([[1.0, np.nan]]), [1], r"X\[0, 1\]=nan: must be a finite number"),
        (csr_array(np.array([[0, 1.0], [0, np.inf]])), [1, 0], r"X\[1, 1\]=inf"),
        (np.zeros((0, 3)), [], "X=.*at least one row"),
        (np.zeros((2, 0)), [0, 1], r"X.shape\[1\]=0"),
        (np.ones(3), [1], "X=.*2-D"),
        ([["a"]], [1], "X=.*2-D array of numbers"),
        (csr_array(np.eye(2) * 1j), [0, 1], "X=.*complex"),
        (None, [0, 1], "X=.*2-D"),
    ],
)
def test_csr_that_is_wrong_is_named(X: Any, y: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        datasets.csr(X, y)


def test_csr_with_an_index_outside_is_refused() -> None:
    X = csr_array(np.eye(2))
    X.indices[1] = 7
    with pytest.raises(DataError, match="valid CSR"):
        datasets.csr(X, [0, 1])


IDS = np.arange(10) % 5
FILMS = np.arange(10) // 2
VARIED = np.arange(10) % 3 + 1.0


def said(make: Any) -> list[str]:
    """What ``make`` warns of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        make()
    assert all(each.category is DataWarning and each.filename == __file__ for each in caught)
    return [str(each.message) for each in caught]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: datasets.ratings(IDS, FILMS + 1, VARIED), ["items: ids begin at 1", "hand in items - 1"]),
        (lambda: datasets.ratings(IDS + 1, FILMS, VARIED), ["users: ids begin at 1", "user 0 has no ratings"]),
        (lambda: datasets.ratings(IDS, FILMS * 1000, VARIED), ["items: 5 ids are used of 0 to 4000", "n_items="]),
        (lambda: datasets.ratings(IDS, FILMS, IDS * 0 + 4), ["ratings: all 10 are 4", "ratings that differ"]),
        (lambda: datasets.ratings(IDS * 0, np.arange(10), VARIED), ["users: all 10 ratings are of user 0", "several"]),
        (lambda: datasets.ratings(np.arange(10), IDS * 0, VARIED), ["items: all 10 ratings are of item 0"]),
        (lambda: datasets.csr(np.eye(3)[:, [0, 0, 2, 2]], [0, 1, 0]), []),
        (lambda: datasets.csr(np.eye(3)[:2], [0, 1]), ["X: 1 of 3 columns are 0 in every row, the first of them 2"]),
        (lambda: datasets.csr(np.zeros((2, 3)), [0, 1]), ["X: every value is 0", "features that differ"]),
        (lambda: datasets.csr(np.eye(3), [1, 1, 1]), ["y: all 3 labels are 1", "labels that differ"]),
        (lambda: datasets.ratings(IDS, FILMS, VARIED), []),
        (lambda: datasets.ratings(IDS + 1, FILMS + 1, VARIED, n_users=6, n_items=9), []),
        (lambda: datasets.synthetic_ratings(20, 30, 200), []),
    ],
)
def test_rows_that_were_probably_meant_otherwise_are_told_in_a_line(make: Any, words: list[str]) -> None:
    lines = said(make)
    assert len(lines) == bool(words)
    for word in words:
        assert word in lines[0]
    assert said(make) == lines, "at every call"


def test_pairs_that_are_rated_again_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    users = ["a", "b", "a", "b", "a"]
    frame = {"user": users, "film": [7, 7, 7, 8, 7], "stars": VARIED[:5]}
    columns = {"user": "user", "item": "film"}
    for make in (
        lambda: datasets.ratings(frame, **columns, rating="stars"),
        lambda: datasets.ratings(users, frame["film"], VARIED[:5]),
        lambda: datasets.ratings([0, 1, 0, 1, 0], [0, 0, 0, 1, 0], VARIED[:5]),
    ):
        (line,) = said(make)
        assert "2 of 5 ratings are of a user and an item that an earlier one is of" in line
    assert said(lambda: datasets.ratings(frame, **columns)) == [], "what was done again is no sign of a mistake"
    monkeypatch.setattr(plausibility, "MOST_COMPARED", 3)
    (line,) = said(lambda: datasets.ratings(frame, **columns, rating="stars"))
    assert "1 of the first 3 ratings is of a user" in line


def test_a_table_that_the_ratings_cannot_fill_is_refused_unless_it_is_asked_for() -> None:
    far = np.where(IDS == 4, 2_000_000_000, IDS)
    with pytest.raises(DataError, match=r"users='ids up to 2000000000 of 10 ratings': must be numbered from 0"):
        datasets.ratings(far, IDS, VARIED)
    assert datasets.ratings(far, IDS, VARIED, n_users=2_000_000_001).shape == (2_000_000_001, 5)


def test_ids_that_begin_at_1_below_their_number_are_named() -> None:
    with pytest.raises(DataError, match=r"items\[4\]=5: must be a 0-based id .* these begin at 1, hand in items - 1"):
        datasets.ratings(IDS, IDS + 1, VARIED, n_items=5)
