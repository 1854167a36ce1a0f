"""Items are judged by ratings that are left out, without the parameters of users: as if each were fitted again."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlless_nb import PMF, datasets
from mlless_nb.data.minibatches import RatingsMinibatch
from mlless_nb.models import leave_one_out as module
from mlless_nb.models.leave_one_out import LEAST_PENALTY, N_RATINGS, N_USERS, leave_one_out

N_ITEMS = 30


def minibatch(counts: list[int], seed: int) -> RatingsMinibatch:
    """So many ratings of each user, of items drawn at random, some of them twice."""
    draws = np.random.default_rng(seed)
    user = np.repeat(np.arange(len(counts)), counts)
    item = draws.integers(0, N_ITEMS, len(user))
    order = np.lexsort((item, user))
    ids = np.arange(len(counts) + N_ITEMS, dtype=np.int32)
    rating = draws.normal(size=len(user)).astype(np.float32)
    return RatingsMinibatch(ids, user.astype(np.int32), (len(counts) + item[order]).astype(np.int32), rating)


def refitted(params: np.ndarray, batch: RatingsMinibatch, mean: float, penalty: float, biases: bool) -> float:
    """The errors by the definition: for each rating, the user's parameters are fitted to the other ratings."""
    total = 0.0
    for user in np.unique(batch.user):
        at = np.flatnonzero(batch.user == user)
        rows = params[batch.ids[batch.item[at]]].astype(np.float64)
        target = batch.rating[at] - mean - (rows[:, -1] if biases else 0.0)
        if biases:
            rows[:, -1] = 1.0
        ridge = len(at) * penalty * np.eye(rows.shape[1])
        for one in range(len(at)):
            rest = np.delete(np.arange(len(at)), one)
            fitted = np.linalg.solve(rows[rest].T @ rows[rest] + ridge, rows[rest].T @ target[rest])
            total += (target[one] - rows[one] @ fitted) ** 2
    return total


@given(
    st.lists(st.integers(0, N_RATINGS), min_size=1, max_size=6).filter(any),
    st.integers(0, 99),
    st.floats(LEAST_PENALTY, 1.0),
    st.booleans(),
)
@settings(deadline=None)
def test_the_errors_are_those_of_fits_without_each_rating(
    counts: list[int], seed: int, penalty: float, biases: bool
) -> None:
    batch = minibatch(counts, seed)
    params = np.random.default_rng(seed + 1).normal(size=(len(batch.ids), 4)).astype(np.float32)
    params[: len(counts)] = np.nan  # the users'
    total, count = leave_one_out(params, batch, 0.3, penalty, has_biases=biases)
    assert count == batch.n
    assert total == pytest.approx(refitted(params, batch, 0.3, penalty, biases), rel=1e-5)


def test_few_ratings_are_read_however_many_there_are() -> None:
    batch = minibatch([1 + user % 40 for user in range(500)], seed=2)
    params = np.random.default_rng(3).normal(size=(len(batch.ids), 4)).astype(np.float32)
    total, count = leave_one_out(params, batch, 0.0, 0.1, has_biases=True)
    assert count == N_USERS * N_RATINGS
    assert np.isfinite(total)


def test_the_ratings_of_a_user_are_spread_over_the_items(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are sorted by item, and the first ones would judge only the items with low ids."""
    monkeypatch.setattr(module, "N_USERS", 1)
    n = 10 * N_RATINGS
    ids, user = np.arange(1 + n, dtype=np.int32), np.zeros(n, np.int32)
    batch = RatingsMinibatch(ids, user, np.arange(1, 1 + n, dtype=np.int32), np.ones(n, np.float32))
    params = np.full((1 + n, 3), np.nan, np.float32)
    params[1::10] = 0.5
    assert np.isfinite(leave_one_out(params, batch, 0.0, 0.1, has_biases=True)[0])


RATINGS = datasets.synthetic_ratings(60, 40, 2400, rank=3, seed=1)
DRAWS = np.random.default_rng(5)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda items: items + 0.5 * np.abs(items).mean() * DRAWS.normal(size=items.shape),
        lambda items: items[DRAWS.permutation(len(items))],
        lambda items: DRAWS.normal(size=items.shape),
        lambda items: 10 * DRAWS.normal(size=items.shape),
        lambda items: 1e15 * DRAWS.normal(size=items.shape),
        lambda items: 0 * items,
        lambda items: np.where(np.arange(len(items))[:, None] % 2, items, -items),
    ],
    ids=["noise", "another order", "random", "large and random", "exploded", "zero", "half of them turned around"],
)
def test_spoilt_items_are_worse(spoil: object) -> None:
    model, mean = PMF(rank=3, l2=0.05), RATINGS.mean
    train, held_out = RATINGS.split(0.3, 0)
    params = model.init(RATINGS.shape, mean, 0)
    for epoch in range(60):
        for one in train.minibatches(200, epoch):
            model.sgd_pass(params, one, mean, 0.03)
    (batch,) = held_out.minibatches(10_000, None)
    sound, count = model.evaluate_common(params, batch, mean)
    spoilt = params.copy()
    spoilt[60:] = spoil(params[60:])  # type: ignore[operator]
    assert model.evaluate_common(spoilt, batch, mean)[0] > 1.02 * sound
    # What is fitted to the others' ratings is nearly as good as what was trained.
    assert sound / count < 2 * model.evaluate(params, batch, mean) / batch.n
    users = params.copy()
    users[:60] = 7.0
    assert model.evaluate_common(users, batch, mean) == (sound, count)
