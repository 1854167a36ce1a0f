"""Optimiser steps against their NumPy reference, in both modes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlless_nb import kernels
from mlless_nb.kernels import reference

#: Name, states, and the arguments between the states and l2.
STEPS: list[tuple[str, int, dict[str, Any]]] = [
    ("sgd_update", 0, {"rate": 0.3}),
    ("momentum_update", 1, {"rate": 0.3, "momentum": 0.9, "nesterov": False}),
    ("momentum_update", 1, {"rate": 0.3, "momentum": 0.8, "nesterov": True}),
    ("adam_update", 2, {"rate": 0.1, "b1": 0.9, "b2": 0.99, "eps": 1e-8, "step": 3}),
    ("adagrad_update", 1, {"rate": 0.1, "eps": 1e-10}),
]
IDS = ["sgd", "momentum", "nesterov", "adam", "adagrad"]


@pytest.mark.parametrize(("name", "n_states", "knobs"), STEPS, ids=IDS)
@pytest.mark.parametrize("dense", [True, False])
@given(
    n_rows=st.integers(1, 300),
    width=st.integers(1, 40),
    share=st.floats(0, 1),
    l2=st.sampled_from([0.0, 0.2]),
    seed=st.integers(0, 2**32 - 1),
)
def test_step_equals_the_reference(
    name: str,
    n_states: int,
    knobs: dict[str, Any],
    dense: bool,
    n_rows: int,
    width: int,
    share: float,
    l2: float,
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    params = rng.normal(size=(n_rows, width)).astype(np.float32)
    rows = np.flatnonzero(rng.random(n_rows) < share).astype(np.int32)
    grad = rng.normal(size=(len(rows), width)).astype(np.float32)
    states = [rng.random((n_rows, width)).astype(np.float32) for _ in range(n_states)]
    out = np.full((n_rows if dense else len(rows), width), np.nan, np.float32)
    results = []
    for module in (kernels, reference):
        mine, written = [state.copy() for state in states], out.copy()
        step = getattr(module, name)
        step(params, rows, grad, *mine, *knobs.values(), l2, n_rows // 2, written)
        results.append((written, *mine))
    for got, expected in zip(*results, strict=True):
        np.testing.assert_allclose(got, expected, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize(("name", "n_states", "knobs"), STEPS, ids=IDS)
@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("rows", np.array([1, 9], np.int32), "ascending"),
        ("rows", np.array([1, 1], np.int32), "ascending"),
        ("grad", np.zeros((2, 3), np.float32), "grad has shape"),
        ("out", np.zeros((3, 4), np.float32), "out has shape"),
        ("state", np.zeros((3, 4), np.float32), "state has shape"),
    ],
)
def test_bad_input_is_an_error(
    name: str, n_states: int, knobs: dict[str, Any], field: str, value: np.ndarray, words: str
) -> None:
    if field == "state" and not n_states:
        return
    given_: dict[str, Any] = {
        "rows": np.array([1, 2], np.int32),
        "grad": np.zeros((2, 4), np.float32),
        "out": np.zeros((2, 4), np.float32),
        "state": np.zeros((5, 4), np.float32),
        field: value,
    }
    params, states = np.zeros((5, 4), np.float32), [given_["state"].copy() for _ in range(n_states)]
    with pytest.raises(ValueError, match=words):
        getattr(kernels, name)(params, given_["rows"], given_["grad"], *states, *knobs.values(), 0.0, 0, given_["out"])
