"""Splits and minibatches of datasets in memory."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from entries import matrix_of
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array, vstack

from mlless_nb import datasets
from mlless_nb.data.csr import Csr
from mlless_nb.data.dataset import Dataset
from mlless_nb.data.minibatches import CsrMinibatch, Minibatch, RatingsMinibatch
from mlless_nb.data.ratings import Ratings
from mlless_nb.data.sampling import draw
from mlless_nb.errors import DataError


def triples_of(ratings: Ratings) -> list[tuple[int, int, float]]:
    return list(zip(ratings.users.tolist(), ratings.items.tolist(), ratings.ratings.tolist(), strict=True))


def triples_in(minibatches: Iterable[Minibatch], n_users: int) -> list[tuple[int, int, float]]:
    triples = []
    for minibatch in minibatches:
        assert isinstance(minibatch, RatingsMinibatch)
        users, items = minibatch.ids[minibatch.user], minibatch.ids[minibatch.item] - n_users
        triples += list(zip(users.tolist(), items.tolist(), minibatch.rating.tolist(), strict=True))
    return triples


def rows_in(minibatches: Iterable[Minibatch], n_features: int) -> tuple[csr_array, list[float]]:
    """Feature rows and labels, in the order of the minibatches."""
    parts, labels = [], []
    for minibatch in minibatches:
        assert isinstance(minibatch, CsrMinibatch)
        assert (minibatch.ids < n_features).all()
        parts.append(matrix_of(minibatch, n_features))
        labels += minibatch.labels.tolist()
    return vstack(parts, format="csr"), labels


@pytest.fixture
def ratings() -> Ratings:
    return datasets.synthetic_ratings(40, 30, 500, rank=3, seed=1)


@pytest.fixture
def clicks() -> Csr:
    return datasets.synthetic_clicks(300, n_features=200, seed=1)


@pytest.mark.parametrize("seed", [None, 0, 7])
def test_minibatches_hold_every_rating_once(ratings: Ratings, seed: int | None) -> None:
    minibatches = list(ratings.minibatches(64, seed))
    assert [minibatch.n for minibatch in minibatches] == [64] * 7 + [52]
    assert sorted(triples_in(minibatches, 40)) == sorted(triples_of(ratings))


def test_ratings_in_a_minibatch_are_sorted_and_ids_are_those_rated(ratings: Ratings) -> None:
    for minibatch in ratings.minibatches(64, 3):
        pairs = list(zip(minibatch.user.tolist(), minibatch.item.tolist(), strict=True))
        assert pairs == sorted(pairs)
        used = np.union1d(minibatch.ids[minibatch.user], minibatch.ids[minibatch.item])
        np.testing.assert_array_equal(minibatch.ids, used)
        assert (minibatch.ids[minibatch.user] < 40).all()
        assert (minibatch.ids[minibatch.item] >= 40).all()
        assert minibatch.ids.dtype == minibatch.user.dtype == minibatch.item.dtype == np.int32


def test_without_a_seed_minibatches_follow_the_stored_order(ratings: Ratings) -> None:
    parts = [triples_in([minibatch], 40) for minibatch in ratings.minibatches(100, None)]
    stored = triples_of(ratings)
    for number, part in enumerate(parts):
        assert sorted(part) == sorted(stored[100 * number : 100 * number + 100])


def test_the_same_pair_rated_twice_is_kept_twice() -> None:
    twice = datasets.ratings([1, 1, 0], [2, 2, 0], [5.0, 1.0, 3.0])
    (minibatch,) = twice.minibatches(10, None)
    assert triples_in([minibatch], 2) == [(0, 0, 3.0), (1, 2, 5.0), (1, 2, 1.0)]


@pytest.mark.parametrize("seed", [None, 0])
def test_csr_minibatches_hold_every_row_once(clicks: Csr, seed: int | None) -> None:
    minibatches = list(clicks.minibatches(70, seed))
    assert [minibatch.n for minibatch in minibatches] == [70, 70, 70, 70, 20]
    X, y = rows_in(minibatches, 200)
    order = np.arange(300) if seed is None else np.random.default_rng([seed, 2]).permutation(300)
    assert abs(X - clicks.X[order]).max() == 0
    np.testing.assert_array_equal(y, clicks.y[order])


def test_columns_that_most_rows_have_are_dense_and_ones_have_no_values() -> None:
    X = np.zeros((6, 5), np.float32)
    X[:, 1] = [0.5, 0, 2, 0, 0.1, 0]  # half of the rows: dense
    X[:2, 2], X[2:4, 3], X[4, 0] = 1, 1, 2  # the rest is whole
    (minibatch,) = datasets.csr(csr_array(X), [0, 1] * 3).minibatches(6, None)
    np.testing.assert_array_equal(minibatch.ids, [0, 1, 2, 3])
    np.testing.assert_array_equal(minibatch.columns, [1])
    assert len(minibatch.indices) == 5
    assert len(minibatch.values) == 5  # to tell 2 as twice 1 would make a fifth more of them
    np.testing.assert_array_equal(matrix_of(minibatch, X.shape[1]).toarray(), X)
    X[4, 0] = 1
    (minibatch,) = datasets.csr(csr_array(X), [0, 1] * 3).minibatches(6, None)
    assert len(minibatch.values) == 0
    np.testing.assert_array_equal(matrix_of(minibatch, X.shape[1]).toarray(), X)


def test_a_feature_that_a_row_has_twice_is_two_ones() -> None:
    X = np.eye(40, dtype=np.float32)
    X[3, 3], X[7, 9] = 2, 1
    (minibatch,) = datasets.csr(csr_array(X), [0, 1] * 20).minibatches(40, None)
    assert len(minibatch.values) == 0
    assert minibatch.n_terms == len(minibatch.indices) == 42
    np.testing.assert_array_equal(matrix_of(minibatch, X.shape[1]).toarray(), X)


def test_a_rare_column_of_numbers_does_not_make_every_one_be_told() -> None:
    rng = np.random.default_rng(0)
    X = (rng.random((200, 30)) < 0.2).astype(np.float32)
    X[:, 7] *= rng.random(200).astype(np.float32)
    (minibatch,) = datasets.csr(csr_array(X), [0, 1] * 100).minibatches(200, None)
    np.testing.assert_array_equal(minibatch.columns, [7])
    assert len(minibatch.values) == 0
    np.testing.assert_array_equal(matrix_of(minibatch, X.shape[1]).toarray(), X)
    X *= rng.random((200, 30)).astype(np.float32)  # nothing but numbers
    (minibatch,) = datasets.csr(csr_array(X), [0, 1] * 100).minibatches(200, None)
    assert len(minibatch.columns) == 0
    assert len(minibatch.values) == len(minibatch.indices)
    np.testing.assert_array_equal(matrix_of(minibatch, X.shape[1]).toarray(), X)


@pytest.mark.parametrize("n", [1, 2, 64])
def test_rows_that_have_every_feature_are_dense_throughout(n: int) -> None:
    X = np.random.default_rng(n).normal(size=(n, 3)).astype(np.float32)
    (minibatch,) = datasets.csr(csr_array(X), np.arange(n) % 2).minibatches(n, None)
    assert len(minibatch.indices) == 0
    np.testing.assert_array_equal(minibatch.dense, X.T)
    np.testing.assert_array_equal(minibatch.indptr, np.zeros(n + 1))


@pytest.mark.parametrize("odd", [0.5, -1.0, 1e30, np.float32(2**31)])
def test_values_that_are_not_small_and_whole_are_kept(odd: float) -> None:
    X = np.eye(40, dtype=np.float32)
    X[3, 3] = odd
    (minibatch,) = datasets.csr(csr_array(X), [0, 1] * 20).minibatches(40, None)
    np.testing.assert_array_equal(matrix_of(minibatch, X.shape[1]).toarray(), X)


def test_more_features_than_16_bits_can_tell_apart() -> None:
    for n_features, dtype in ((2**16, np.uint16), (2**16 + 1, np.int32)):
        X = csr_array((np.ones(n_features, np.float32), np.arange(n_features), [0, n_features, n_features, n_features]))
        (minibatch,) = datasets.csr(X, [0, 1, 1]).minibatches(3, None)
        assert minibatch.indices.dtype == dtype
        assert abs(matrix_of(minibatch, n_features) - X).max() == 0


def test_csr_rows_without_features_are_kept() -> None:
    empty = datasets.csr(csr_array((3, 5)), [0, 1, 0])
    (minibatch,) = empty.minibatches(3, None)
    assert minibatch.ids.shape == (0,)
    np.testing.assert_array_equal(minibatch.indptr, [0, 0, 0, 0])


def test_with_more_features_than_a_table_may_have_minibatches_are_the_same(
    clicks: Csr, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_table = list(clicks.minibatches(70, 0))
    monkeypatch.setattr("mlless_nb.data.cutter.TABLE_FEATURES", 0)
    for one, other in zip(with_table, clicks.minibatches(70, 0), strict=True):
        np.testing.assert_array_equal(one.indices, other.indices)


@pytest.mark.parametrize("name", ["ratings", "clicks"])
def test_a_seed_decides_the_minibatches(name: str, request: pytest.FixtureRequest) -> None:
    dataset: Dataset = request.getfixturevalue(name)

    def bytes_by(seed: int) -> list[bytes]:
        return [b"".join(array.tobytes() for array in vars(mb).values()) for mb in dataset.minibatches(50, seed)]

    assert bytes_by(4) == bytes_by(4)
    assert bytes_by(4) != bytes_by(5)


@pytest.mark.parametrize("name", ["ratings", "clicks"])
def test_a_split_parts_the_rows_by_seed(name: str, request: pytest.FixtureRequest) -> None:
    dataset: Dataset = request.getfixturevalue(name)
    train, validation = dataset.split(0.1, 0)
    assert (train.n, validation.n) == (dataset.n - dataset.n // 10, dataset.n // 10)
    assert train.shape == validation.shape == dataset.shape
    again, other = dataset.split(0.1, 0), dataset.split(0.1, 1)
    assert [part.fingerprint() for part in again] == [train.fingerprint(), validation.fingerprint()]
    assert other[1].fingerprint() != validation.fingerprint()


def test_a_split_loses_nothing_and_keeps_the_order(ratings: Ratings) -> None:
    train, validation = ratings.split(0.3, 2)
    assert sorted(triples_of(train) + triples_of(validation)) == sorted(triples_of(ratings))
    position = {triple: number for number, triple in enumerate(triples_of(ratings))}
    for part in (train, validation):
        positions = [position[triple] for triple in triples_of(part)]
        assert positions == sorted(positions)


@given(n=st.integers(2, 400), fraction=st.floats(0.001, 0.999), seed=st.integers(0, 1000))
def test_a_split_holds_out_at_least_one_and_never_all(n: int, fraction: float, seed: int) -> None:
    ratings = datasets.ratings(np.arange(n), np.arange(n), np.ones(n))
    train, validation = ratings.split(fraction, seed)
    assert train.n >= 1
    assert validation.n >= 1
    assert train.n + validation.n == n


@given(n=st.integers(1, 300), seed=st.integers(0, 1000), data=st.data())
def test_drawing_block_by_block_draws_exactly_as_many(n: int, seed: int, data: st.DataObject) -> None:
    n_held = data.draw(st.integers(0, n))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mlless_nb.data.sampling.DRAW_ROWS", 7)
        assert draw(n, n_held, seed).sum() == n_held


def test_drawing_block_by_block_favours_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlless_nb.data.sampling.DRAW_ROWS", 4)
    drawn = np.mean([draw(10, 3, seed) for seed in range(3000)], axis=0)
    np.testing.assert_allclose(drawn, 0.3, atol=0.04)


@pytest.mark.parametrize("fraction", [0, 1, -0.1, 2, float("nan"), "0.1", True])
def test_a_fraction_that_makes_no_sense_is_refused(ratings: Ratings, fraction: object) -> None:
    with pytest.raises(DataError, match=r"fraction=.*must be a number between 0 and 1"):
        ratings.split(fraction, 0)  # type: ignore[arg-type]


def test_one_row_cannot_be_split() -> None:
    with pytest.raises(DataError, match="at least 2 rows"):
        datasets.ratings([0], [0], [1]).split(0.5, 0)


@pytest.mark.parametrize("size", [0, -1, 2.5, None])
def test_a_minibatch_size_that_makes_no_sense_is_refused(ratings: Ratings, size: object) -> None:
    with pytest.raises(DataError, match="minibatch="):
        next(ratings.minibatches(size, 0))  # type: ignore[arg-type]


def test_the_mean_is_that_of_the_ratings(ratings: Ratings, clicks: Csr) -> None:
    assert ratings.mean == pytest.approx(ratings.ratings.astype(float).mean(), rel=1e-12)
    assert clicks.mean == 0.0


def test_the_fingerprint_is_of_the_content() -> None:
    one = datasets.ratings([0, 1], [0, 1], [1.0, 2.0])
    assert datasets.ratings([0, 1], [0, 1], [1.0, 2.0]).fingerprint() == one.fingerprint()
    for other in (
        datasets.ratings([0, 1], [0, 1], [1.0, 2.5]),
        datasets.ratings([1, 0], [0, 1], [1.0, 2.0]),
        datasets.ratings([0, 1], [0, 1], [1.0, 2.0], n_items=3),
    ):
        assert other.fingerprint() != one.fingerprint()
    X = np.array([[0.0, 1.0], [2.0, 0.0]])
    assert datasets.csr(X, [0, 1]).fingerprint() == datasets.csr(csr_array(X), [0, 1]).fingerprint()
    assert datasets.csr(X, [0, 1]).fingerprint() != datasets.csr(X, [1, 1]).fingerprint()


def test_the_sketch_tells_frames_apart_by_shape_and_rows() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(5000, 4)), rng.integers(0, 2, 5000)
    one = datasets.csr(X, y)
    assert datasets.csr(csr_array(X), y).sketch() == one.sketch()
    others = [(X[:-1], y[:-1]), (X[:, :3], y), (X + 1, y), (X[::-1], y), (X, 1 - y)]
    assert one.sketch() not in {datasets.csr(*other).sketch() for other in others}
    ids, stars = rng.integers(0, 50, (2, 5000)), rng.integers(1, 6, 5000)
    rated = datasets.ratings(*ids, stars)
    assert datasets.ratings(*ids, stars).sketch() == rated.sketch()
    ratings = [(*ids[::-1], stars), (*ids, 6 - stars), (*ids[:, 1:], stars[1:])]
    assert rated.sketch() not in {datasets.ratings(*other).sketch() for other in ratings}


def test_arrays_handed_in_are_copied_and_those_handed_out_cannot_change() -> None:
    values = np.array([1, 2], np.float32)
    ratings = datasets.ratings(np.array([0, 1], np.int32), np.array([0, 1], np.int32), values)
    values[0] = 9
    assert ratings.ratings[0] == 1
    X = csr_array(np.eye(2, dtype=np.float32))
    clicks = datasets.csr(X, np.array([0, 1], np.float32))
    X.data[0] = 9
    assert clicks.X[0, 0] == 1
    for array in (ratings.users, ratings.ratings, clicks.X.data, clicks.y):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_generated_data_says_so_and_keeps_saying_so(ratings: Ratings, clicks: Csr) -> None:
    for dataset in (ratings, clicks):
        for part in (dataset, *dataset.split(0.1, 0)):
            assert part.is_synthetic
            assert "synthetic" in repr(part)
    assert repr(ratings) == "<Ratings generated ratings (synthetic): 500 ratings, 40 users x 30 items>"
    assert len(ratings) == 500
