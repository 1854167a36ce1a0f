"""A worker's part of a checkpoint as a blob: the journey, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as numbers
from numpy.typing import NDArray

from mlless_nb.errors import DecodeError
from mlless_nb.storage.worker_state import WorkerState, joined

TABLES = st.dictionaries(
    st.text(max_size=8),
    numbers.arrays(np.float32, numbers.array_shapes(min_dims=1, max_dims=2, max_side=5, min_side=0))
    | numbers.arrays(np.int32, st.tuples(st.integers(0, 6))),
    max_size=4,
)
FACTS = st.dictionaries(st.text(max_size=5), st.none() | st.floats() | st.lists(st.integers()), max_size=4)
STATE = WorkerState(7, 1, [0, 1, 3], {"loss": float("inf")}, {"params": np.ones((3, 2), np.float32)})


@given(st.integers(0, 2**40), st.integers(0, 9), FACTS, TABLES, TABLES)
def test_a_state_survives_the_journey(
    step: int, slot: int, facts: dict[str, object], tables: dict[str, NDArray], common: dict[str, NDArray]
) -> None:
    state = WorkerState(step, slot, [slot, slot + 2], facts, tables, common)
    decoded = WorkerState.decode(state.encode())
    assert (decoded.step, decoded.slot, decoded.active) == (step, slot, [slot, slot + 2])
    assert repr(decoded.facts) == repr(facts)
    for before, after in ((tables, decoded.tables), (common, decoded.common)):
        assert list(before) == list(after)
        for name, table in before.items():
            assert after[name].dtype == table.dtype
            np.testing.assert_array_equal(after[name], table)


@given(st.binary(max_size=200))
def test_what_is_no_state_is_refused(blob: bytes) -> None:
    whole = STATE.encode()
    for start in (b"", b"MLWS", whole[:16], whole[:40]):
        with pytest.raises(DecodeError):
            WorkerState.decode(start + blob)


@given(st.data())
def test_every_changed_byte_is_noticed(data: st.DataObject) -> None:
    blob = bytearray(STATE.encode())
    at = data.draw(st.integers(0, len(blob) - 1))
    blob[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(DecodeError):
        WorkerState.decode(bytes(blob))
    with pytest.raises(DecodeError):
        WorkerState.decode(STATE.encode()[:at])


def test_a_common_table_is_joined_in_the_order_of_slots() -> None:
    parts = {
        slot: WorkerState(1, slot, [0, 2, 5], {}, {}, {"params": np.full((1 + slot, 1), slot, np.float32)})
        for slot in (5, 0, 2)
    }
    assert joined(parts, "params").ravel().tolist() == [0.0, *[2.0] * 3, *[5.0] * 6]
