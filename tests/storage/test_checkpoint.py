"""The progress of training as a blob: every damaged one is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as numbers
from numpy.typing import NDArray

from mlless_nb.errors import DecodeError
from mlless_nb.storage import checkpoint
from mlless_nb.storage.checkpoint import Progress

TABLES = numbers.arrays(np.float32, st.tuples(st.integers(1, 6), st.integers(1, 4)))


def table(value: float = 1.0) -> NDArray[np.float32]:
    """A small table that tells which one it is."""
    return np.full((3, 2), value, np.float32)


@given(TABLES, st.integers(0, 2**32 - 1))
def test_a_checkpoint_survives_the_journey(params: NDArray[np.float32], step: int) -> None:
    decoded, decoded_step = checkpoint.decode(checkpoint.encode(params, step))
    assert decoded_step == step
    assert decoded.dtype == np.float32
    assert decoded.flags.writeable
    np.testing.assert_array_equal(decoded.view(np.uint32), params.view(np.uint32))


@given(TABLES, st.integers(0, 3), st.integers(0, 2**40), st.floats(0, 1), st.booleans())
def test_progress_survives_the_journey(
    params: NDArray[np.float32], n_tables: int, n_steps: int, factor: float, has_owners: bool
) -> None:
    owners = np.arange(5, dtype=np.int32) if has_owners else None
    state = tuple(params + number for number in range(n_tables))
    found = Progress.decode(Progress(params, 9, state, n_steps, n_steps + 1, factor, owners).encode())
    assert (found.step, found.n_steps, found.n_updates, found.rate_factor) == (9, n_steps, n_steps + 1, factor)
    for one, other in zip((found.params, *found.state), (params, *state), strict=True):
        np.testing.assert_array_equal(one, other)
    assert (found.owners is None) == (owners is None)
    if owners is not None:
        np.testing.assert_array_equal(found.owners, owners)


def test_any_layout_is_stored_as_it_reads() -> None:
    params = np.arange(12, dtype=np.float32).reshape(3, 4)
    for view in (params.T, params[::2], np.asfortranarray(params), params.astype(">f4")):
        np.testing.assert_array_equal(checkpoint.decode(checkpoint.encode(view, 1))[0], view)


def test_every_flipped_bit_is_noticed() -> None:
    blob = Progress(table(), 7, (table(2),), owners=np.ones(2, np.int32)).encode()
    for bit in range(8 * len(blob)):
        damaged = bytearray(blob)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DecodeError):
            checkpoint.decode(bytes(damaged))


def test_two_flips_in_different_parts_are_noticed() -> None:
    """With one polynomial for the parts and for all of it, those at certain distances cancelled."""
    table = np.arange(18, dtype=np.float32).reshape(6, 3)
    blob = Progress(table, 9, (table, table), 9, 9, 0.5).encode()
    for first in range(0, 52 * 8, 5):
        for second in range(56 * 8, len(blob) * 8, 3):
            flipped = bytearray(blob)
            flipped[first // 8] ^= 1 << first % 8
            flipped[second // 8] ^= 1 << second % 8
            with pytest.raises(DecodeError):
                Progress.decode(bytes(flipped))


def test_every_cut_and_every_addition_is_noticed() -> None:
    blob = checkpoint.encode(table(), 7)
    for length in range(len(blob)):
        with pytest.raises(DecodeError):
            checkpoint.decode(blob[:length])
    with pytest.raises(DecodeError):
        checkpoint.decode(blob + b"\0")


@given(st.binary(max_size=80))
def test_what_is_no_checkpoint_is_refused(blob: bytes) -> None:
    for start in (b"", b"MLCK", checkpoint.encode(table(), 7)[:24], checkpoint.encode(table(), 7)[:56]):
        with pytest.raises(DecodeError):
            checkpoint.decode(start + blob)
