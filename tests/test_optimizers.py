"""Optimiser specifications: validation, JSON, and the two modes."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from mlless_nb.errors import JobError
from mlless_nb.optimizers import SGD, AdaGrad, Adam, Optimizer, optimizer_from_json

INSTANCES: list[Optimizer] = [
    SGD(8.0),
    SGD(8.0, momentum=0.9, lazy=True),
    SGD(8.0, momentum=0.9, nesterov=True, decay=1.0),
    Adam(),
    Adam(0.01, b1=0.8, b2=0.9, eps=1e-6, lazy=True),
    AdaGrad(),
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
        (lambda: optimizer_from_json({"kind": "lbfgs"}), "optimizer.kind='lbfgs'"),
    ],
)
def test_a_wrong_field_is_named(make: Any, field: str) -> None:
    with pytest.raises(JobError, match="must be") as caught:
        make()
    assert str(caught.value).startswith(field)


def test_what_is_shown() -> None:
    assert str(SGD(8.0, momentum=0.9, nesterov=True)) == "SGD 8, Nesterov momentum 0.9"
    assert str(Adam(lazy=True)) == "Adam 0.001, lazy"
    assert str(AdaGrad(decay=1)) == "AdaGrad 0.01, decay 1"


def test_who_moves_what_is_untouched() -> None:
    assert not SGD(1.0).moves_untouched(0.0)
    assert SGD(1.0).moves_untouched(0.1)
    assert SGD(1.0, momentum=0.5).moves_untouched(0.0)
    assert not SGD(1.0, momentum=0.5, lazy=True).moves_untouched(0.1)
    assert Adam().moves_untouched(0.0)
    assert not Adam(lazy=True).moves_untouched(0.1)
    assert not AdaGrad().moves_untouched(0.0)
    assert AdaGrad().moves_untouched(0.1)


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
        assert (out[rows] < 0).any()
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
