"""Frames: round trips, the bytes of the reference, and 10^5 damaged ones."""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlless_nb import kernels
from mlless_nb.errors import DecodeError
from mlless_nb.kernels import reference_frames as reference

VALUE_CODECS = ["float32", "bf16", "int8"]
STATS = (1.5, 2.0, -0.25, 1e300)


def ids(rng: np.random.Generator, high: int, count: int) -> np.ndarray:
    """``count`` of ``high`` ids, ascending."""
    return np.sort(rng.choice(high, min(count, high), replace=False))


@given(
    n_rows=st.integers(1, 3000),
    width=st.integers(1, 30),
    count=st.integers(0, 500),
    index=st.sampled_from(["varint", "u32", "rowmask", "bits", "dense", "auto"]),
    codec=st.sampled_from(VALUE_CODECS),
    whole_rows=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_sparse_frames_round_trip(
    n_rows: int, width: int, count: int, index: str, codec: str, whole_rows: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    positions = ids(rng, n_rows * width, count).astype(np.uint32)
    if whole_rows:
        rows = ids(rng, n_rows, min(count, 50))
        positions = (rows[:, None] * width + np.arange(width)).astype(np.uint32).ravel()
    values = (rng.normal(size=len(positions)) * 10.0 ** rng.integers(-45, 38)).astype(np.float32)
    sent, same = values.copy(), values.copy()
    residual = np.ones((n_rows, width), np.float32)
    left = residual.copy()
    frame = kernels.encode_sparse(positions, sent, 7, 3, n_rows, width, STATS, index, codec, residual)
    assert frame == reference.encode_sparse(positions, same, 7, 3, n_rows, width, STATS, index, codec, left)
    assert sent.tobytes() == same.tobytes()
    assert residual.tobytes() == left.tobytes()
    if codec == "float32":
        assert sent.tobytes() == values.tobytes()
        assert (residual == 1).all()
    else:
        np.testing.assert_array_equal(sent + residual.reshape(-1)[positions], values)
    header = kernels.read_header(frame)
    assert header == reference.read_header(frame)
    assert (header.step, header.slot, header.n_rows, header.width) == (7, 3, n_rows, width)
    assert header[-4:] == STATS
    expected = np.zeros((n_rows, width), np.float32)
    expected.reshape(-1)[positions] = sent
    got = np.zeros((n_rows, width), np.float32)
    assert kernels.apply_frame(frame, got) == STATS
    np.testing.assert_array_equal(got, expected)
    decoded = kernels.decode_frame(frame)
    for mine, wanted in zip(decoded, reference.decode_frame(frame), strict=True):
        assert mine.tobytes() == wanted.tobytes()
    if header.index_codec != "dense":
        np.testing.assert_array_equal(decoded[0], positions)
        assert decoded[1].tobytes() == sent.tobytes()


@given(
    n_rows=st.integers(1, 3000),
    width=st.integers(1, 30),
    count=st.none() | st.integers(0, 100) | st.integers(0, 3000),
    seed=st.integers(0, 2**32 - 1),
)
def test_frames_of_rows_round_trip(n_rows: int, width: int, count: int | None, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = None if count is None else ids(rng, n_rows, count).astype(np.int32)
    update = rng.normal(size=(n_rows if rows is None else len(rows), width)).astype(np.float32)
    frame = kernels.encode_update(rows, update, 1, 65535, n_rows, STATS)
    assert frame == reference.encode_update(rows, update, 1, 65535, n_rows, STATS)
    start = rng.normal(size=(n_rows, width)).astype(np.float32)
    got, expected = start.copy(), start.copy()
    assert kernels.apply_frame(frame, got) == STATS
    kernels.apply_rows(expected, rows, update)
    assert got.tobytes() == expected.tobytes()
    positions, values = kernels.decode_frame(frame)
    start.reshape(-1)[positions] += values
    assert start.tobytes() == expected.tobytes()


def test_every_length_of_gap_round_trips() -> None:
    gaps = [0, 1, 127, 128, 16383, 16384, 2**21 - 1, 2**21, 2**28 - 1, 2**28, 2**31]
    positions = (np.cumsum(np.array(gaps, np.uint64) + 1) - 1).astype(np.uint32)
    values = np.arange(len(gaps), dtype=np.float32)
    frame = kernels.encode_sparse(positions, values, 1, 0, 65537, 65535, STATS, "varint")
    assert frame == reference.encode_sparse(positions, values, 1, 0, 65537, 65535, STATS, "varint")
    np.testing.assert_array_equal(kernels.decode_frame(frame)[0], positions)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("codec", VALUE_CODECS)
@pytest.mark.parametrize("index", ["varint", "dense"])
def test_what_is_not_finite_does_not_hide(bad: float, codec: str, index: str) -> None:
    values = np.ones(300, np.float32)
    values[150] = bad
    left = np.zeros((300, 1), np.float32)
    frame = kernels.encode_sparse(np.arange(300, dtype=np.uint32), values, 1, 0, 300, 1, STATS, index, codec, left)
    params = np.zeros((300, 1), np.float32)
    kernels.apply_frame(frame, params)
    assert not np.isfinite(params[150, 0])
    assert (params[:128] == 1).all()
    assert (params[256:] == 1).all()


def test_auto_takes_the_smallest() -> None:
    values = np.ones(90, np.float32)
    dense = kernels.encode_sparse(np.arange(90, dtype=np.uint32), values, 1, 0, 92, 1, STATS)
    assert kernels.read_header(dense).index_codec == "dense"
    close = kernels.encode_sparse(np.arange(90, dtype=np.uint32) * 2, values, 1, 0, 700, 1, STATS)
    assert kernels.read_header(close).index_codec == "bits"
    assert kernels.encode_update(np.arange(90, dtype=np.int32) * 2, values[:, None], 1, 0, 700, STATS) == close
    near = kernels.encode_sparse(np.arange(90, dtype=np.uint32) * 2, values, 1, 0, 1000, 1, STATS)
    assert kernels.read_header(near).index_codec == "varint"
    rng = np.random.default_rng(4)
    some = np.flatnonzero((rng.random((2000, 21)) < 0.5) & (rng.random((2000, 1)) < 0.1)).astype(np.uint32)
    masked = kernels.encode_sparse(some, np.ones(len(some), np.float32), 1, 0, 2000, 21, STATS)
    assert kernels.read_header(masked).index_codec == "rowmask"
    rows = kernels.encode_sparse(np.arange(42, 63, dtype=np.uint32), values[:21], 1, 0, 2000, 21, STATS)
    assert kernels.read_header(rows).index_codec == "rows"
    far = kernels.encode_sparse(np.arange(6, dtype=np.uint32) * 2**29, values[:6], 1, 0, 2**16, 2**16 - 1, STATS)
    assert kernels.read_header(far).index_codec == "u32"


def test_a_frame_may_start_anywhere_in_a_buffer() -> None:
    rng = np.random.default_rng(5)
    for frame in samples():
        start = rng.normal(size=(40, 5)).astype(np.float32)
        expected = start.copy()
        reference.apply_frame(frame, expected)
        for offset in range(9):
            view = memoryview(b"x" * offset + frame)[offset:]
            params = start.copy()
            assert kernels.apply_frame(view, params) == kernels.read_header(view)[-4:]
            assert params.tobytes() == expected.tobytes()
            assert kernels.decode_frame(view)[0].tobytes() == kernels.decode_frame(frame)[0].tobytes()
            assert kernels.merge_frames([view], 0, 40, 1, 0, STATS) == kernels.merge_frames([frame], 0, 40, 1, 0, STATS)


@pytest.mark.parametrize("add", [True, False])
def test_rows_of_the_table_may_be_spaced(add: bool) -> None:
    rng = np.random.default_rng(6)
    for frame in samples():
        block = rng.normal(size=(40, 17)).astype(np.float32)
        expected = block.copy()
        reference.apply_frame(frame, expected[:, 5:10], add=add)
        assert kernels.apply_frame(frame, block[:, 5:10], add=add) == kernels.read_header(frame)[-4:]
        assert block.tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    ("params", "why"),
    [
        (np.zeros((40, 10), np.float32)[:, ::2], "contiguous"),
        (np.zeros((40, 5), np.float32)[::-1], "rows of params are -20 bytes apart"),
    ],
)
def test_values_of_a_row_must_be_neighbours(params: np.ndarray, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        kernels.apply_frame(samples()[0], params)


def test_a_value_that_no_position_asks_for_keeps_its_bits() -> None:
    frame = kernels.encode_sparse(np.array([1], np.uint32), np.ones(1, np.float32), 1, 0, 3, 1, STATS, "dense")
    params = np.full((3, 1), -0.0, np.float32)
    kernels.apply_frame(frame, params)
    assert np.signbit(params[:, 0]).tolist() == [True, False, True]


@pytest.mark.parametrize("data", [b"", b"a", b"123456789", bytes(range(256)) * 100, b"\0" * 6144, b"\xff" * 12301])
def test_crc32c_equals_the_reference(data: bytes) -> None:
    assert kernels.crc32c(data) == reference.crc32c(data)


def test_crc32c_check_value() -> None:
    # RFC 3720, B.4, and the usual check value of the polynomial.
    assert kernels.crc32c(b"123456789") == 0xE3069283
    assert kernels.crc32c(b"\0" * 32) == 0x8A9136AA
    assert kernels.crc32c(b"\xff" * 32) == 0x62A8AB43


def samples() -> list[bytes]:
    """A frame of each index codec and each value codec, of a table of 40 x 5."""
    rng = np.random.default_rng(1)
    positions = ids(rng, 200, 30).astype(np.uint32)
    values = rng.normal(size=30).astype(np.float32)
    rows, update = ids(rng, 40, 9).astype(np.int32), rng.normal(size=(9, 5)).astype(np.float32)
    table = rng.normal(size=(40, 5)).astype(np.float32)
    whole = (rows.astype(np.uint32)[:, None] * 5 + np.arange(5, dtype=np.uint32)).ravel()
    frames = [
        kernels.encode_update(rows, update, 7, 3, 40, STATS),
        kernels.encode_update(None, table, 7, 3, 40, STATS),
        kernels.encode_sparse(positions[:0], values[:0], 7, 3, 40, 5, STATS),
    ]
    for codec in VALUE_CODECS:
        left = np.zeros((40, 5), np.float32)
        for index in ("varint", "u32", "rowmask", "bits", "dense"):
            frames.append(kernels.encode_sparse(positions, values.copy(), 7, 3, 40, 5, STATS, index, codec, left))
        frames.append(kernels.encode_sparse(whole, update.ravel().copy(), 7, 3, 40, 5, STATS, "auto", codec, left))
        assert kernels.read_header(frames[-1]).index_codec == "rows"
    return frames


def damaged(frame: bytes, rng: np.random.Generator) -> bytes:
    """The frame with some bits flipped, bytes overwritten, a piece cut out or bytes added."""
    out = bytearray(frame)
    kind = rng.integers(5)
    at = int(rng.integers(len(out)))
    if kind == 0:
        out[at] ^= 1 << int(rng.integers(8))
    elif kind == 1:
        for place in rng.integers(0, len(out), int(rng.integers(1, 9))):
            out[place] = int(rng.integers(256))
    elif kind == 2:
        del out[at : at + int(rng.integers(1, 9))]
    elif kind == 3:
        out[at:at] = rng.bytes(int(rng.integers(1, 9)))
    else:
        out[at : at + 4] = struct.pack("<I", int(rng.choice([0, 1, 2**31, 2**32 - 1])))
    return bytes(out)


def is_refused(call: Callable[..., object], *arguments: object) -> bool:
    """Whether a call ends with a `DecodeError`, as ``pytest.raises`` tells ten times as slowly."""
    try:
        call(*arguments)
    except DecodeError:
        return True
    return False


def test_of_100000_damaged_frames_none_is_accepted() -> None:
    rng = np.random.default_rng(2)
    frames = samples()
    params = np.zeros((40, 5), np.float32)
    n_same = 0
    for k in range(100_000):
        frame = frames[k % len(frames)]
        bad = damaged(frame, rng)
        if bad == frame:
            n_same += 1
            continue
        assert is_refused(kernels.apply_frame, bad, params)
    assert not params.any()
    assert n_same < 5000


def test_damage_under_a_right_checksum_is_judged_as_the_reference_does() -> None:
    rng = np.random.default_rng(3)
    frames = samples()
    padded = np.zeros((44, 5), np.float32)
    n_valid = 0
    for k in range(20_000):
        bad = bytearray(damaged(frames[k % len(frames)], rng))
        if len(bad) >= 64:
            bad[60:64] = struct.pack("<I", reference.frame_checksum(bad))
        bad = bytes(bad)
        params = padded[2:42]
        try:
            expected = reference.decode_frame(bad)
        except DecodeError:
            assert is_refused(kernels.decode_frame, bad)
            assert is_refused(kernels.apply_frame, bad, params)
            assert not params.any()
            continue
        n_valid += 1
        for mine, wanted in zip(kernels.decode_frame(bad), expected, strict=True):
            np.testing.assert_array_equal(mine, wanted)
        header = kernels.read_header(bad)
        if (header.n_rows, header.width) == (40, 5):
            np.testing.assert_array_equal(kernels.apply_frame(bad, params), header[-4:])
            assert not padded[:2].any()
            assert not padded[42:].any()
            params[:] = 0
        else:
            assert is_refused(kernels.apply_frame, bad, params)
    assert n_valid > 1000


@pytest.mark.parametrize("size", [0, 3, 63])
def test_a_frame_that_is_too_short_is_an_error(size: int) -> None:
    with pytest.raises(DecodeError, match="at least 64"):
        kernels.read_header(samples()[0][:size])


def test_a_frame_for_another_table_is_an_error() -> None:
    with pytest.raises(DecodeError, match="40 x 5"):
        kernels.apply_frame(samples()[0], np.zeros((5, 40), np.float32))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"positions": np.array([1, 1], np.uint32)}, "ascending"),
        ({"positions": np.array([1, 50], np.uint32)}, "ascending"),
        ({"positions": np.array([1], np.uint32)}, "lengths"),
        ({"step": -1}, "step=-1"),
        ({"step": 2**32}, "step="),
        ({"slot": 2**16}, "slot=65536"),
        ({"width": 2**16}, "width=65536"),
        ({"index": "zip"}, "index='zip'"),
        ({"codec": "f32"}, "codec='f32'"),
        ({"codec": "bf16"}, "residual"),
        ({"codec": "int8", "residual": np.zeros((5, 10), np.float32)}, "residual has shape"),
        ({"codec": "int8", "residual": np.zeros((10, 10), np.float32)[:, ::2]}, "contiguous"),
    ],
)
def test_what_cannot_be_encoded_is_an_error(change: dict[str, object], words: str) -> None:
    fields: dict[str, object] = {
        "positions": np.array([1, 2], np.uint32),
        "values": np.ones(2, np.float32),
        "step": 1,
        "slot": 0,
        "n_rows": 10,
        "width": 5,
        "stats": STATS,
    }
    with pytest.raises(ValueError, match=words):
        kernels.encode_sparse(**{**fields, **change})  # type: ignore[arg-type]


@pytest.mark.parametrize("beyond", range(10))
def test_gaps_that_leave_the_table_are_an_error_where_positions_would_start_again(beyond: int) -> None:
    high = 2**32 - 1
    at = [high - 11 + beyond + k for k in range(11)]
    index = reference._varints(at)
    frame = reference._frame("varint", "float32", np.ones(11, np.float32), index, 1, 0, high, 1, STATS)
    if beyond == 0:
        assert kernels.decode_frame(frame)[0].tolist() == at
    else:
        with pytest.raises(DecodeError, match="indices"):
            kernels.decode_frame(frame)


@given(gaps=st.lists(st.integers(0, 127) | st.integers(0, 2**15), max_size=60))
def test_gaps_of_one_byte_and_of_more_are_told_apart(gaps: list[int]) -> None:
    positions = (np.cumsum(np.array(gaps, np.int64) + 1) - 1).astype(np.uint32)
    frame = kernels.encode_sparse(positions, np.ones(len(gaps), np.float32), 1, 0, 2**22, 1, STATS, "varint")
    assert kernels.decode_frame(frame)[0].tolist() == positions.tolist()


@given(
    gaps=st.lists(st.integers(0, 127) | st.integers(0, 2**15), min_size=1, max_size=60),
    harm=st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 255)), max_size=2),
    n_more=st.integers(-1, 1),
    room=st.integers(-1, 1),
)
def test_a_damaged_section_of_gaps_is_read_as_the_reference_reads_it(
    gaps: list[int], harm: list[tuple[int, int]], n_more: int, room: int
) -> None:
    index = bytearray(reference._varints((np.cumsum(np.array(gaps) + 1) - 1).tolist()))
    for at, byte in harm:
        index[at % len(index)] = byte
    values = np.ones(len(gaps) + n_more, np.float32)
    high = max(sum(gaps) + len(gaps) + room, len(values))
    frame = reference._frame("varint", "float32", values, bytes(index), 1, 0, high, 1, STATS)
    try:
        expected = reference.decode_frame(frame)[0].tolist()
    except DecodeError:
        with pytest.raises(DecodeError):
            kernels.decode_frame(frame)
    else:
        assert kernels.decode_frame(frame)[0].tolist() == expected
