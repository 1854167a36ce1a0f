"""Optimiser specifications: validation, JSON, and the two modes."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from mlless_nb.errors import JobError
from mlless_nb.job.optimizers import FTRL, SGD, AdaGrad, Adam, Optimizer, optimizer_from_json

INSTANCES: list[Optimizer] = [
    SGD(8.0),
    SGD(8.0, momentum=0.9, lazy=True),
    SGD(8.0, momentum=0.9, nesterov=True, decay=1.0),
    Adam(0.001),
    Adam(0.01, b1=0.8, b2=0.9, eps=1e-6, lazy=True),
    AdaGrad(0.01, lazy=False),
    SGD(0.01, decay=0.5, per_sample=True),
    FTRL(0.3, beta=0.5, l1=0.01, l2=0.1),
]


@pytest.mark.parametrize("optimizer", INSTANCES, ids=str)
def test_json_round_trip(optimizer: Optimizer) -> None:
    assert optimizer_from_json(json.loads(json.dumps(optimizer.to_json()))) == optimizer


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: SGD(0.0), "SGD.learning_rate=0.0"),
        (lambda: SGD("fast"), "SGD.learning_rate='fast'"),  # type: ignore[arg-type]
        (lambda: SGD(float("nan")), "SGD.learning_rate=nan"),
        (lambda: SGD(True), "SGD.learning_rate=True"),
        (lambda: SGD(1.0, momentum=1.0), "SGD.momentum=1.0"),
        (lambda: SGD(1.0, momentum=-0.1), "SGD.momentum=-0.1"),
        (lambda: SGD(1.0, nesterov=True), "SGD.nesterov=True"),
        (lambda: SGD(1.0, momentum=0.9, nesterov=1), "SGD.nesterov=1"),  # type: ignore[arg-type]
        (lambda: SGD(1.0, decay=-1.0), "SGD.decay=-1.0"),
        (lambda: Adam(b1=1.0), "Adam.b1=1.0"),
        (lambda: Adam(eps=0.0), "Adam.eps=0.0"),
        (lambda: AdaGrad(lazy=None), "AdaGrad.lazy=None"),  # type: ignore[arg-type]
        (lambda: Adam(lazy="yes"), "Adam.lazy='yes'"),
        (lambda: SGD(1.0, momentum=0.5, per_sample=True), "SGD.per_sample=True"),
        (lambda: SGD(1.0, per_sample=1), "SGD.per_sample=1"),  # type: ignore[arg-type]
        (lambda: FTRL(0.0), "FTRL.learning_rate=0.0"),
        (lambda: FTRL(l1=-1.0), "FTRL.l1=-1.0"),
        (lambda: FTRL(beta=0.0), "FTRL.beta=0.0"),
        (lambda: optimizer_from_json({"kind": "lbfgs"}), "optimizer.kind='lbfgs'"),
    ],
)
def test_a_wrong_field_is_named(make: Any, field: str) -> None:
    with pytest.raises(JobError, match="must be") as caught:
        make()
    assert str(caught.value).startswith(field)


def test_what_is_shown() -> None:
    assert str(SGD(8.0, momentum=0.9, nesterov=True)) == "SGD 8, Nesterov momentum 0.9"
    assert str(Adam(0.001, lazy=True)) == "Adam 0.001, lazy"
    assert str(Adam()) == "Adam at its own rate"
    assert str(SGD(0.01, per_sample=True)) == "SGD 0.01, per sample"
    assert str(FTRL(0.1, l1=0.5)) == "FTRL 0.1, l1 0.5"
    assert str(AdaGrad(0.01, decay=1)) == "AdaGrad 0.01, decay 1"


def test_who_moves_what_is_untouched() -> None:
    assert not SGD(1.0).moves_untouched(0.0)
    assert SGD(1.0).moves_untouched(0.1)
    assert SGD(1.0, momentum=0.5).moves_untouched(0.0)
    assert not SGD(1.0, momentum=0.5, lazy=True).moves_untouched(0.1)
    assert Adam().moves_untouched(0.0)
    assert not Adam(lazy=True).moves_untouched(0.1)
    assert not AdaGrad().moves_untouched(0.0)
    assert AdaGrad().moves_untouched(0.1)
    assert not FTRL().moves_untouched(0.1)
    assert not SGD(1.0, per_sample=True).moves_untouched(0.0)


@pytest.mark.parametrize("optimizer", INSTANCES, ids=str)
@pytest.mark.parametrize("l2", [0.0, 0.1])
def test_update_writes_out_and_state_only(optimizer: Optimizer, l2: float) -> None:
    rng = np.random.default_rng(1)
    params = rng.normal(size=(9, 3)).astype(np.float32)
    before, rows = params.copy(), np.array([0, 4, 5], np.int32)
    state = optimizer.init(9, 3)
    dense = optimizer.moves_untouched(l2)
    out = np.empty((9 if dense else 3, 3), np.float32)
    first = None
    for step in (1, 2):
        grad = np.ones((3, 3), np.float32)
        optimizer.update(params, rows, grad, state, step, 0.5, l2, 7, out)
        assert (grad == 1).all()
        assert (params == before).all()
        first = out.copy() if first is None else first
    untouched = np.delete(np.arange(9), rows)
    if dense:
        assert (out[rows] < 0).all()
        penalised = untouched[untouched < 7]
        assert (out[penalised] != 0).all() == (l2 > 0)
    else:
        assert all((array[untouched] == 0).all() for array in state.values())


@pytest.mark.parametrize("optimizer", INSTANCES, ids=str)
def test_scale_is_of_the_update_and_not_of_the_state(optimizer: Optimizer) -> None:
    rng = np.random.default_rng(2)
    params, rows = rng.normal(size=(5, 4)).astype(np.float32), np.arange(5, dtype=np.int32)
    whole, half = optimizer.init(5, 4), optimizer.init(5, 4)
    for step in range(1, 4):
        grad = rng.normal(size=(5, 4)).astype(np.float32)
        outs = []
        for state, scale in ((whole, 1.0), (half, 0.5)):
            out = np.empty((5, 4), np.float32)
            optimizer.update(params, rows, grad, state, step, scale, 0.0, 0, out)
            outs.append(out)
        np.testing.assert_allclose(outs[0], 2 * outs[1], rtol=1e-6)
    for name in whole:
        np.testing.assert_array_equal(whole[name], half[name])


def test_decay_is_the_inverse_square_root_of_the_step() -> None:
    params, rows = np.zeros((1, 1), np.float32), np.zeros(1, np.int32)
    grad, out = np.ones((1, 1), np.float32), np.empty((1, 1), np.float32)
    for step in (1, 4, 9):
        SGD(6.0, decay=1.0).update(params, rows, grad, {}, step, 1.0, 0.0, 0, out)
        assert out[0, 0] == pytest.approx(-6.0 / step**0.5)


def test_rates() -> None:
    for optimizer in (SGD(6.0, decay=1.0), Adam(6.0, decay=1.0), AdaGrad(6.0, decay=1.0)):
        assert [optimizer.rate(step) for step in (1, 4, 9)] == pytest.approx([6.0, 3.0, 2.0])
    assert FTRL(0.2).rate(1) == FTRL(0.2).rate(100) == 0.2


def test_state_is_what_is_named() -> None:
    for optimizer in INSTANCES:
        state = optimizer.init(4, 2)
        assert tuple(state) == optimizer.state_names
        assert all(array.shape == (4, 2) and not array.any() for array in state.values())


@pytest.mark.parametrize("l1", [0.0, 0.8])
@pytest.mark.parametrize("n_workers", [1, 3])
def test_ftrl_is_the_mean_of_the_workers_closed_forms(l1: float, n_workers: int) -> None:
    """The plain algorithm keeps w; ours adds up its changes."""
    rng = np.random.default_rng(3)
    optimizer, params = FTRL(0.5, beta=1.0, l1=l1, l2=0.1), np.zeros((20, 1), np.float32)
    states = [optimizer.init(20, 1) for _ in range(n_workers)]
    z, n, w = (np.zeros((n_workers, 20)) for _ in range(3))
    for step in range(1, 60):
        updates = []
        for worker, state in enumerate(states):
            rows = np.flatnonzero(rng.random(20) < 0.4).astype(np.int32)
            grad, out = rng.normal(0.2, 1.0, (len(rows), 1)).astype(np.float32), np.empty((len(rows), 1), np.float32)
            optimizer.update(params, rows, grad, state, step, 1 / n_workers, 0.0, 0, out)
            updates.append((rows, out))
            for row, g in zip(rows, grad[:, 0].astype(float), strict=True):
                sigma = (np.sqrt(n[worker, row] + g * g) - np.sqrt(n[worker, row])) / 0.5
                z[worker, row] += g - sigma * w[worker, row]
                n[worker, row] += g * g
                excess = abs(z[worker, row]) - l1
                denominator = (1.0 + np.sqrt(n[worker, row])) / 0.5 + 0.1
                w[worker, row] = -np.sign(z[worker, row]) * excess / denominator if excess > 0 else 0.0
        for rows, out in updates:
            params[rows] += out
        np.testing.assert_allclose(params[:, 0], w.mean(0), rtol=1e-4, atol=1e-5)
    assert (w == 0).any() == (l1 > 0)
