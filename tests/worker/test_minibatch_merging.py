"""Several minibatches as one: the same losses and the same gradient as of all of them together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlless_nb import PMF, LogisticRegression, datasets
from mlless_nb.data.csr import Csr
from mlless_nb.data.minibatches import decode_minibatch, encode_minibatch
from mlless_nb.data.ratings import Ratings
from mlless_nb.worker.minibatch_merging import MergedFeed, merge

RATINGS = datasets.synthetic_ratings(40, 30, 500, rank=3, seed=1)
CLICKS = datasets.synthetic_clicks(300, n_features=60, seed=1)


def counts() -> Csr:
    """Word counts: values of their own, and columns that only some minibatches hold dense."""
    rng = np.random.default_rng(0)
    X = rng.poisson(0.4, (300, 40)) * rng.uniform(0.5, 2, (300, 40))
    X[150:, 3] = 1.5
    return datasets.csr(X, rng.integers(0, 2, 300))


MODELS: list[tuple[Any, Ratings | Csr]] = [
    (PMF(rank=3, l2=0.1), RATINGS),
    (LogisticRegression(), CLICKS),
    (LogisticRegression(), counts()),
]


@settings(deadline=None, max_examples=40)
@given(case=st.sampled_from(MODELS), seed=st.integers(0, 9), n_parts=st.integers(1, 6), size=st.integers(3, 60))
def test_losses_and_gradient_are_the_sums_of_the_parts(case: Any, seed: int, n_parts: int, size: int) -> None:
    model, data = case
    parts = list(data.minibatches(size, seed))[:n_parts]
    shape = model.table_shape(data.shape)
    params = np.random.default_rng(seed).normal(0, 0.3, shape).astype(np.float32)
    merged = merge(parts[0], parts)
    together, expected = np.zeros(shape, np.float32), np.zeros(shape)
    rows = model.rows(merged, data.shape)
    grad = np.empty((len(rows), shape[1]), np.float32)
    loss = model.gradient(params, merged, data.mean, float(size), grad)
    together[rows] = grad
    losses = []
    for part in parts:
        rows = model.rows(part, data.shape)
        grad = np.empty((len(rows), shape[1]), np.float32)
        losses.append(model.gradient(params, part, data.mean, float(size), grad))
        expected[rows] += grad
    assert merged.n == sum(part.n for part in parts)
    assert loss == pytest.approx(sum(losses), rel=1e-5)
    assert model.evaluate(params, merged, data.mean) == pytest.approx(sum(losses), rel=1e-5)
    np.testing.assert_allclose(together, expected, rtol=1e-4, atol=1e-6)
    decode_minibatch(encode_minibatch(merged), sum(data.shape))  # all that is checked of one holds


def test_what_is_no_minibatch_is_refused() -> None:
    with pytest.raises(TypeError, match="must be a minibatch"):
        merge("rows", ["rows"])


class Feed:
    """A feed that counts."""

    def __init__(self) -> None:
        self.parts, self.asked = list(RATINGS.minibatches(100, 0)), [0] * 5

    def expect(self, indices: list[int]) -> None:
        """Others are needed from now on."""

    def get(self, index: int) -> Any:
        self.asked[index] += 1
        return self.parts[index]


def test_groups_are_merged_once_until_other_ones_are_needed() -> None:
    feed = Feed()
    merged = MergedFeed(feed)  # type: ignore[arg-type]
    first = merged.get([0, 2])
    assert merged.get([0, 2]) is first
    assert merged.get([3]) is feed.parts[3]
    assert feed.asked == [1, 0, 1, 1, 0]
    merged.expect([0, 1, 2])
    assert merged.get([0, 2]) is not first
