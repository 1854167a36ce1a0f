"""Implicit feedback: the gradient is that of the loss, draws can be repeated, and tastes are learnt from ones alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mlless_nb import ImplicitMF, TrainingJob, datasets
from mlless_nb.errors import DataError, JobError
from mlless_nb.models import implicit, model_from_json

N_USERS, N_ITEMS = 30, 24


def checkerboard(share: float = 0.5) -> Any:
    """Users like the items of their own parity; each has done something with a share of them."""
    rng = np.random.default_rng(0)
    user, item = np.nonzero(
        (np.add.outer(np.arange(N_USERS), np.arange(N_ITEMS)) % 2 == 0) & (rng.random((N_USERS, N_ITEMS)) < share)
    )
    return datasets.ratings({"u": user, "i": item}, user="u", item="i")  # fmt: skip


@pytest.mark.parametrize("fields", [{}, {"biases": False}, {"confidence": 2.0, "l2": 0.0, "negatives": 1}])
def test_the_gradient_is_that_of_the_loss(fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    model, data = ImplicitMF(rank=3, init_scale=0.5, **fields), checkerboard()
    (minibatch,) = data.minibatches(1000, 0)
    monkeypatch.setattr(implicit, "N_SEEDING", 0)  # the same draw for all parameters
    table = model.init(data.shape, 1.0, 1).astype(np.float64)
    grad = np.empty((len(minibatch.ids), table.shape[1]), np.float32)
    loss = model.gradient(table.astype(np.float32), minibatch, 1.0, 10.0, grad)
    assert loss == pytest.approx(model.evaluate(table.astype(np.float32), minibatch, 1.0), rel=1e-6)

    user, item, weight, _ = model._drawn(minibatch, len(table), 0)

    def objective(params: Any) -> float:
        rows = params[minibatch.ids]
        squares = (rows[user] ** 2).sum(1) + (rows[item] ** 2).sum(1)
        return model.evaluate(params, minibatch, 1.0) + model.penalty / 2 * float(squares[weight > 0].sum())

    rng = np.random.default_rng(0)
    for row in rng.choice(len(minibatch.ids), 8, replace=False):
        for column in range(table.shape[1]):
            up, down = table.copy(), table.copy()
            up[minibatch.ids[row], column] += 1e-5
            down[minibatch.ids[row], column] -= 1e-5
            slope = (objective(up) - objective(down)) / 2e-5 / 10.0
            assert grad[row, column] == pytest.approx(slope, abs=2e-3, rel=1e-3)


def test_draws_are_new_in_each_step_and_the_same_for_equal_parameters() -> None:
    model, data = ImplicitMF(rank=3), checkerboard()
    (minibatch,) = data.minibatches(1000, 0)
    one, grads = model.init(data.shape, 1.0, 1), []
    for table in (one, one.copy(), one + np.float32(1e-6)):
        grads.append(np.empty((len(minibatch.ids), 4), np.float32))
        model.gradient(table, minibatch, 1.0, 10.0, grads[-1])
    assert np.array_equal(grads[0], grads[1])
    assert np.abs(grads[0] - grads[2]).max() > 1e-3
    assert model.evaluate(one, minibatch, 1.0) == model.evaluate(one, minibatch, 1.0)


def test_pairs_that_are_rows_are_no_negatives() -> None:
    full = datasets.ratings({"u": np.repeat(np.arange(4), 5), "i": np.tile(np.arange(5), 4)}, user="u", item="i")
    (minibatch,) = full.minibatches(100, 0)
    _, _, weight, is_row = ImplicitMF(rank=2)._drawn(minibatch, 9, 0)
    assert is_row.sum() == 20
    assert not weight[~is_row].any()


def test_tastes_are_learnt_from_ones() -> None:
    model, data = ImplicitMF(rank=4, l2=0.1), checkerboard()
    table = model.init(data.shape, 1.0, 0)
    for seed in range(200):
        (minibatch,) = data.minibatches(1000, seed)
        grad = np.empty((len(minibatch.ids), 5), np.float32)
        model.gradient(table, minibatch, 1.0, 1000.0, grad)
        table[minibatch.ids] -= 20 * grad
    fitted = model.fitted(table, data.shape, 1.0).with_seen(*data.seen()).with_names(data.names)
    hits = [
        np.mean((items + user) % 2 == 0)
        for user, (items, _) in enumerate(fitted.recommend(range(N_USERS), 3, seen=data))
    ]
    assert np.mean(hits) > 0.9
    assert fitted.evaluate(data)["AUC"] > 0.85
    chances = fitted.predict(data.users, data.items)
    assert 0 < chances.min() <= chances.max() < 1


def test_a_row_that_weighs_less_than_nothing_is_refused() -> None:
    """Training would raise its loss without end."""
    table = {"u": [0, 0, 1], "i": [0, 1, 0], "r": [3.0, -2.0, 1.0]}
    data = datasets.ratings(table, user="u", item="i", rating="r")
    for confidence in (0.0, 0.5):
        TrainingJob(ImplicitMF(confidence=confidence), data=data)
    with pytest.raises(
        DataError, match=r"data\.ratings\[1\]=-2\.0: must be at least -1 for ImplicitMF\(confidence=1\)"
    ):
        TrainingJob(ImplicitMF(confidence=1.0), data=data)


def test_fields_are_checked_and_travel_as_json() -> None:
    model = ImplicitMF(rank=7, confidence=1.5)
    assert model_from_json(model.to_json()) == model
    for fields, says in [
        ({"negatives": 0}, "negatives=0"),
        ({"confidence": -1.0}, "confidence"),
        ({"rank": 0}, "ImplicitMF.rank=0"),
    ]:
        with pytest.raises(JobError, match=says):
            ImplicitMF(**fields)
