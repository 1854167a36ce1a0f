"""The progress of training as a blob: every damaged one is refused."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as numbers
from numpy.typing import NDArray

from mlless_nb.errors import DecodeError
from mlless_nb.kernels import crc32c
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


@given(TABLES, st.text(max_size=20), st.text(max_size=2000), st.booleans())
def test_how_the_run_ended_is_in_its_model(
    params: NDArray[np.float32], status: str, reason: str, has_owners: bool
) -> None:
    owners = np.arange(5, dtype=np.int32) if has_owners else None
    found = Progress.decode(Progress(params, 9, owners=owners, verdict=(status, reason)).encode())
    assert found.verdict == (status, reason[:1000])
    np.testing.assert_array_equal(found.params, params)
    assert Progress.decode(Progress(params, 9, owners=owners).encode()).verdict is None


@pytest.mark.parametrize("end", [b"{}", b'["a"]', b'["a", 1]', b'{"a": 1, "b": 2}', b'"ab"', b"\xff", b"[" * 9999])
def test_an_end_that_is_none_is_refused(end: bytes) -> None:
    blob = Progress(table(), 7, verdict=("finished", "done")).encode()
    header, body = blob[:52], blob[56 : 56 + table().nbytes]
    crc = zlib.crc32(header + b"".join(struct.pack("<I", crc32c(part)) for part in (body, b"", end)))
    with pytest.raises(DecodeError, match="whose end is no status and reason"):
        Progress.decode(header + struct.pack("<I", crc) + body + end)


def test_any_layout_is_stored_as_it_reads() -> None:
    params = np.arange(12, dtype=np.float32).reshape(3, 4)
    for view in (params.T, params[::2], np.asfortranarray(params), params.astype(">f4")):
        np.testing.assert_array_equal(checkpoint.decode(checkpoint.encode(view, 1))[0], view)


def test_every_flipped_bit_is_noticed() -> None:
    blob = Progress(table(), 7, (table(2),), owners=np.ones(2, np.int32), verdict=("a", "b")).encode()
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
    for blob in (checkpoint.encode(table(), 7), Progress(table(), 7, verdict=("finished", "done")).encode()):
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
