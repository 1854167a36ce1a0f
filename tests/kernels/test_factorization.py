"""PMF kernels against their NumPy reference, finite differences and bad input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlless_nb import kernels
from mlless_nb.kernels import reference

N_USERS, N_ITEMS = 30, 40


def problem(width: int, n: int, seed: int) -> dict[str, Any]:
    """A minibatch of ``n`` ratings over some of 30 users and 40 items."""
    rng = np.random.default_rng(seed)
    rows = np.concatenate(
        [
            np.sort(rng.choice(N_USERS, 20, replace=False)),
            N_USERS + np.sort(rng.choice(N_ITEMS, 25, replace=False)),
        ]
    ).astype(np.int32)
    return {
        "params": rng.normal(size=(N_USERS + N_ITEMS, width)).astype(np.float32),
        "rows": rows,
        "user": np.sort(rng.integers(0, 20, n)).astype(np.int32),
        "item": rng.integers(20, 45, n).astype(np.int32),
        "rating": rng.normal(3.5, 1.0, n).astype(np.float32),
        "mean": 3.5,
    }


@given(
    width=st.integers(1, 140) | st.sampled_from([16, 20, 21, 32, 33, 64, 96, 97]),
    biases=st.booleans(),
    n=st.integers(0, 120),
    l2=st.sampled_from([0.0, 0.3]),
    seed=st.integers(0, 2**32 - 1),
)
def test_gradient_and_loss_equal_the_reference(width: int, biases: bool, n: int, l2: float, seed: int) -> None:
    biases = biases and width > 1
    data = problem(width, n, seed)
    grad, expected = np.full((45, width), np.nan, np.float32), np.empty((45, width), np.float32)
    loss = kernels.pmf_gradient(**data, l2=l2, divisor=max(n, 1), biases=biases, grad=grad)
    wanted = reference.pmf_gradient(**data, l2=l2, divisor=max(n, 1), biases=biases, grad=expected)
    assert loss == pytest.approx(wanted, rel=1e-5, abs=1e-6)
    np.testing.assert_allclose(grad, expected, rtol=1e-4, atol=1e-5 * max(1.0, np.abs(expected).max()))
    assert kernels.pmf_squared_error(**data, biases=biases) == pytest.approx(wanted, rel=1e-5, abs=1e-6)


@given(
    width=st.integers(1, 140) | st.sampled_from([16, 20, 21, 32, 33, 64, 96, 97]),
    biases=st.booleans(),
    n=st.integers(0, 120),
    is_sorted=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_pass_of_steps_equals_the_plain_loop(width: int, biases: bool, n: int, is_sorted: bool, seed: int) -> None:
    biases = biases and width > 1
    data = problem(width, n, seed)
    if not is_sorted:
        data["user"] = np.ascontiguousarray(data["user"][::-1])
    data["params"] *= np.float32(0.3)
    expected, block = data["params"].copy(), np.full((N_USERS + N_ITEMS, width + 3), 9.0, np.float32)
    spaced = block[:, 1 : width + 1]
    spaced[:] = expected
    knobs = {"l2": 0.05, "rate": 0.02, "biases": biases}
    squared = kernels.pmf_sgd_pass(**data, **knobs)
    wanted = reference.pmf_sgd_pass(**{**data, "params": expected}, **knobs)
    assert squared == pytest.approx(wanted, rel=1e-4, abs=1e-6)
    np.testing.assert_allclose(data["params"], expected, rtol=1e-4, atol=1e-5)
    assert kernels.pmf_sgd_pass(**{**data, "params": spaced}, **knobs) == squared
    assert spaced.tobytes() == data["params"].tobytes()
    assert (block[:, [0, -2, -1]] == 9.0).all()


def test_spaced_rows_give_the_same_bits() -> None:
    data = problem(21, 100, 8)
    block = np.full((N_USERS + N_ITEMS, 64), 9.0, np.float32)
    block[:, :21] = data["params"]
    results = []
    for params in (data["params"], block[:, :21]):
        given_ = {**data, "params": params, "biases": True}
        grad, out = np.empty((45, 21), np.float32), np.empty(100, np.float32)
        loss = kernels.pmf_gradient(**given_, l2=0.1, divisor=100, grad=grad)
        kernels.pmf_predict(params, data["rows"][data["user"]], data["rows"][data["item"]], 3.5, True, out)
        results.append((loss, grad.tobytes(), out.tobytes(), kernels.pmf_squared_error(**given_)))
    assert results[0] == results[1]


def test_users_need_not_be_sorted() -> None:
    data = problem(21, 100, 1)
    shuffled = np.random.default_rng(2).permutation(100)
    for name in ("user", "item", "rating"):
        data[name] = np.ascontiguousarray(data[name][shuffled])
    grad, expected = np.empty((45, 21), np.float32), np.empty((45, 21), np.float32)
    kernels.pmf_gradient(**data, l2=0.1, divisor=100, biases=True, grad=grad)
    reference.pmf_gradient(**data, l2=0.1, divisor=100, biases=True, grad=expected)
    np.testing.assert_allclose(grad, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("biases", [True, False])
def test_gradient_is_the_slope_of_the_loss(biases: bool) -> None:
    data = problem(6, 60, 3)
    l2, small = 0.2, 1e-2

    def loss(params: np.ndarray) -> float:
        p = params[data["rows"]].astype(np.float64)
        squared = reference.pmf_squared_error(**{**data, "params": params}, biases=biases)
        return 0.5 * squared + 0.5 * l2 * float((p[data["user"]] ** 2).sum() + (p[data["item"]] ** 2).sum())

    grad = np.empty((45, 6), np.float32)
    kernels.pmf_gradient(**data, l2=l2, divisor=1.0, biases=biases, grad=grad)
    for local in (0, 7, 25, 44):
        for column in range(6):
            above, below = data["params"].copy(), data["params"].copy()
            above[data["rows"][local], column] += small
            below[data["rows"][local], column] -= small
            step = float(above[data["rows"][local], column]) - float(below[data["rows"][local], column])
            slope = (loss(above) - loss(below)) / step
            assert grad[local, column] == pytest.approx(slope, rel=2e-3, abs=2e-3)


def test_two_runs_are_identical() -> None:
    data = problem(21, 500, 4)
    first, second = np.empty((45, 21), np.float32), np.empty((45, 21), np.float32)
    for grad in (first, second):
        kernels.pmf_gradient(**data, l2=0.1, divisor=500, biases=True, grad=grad)
    assert first.tobytes() == second.tobytes()


@pytest.mark.parametrize("width", [1, 4, 21, 40])
@pytest.mark.parametrize("biases", [True, False])
def test_predictions_equal_the_reference(width: int, biases: bool) -> None:
    biases = biases and width > 1
    data = problem(width, 50, 5)
    user, item = data["rows"][data["user"]], data["rows"][data["item"]]
    out, expected = np.empty(50, np.float32), np.empty(50, np.float32)
    kernels.pmf_predict(data["params"], user, item, 3.5, biases, out)
    reference.pmf_predict(data["params"], user, item, 3.5, biases, expected)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("user", np.full(10, -1, np.int32), "positions in rows"),
        ("user", np.full(10, 45, np.int32), "positions in rows"),
        ("item", np.full(10, 45, np.int32), "positions in rows"),
        ("item", np.zeros(10, np.int32), "overlap"),
        ("item", np.zeros(9, np.int32), "lengths"),
        ("rows", np.arange(45, dtype=np.int32)[::-1].copy(), "ascending"),
        ("rows", np.arange(30, 75, dtype=np.int32), "ascending"),
        ("rows", np.arange(-1, 44, dtype=np.int32), "ascending"),
        ("rating", np.zeros(10), "dtype"),
        ("params", np.zeros((70, 0), np.float32), "width"),
    ],
)
def test_bad_input_is_an_error_and_writes_nothing(name: str, value: np.ndarray, words: str) -> None:
    data = {**problem(5, 10, 6), name: value}
    grad = np.full((45, 5), 7.0, np.float32)
    with pytest.raises(ValueError, match=words):
        kernels.pmf_gradient(**data, l2=0.0, divisor=1.0, biases=True, grad=grad)
    assert (grad == 7.0).all()
    before = data["params"].copy()
    with pytest.raises(ValueError, match=words):
        kernels.pmf_sgd_pass(**data, l2=0.0, rate=0.1, biases=True)
    assert (data["params"] == before).all()


def test_prediction_of_an_unknown_row_is_an_error() -> None:
    params, out = np.zeros((5, 3), np.float32), np.empty(1, np.float32)
    for bad in (-1, 5):
        with pytest.raises(ValueError, match="rows of params"):
            kernels.pmf_predict(params, np.array([bad], np.int32), np.array([0], np.int32), 0.0, True, out)


def test_read_only_arrays_will_do() -> None:
    data = problem(5, 10, 7)
    for array in data.values():
        if isinstance(array, np.ndarray):
            array.flags.writeable = False
    assert kernels.pmf_squared_error(**data, biases=True) > 0
