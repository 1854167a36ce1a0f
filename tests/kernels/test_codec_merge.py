"""Sums of frames against plain NumPy, and updates without what was sent."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlless_nb import kernels
from mlless_nb.errors import DecodeError
from mlless_nb.kernels import reference_frames as reference

STATS = (1.5, 2.0, -0.25, 1e300)
KINDS = ["rows", "varint", "u32", "rowmask", "bits", "bf16", "int8", "whole"]


def part(rng: np.random.Generator, kind: str, first_row: int, end_row: int, n_rows: int, width: int) -> bytes:
    """A frame of that kind with some values in rows [first_row, end_row); "whole": every row of it."""
    if kind in ("rows", "whole"):
        chosen = rng.random(end_row - first_row) < (0.4 if kind == "rows" else 1.1)
        rows = (first_row + np.flatnonzero(chosen)).astype(np.int32)
        update = rng.normal(size=(len(rows), width)).astype(np.float32)
        return kernels.encode_update(None if len(rows) == n_rows else rows, update, 1, 0, n_rows, STATS)
    size = (end_row - first_row) * width
    positions = (first_row * width + np.flatnonzero(rng.random(size) < rng.random())).astype(np.uint32)
    values = rng.normal(size=len(positions)).astype(np.float32)
    values[rng.random(len(values)) < 0.1] = -0.0
    if kind in ("bf16", "int8"):
        left = np.zeros((n_rows, width), np.float32)
        return kernels.encode_sparse(positions, values, 1, 0, n_rows, width, STATS, "varint", kind, left)
    return kernels.encode_sparse(positions, values, 1, 0, n_rows, width, STATS, kind)


@given(
    n_rows=st.integers(1, 200),
    width=st.integers(1, 30) | st.sampled_from([64, 65, 130]),
    ends=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=8) | st.lists(st.just("rows"), min_size=1, max_size=8),
    seed=st.integers(0, 2**32 - 1),
)
def test_the_sum_is_that_of_the_reference(
    n_rows: int, width: int, ends: tuple[float, float], kinds: list[str], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    first_row, end_row = sorted(round(end * n_rows) for end in ends)
    frames = [part(rng, kind, first_row, end_row, n_rows, width) for kind in kinds]
    merged = kernels.merge_frames(frames, first_row, end_row, 7, 3, STATS)
    assert merged == reference.merge_frames(frames, first_row, end_row, 7, 3, STATS)
    assert merged == kernels.merge_frames(
        [memoryview(b"x" + each)[1:] for each in frames], first_row, end_row, 7, 3, STATS
    )
    header = kernels.read_header(merged)
    assert (header.step, header.slot, header.n_rows, header.width) == (7, 3, n_rows, width)
    assert header[-4:] == STATS


@given(kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=5), seed=st.integers(0, 2**32 - 1))
def test_adding_the_sums_of_all_ranges_is_adding_the_sum(kinds: list[str], seed: int) -> None:
    rng = np.random.default_rng(seed)
    n_rows, width, ends = 90, 7, [0, 30, 31, 90]
    start = rng.normal(size=(n_rows, width)).astype(np.float32)
    got, total, there = start.copy(), np.full((n_rows, width), -0.0, np.float32), np.zeros((n_rows, width), bool)
    for first_row, end_row in itertools.pairwise(ends):
        frames = [part(rng, kind, first_row, end_row, n_rows, width) for kind in kinds]
        for frame in frames:
            positions, values = kernels.decode_frame(frame)
            total.reshape(-1)[positions] += values
            there.reshape(-1)[positions] = True
        kernels.apply_frame(kernels.merge_frames(frames, first_row, end_row, 1, 0, STATS), got)
    assert got.tobytes() == np.where(there, start + total, start).tobytes()


@pytest.mark.parametrize("kind", ["rows", "varint", "u32", "rowmask", "bits", "whole"])
def test_the_sum_of_one_frame_has_its_values_to_the_bit(kind: str) -> None:
    frame = part(np.random.default_rng(1), kind, 3, 40, 50, 5)
    merged = kernels.merge_frames([frame], 3, 40, 1, 0, STATS)
    for mine, given_ in zip(kernels.decode_frame(merged), kernels.decode_frame(frame), strict=True):
        assert mine.tobytes() == given_.tobytes()


@pytest.mark.parametrize("kind", KINDS)
def test_a_frame_that_reaches_out_of_the_range_is_an_error(kind: str) -> None:
    rng = np.random.default_rng(2)
    frames = [part(rng, "rows", 12, 40, 50, 5), part(rng, kind, 3, 47, 50, 5)]
    positions = kernels.decode_frame(frames[1])[0]
    first_row, end_row = int(positions[0]) // 5, int(positions[-1]) // 5 + 1
    kernels.merge_frames(frames[1:], first_row, end_row, 1, 0, STATS)
    for first, end in ((first_row + 1, end_row), (first_row, end_row - 1)):
        with pytest.raises(DecodeError, match="reaches out"):
            kernels.merge_frames(frames[1:], first, end, 1, 0, STATS)
        with pytest.raises(DecodeError, match="reaches out"):
            kernels.merge_frames([*frames, *frames[:1]], max(first, 12), end, 1, 0, STATS)


def test_a_dense_frame_may_hold_zeros_out_of_the_range() -> None:
    positions, values = np.arange(10, 50, dtype=np.uint32), np.ones(40, np.float32)
    left = np.zeros((10, 5), np.float32)
    for codec in ("float32", "bf16", "int8"):
        frame = kernels.encode_sparse(positions, values.copy(), 1, 0, 10, 5, STATS, "dense", codec, left)
        merged = kernels.merge_frames([frame, frame], 2, 10, 1, 0, STATS)
        np.testing.assert_array_equal(kernels.decode_frame(merged)[0][-40:], positions)
        np.testing.assert_array_equal(kernels.decode_frame(merged)[1][-40:], 2 * values)
        for first_row, end_row in ((3, 10), (2, 9)):
            with pytest.raises(DecodeError, match="reaches out"):
                kernels.merge_frames([frame], first_row, end_row, 1, 0, STATS)


@given(
    n_rows=st.integers(1, 60),
    width=st.integers(1, 25),
    codecs=st.lists(st.sampled_from(["float32", "bf16", "int8"]), min_size=1, max_size=3),
    kinds=st.lists(st.sampled_from(KINDS), max_size=3),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_dense_frame_among_others_makes_the_whole_table_dense(
    n_rows: int, width: int, codecs: list[str], kinds: list[str], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    left, positions = np.zeros((n_rows, width), np.float32), np.arange(n_rows * width, dtype=np.uint32)
    frames = [part(rng, kind, 0, n_rows, n_rows, width) for kind in kinds]
    for codec in codecs:
        values = rng.normal(size=n_rows * width).astype(np.float32)
        frames.append(kernels.encode_sparse(positions, values, 1, 0, n_rows, width, STATS, "dense", codec, left))
    frames = [frames[k] for k in rng.permutation(len(frames))]
    merged = kernels.merge_frames(frames, 0, n_rows, 1, 0, STATS)
    assert kernels.read_header(merged).index_codec == "dense"
    assert merged == reference.merge_frames(frames, 0, n_rows, 1, 0, STATS)
    with pytest.raises(DecodeError, match="checksum"):
        kernels.merge_frames([*frames, frames[0][:-1] + bytes([frames[0][-1] ^ 1])], 0, n_rows, 1, 0, STATS)


def test_what_cannot_be_merged_is_an_error() -> None:
    rng = np.random.default_rng(3)
    frame = part(rng, "varint", 0, 50, 50, 5)
    with pytest.raises(DecodeError, match="50 x 5"):
        kernels.merge_frames([frame, part(rng, "varint", 0, 50, 50, 6)], 0, 50, 1, 0, STATS)
    with pytest.raises(DecodeError, match="checksum"):
        kernels.merge_frames([frame, frame[:-1] + bytes([frame[-1] ^ 1])], 0, 50, 1, 0, STATS)
    with pytest.raises(DecodeError, match="at least 64"):
        kernels.merge_frames([frame, b""], 0, 50, 1, 0, STATS)
    for frames, first_row, end_row, slot in (
        ([], 0, 50, 0),
        ([frame], 0, 51, 0),
        ([frame], -1, 5, 0),
        ([frame], 0, 50, -1),
    ):
        with pytest.raises(ValueError, match="must"):
            kernels.merge_frames(frames, first_row, end_row, 1, slot, STATS)


def test_of_10000_damaged_frames_none_is_merged() -> None:
    rng = np.random.default_rng(4)
    good = part(rng, "varint", 0, 40, 40, 5)
    frames = [part(rng, kind, 0, 40, 40, 5) for kind in KINDS]
    for k in range(10_000):
        bad = bytearray(frames[k % len(frames)])
        bad[int(rng.integers(len(bad)))] ^= 1 << int(rng.integers(8))
        with pytest.raises(DecodeError):
            kernels.merge_frames([good, bytes(bad)], 0, 40, 1, 0, STATS)


@given(
    n_rows=st.integers(1, 200),
    width=st.integers(1, 30),
    touched=st.none() | st.floats(0, 1),
    seed=st.integers(0, 2**32 - 1),
)
def test_withholding_takes_what_was_sent_out_of_the_update(
    n_rows: int, width: int, touched: float | None, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    rows = None if touched is None else np.flatnonzero(rng.random(n_rows) < touched).astype(np.int32)
    m = n_rows if rows is None else len(rows)
    update = rng.normal(size=(m, width)).astype(np.float32)
    sent = rng.random((m, width)) < rng.random()
    at, column = np.nonzero(sent)
    positions = ((at if rows is None else rows[at]) * width + column).astype(np.uint32)
    values, expected = update[sent], update.copy()
    reference.subtract_sent(rows, expected, positions, values)
    kernels.subtract_sent(rows, update, positions, values)
    assert update.tobytes() == expected.tobytes()
    assert not update[sent].any()


@pytest.mark.parametrize(
    ("positions", "words"),
    [([10, 10], "ascending"), ([11, 10], "ascending"), ([10, 15], "rows"), ([4, 10], "rows"), ([10], "lengths")],
)
def test_what_is_no_part_of_the_update_cannot_be_withheld(positions: list[int], words: str) -> None:
    update, values = np.ones((2, 5), np.float32), np.ones(2, np.float32)
    with pytest.raises(ValueError, match=words):
        kernels.subtract_sent(np.array([2, 4], np.int32), update, np.array(positions, np.uint32), values)
    assert (update == 1).all()
    with pytest.raises(ValueError, match="rows"):
        kernels.subtract_sent(None, update, np.array([1, 10], np.uint32), values)
    with pytest.raises(ValueError, match="lengths"):
        kernels.subtract_sent(np.array([2], np.int32), update, np.array([10, 11], np.uint32), values)
