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
    ("ftrl_update", 2, {"scale": 0.5, "rate": 0.1, "beta": 1.0, "l1": 0.3, "ridge": 0.1}),
]
IDS = ["sgd", "momentum", "nesterov", "adam", "adagrad", "ftrl"]


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
@pytest.mark.parametrize("dense", [True, False])
@given(
    n_rows=st.integers(1, 200) | st.just(2500),
    width=st.integers(1, 40) | st.just(1),
    share=st.floats(0, 1),
    l2=st.sampled_from([0.0, 0.2]),
    threshold=st.sampled_from([0.0, 0.2, 1.0, np.inf]),
    seed=st.integers(0, 2**32 - 1),
)
def test_fused_or_not_and_spaced_or_not_the_bits_are_the_same(
    name: str,
    n_states: int,
    knobs: dict[str, Any],
    dense: bool,
    n_rows: int,
    width: int,
    share: float,
    l2: float,
    threshold: float,
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    params, held, *states = (rng.random((n_rows, width)).astype(np.float32) for _ in range(2 + n_states))
    rows = np.flatnonzero(rng.random(n_rows) < share).astype(np.int32)
    grad = rng.normal(size=(len(rows), width)).astype(np.float32)
    step, results = getattr(kernels, name), []
    for is_spaced in (False, True):
        for is_fused, moves in ((False, False), (True, False), (True, True)):
            block = np.full((n_rows, (2 + n_states) * width + 1), 9.0, np.float32)
            tables = [block[:, k * width : (k + 1) * width] for k in range(2 + n_states)]
            if not is_spaced:
                tables = [table.copy() for table in tables]
            for table, start in zip(tables, (params, held, *states), strict=True):
                table[:] = start
            split = kernels.SignificanceSplit(n_rows, width, tables[1])
            split.threshold, split.moves = threshold, moves
            slope = grad.copy()
            out = slope if is_fused and not dense else np.full((n_rows if dense else len(rows), width), np.nan, "f4")
            knobbed = (*tables[2:], *knobs.values(), l2, n_rows // 2, out, split if is_fused else None)
            step(tables[0], rows, slope, *knobbed)
            if not is_fused:
                kernels.split_significant(tables[0], None if dense else rows, out, split)
            if not moves:
                kernels.apply_rows(tables[0], None if dense else rows, out)
            sent = (split.sent_positions.tobytes(), split.sent_values.tobytes())
            results.append((*sent, *(table.tobytes() for table in tables)))
            assert (block[:, -1] == 9.0).all()
    assert all(result == results[0] for result in results)


#: Field, a value it must not have, and words of the error.
BAD_INPUT: list[tuple[str, Any, str]] = [
    ("rows", np.array([1, 9], np.int32), "ascending"),
    ("rows", np.array([1, 1], np.int32), "ascending"),
    ("grad", np.zeros((2, 3), np.float32), "grad has shape"),
    ("out", np.zeros((3, 4), np.float32), "out has shape"),
    ("state", np.zeros((3, 4), np.float32), "state has shape"),
]


@pytest.mark.parametrize(
    ("name", "n_states", "knobs", "field", "value", "words"),
    [
        pytest.param(*step, *bad, id=f"{kind}-{bad[0]}-{bad[2]}")
        for kind, step in zip(IDS, STEPS, strict=True)
        for bad in BAD_INPUT
        if step[1] or bad[0] != "state"  # plain SGD has none
    ],
)
def test_bad_input_is_an_error(
    name: str, n_states: int, knobs: dict[str, Any], field: str, value: np.ndarray, words: str
) -> None:
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
