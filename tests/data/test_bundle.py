"""The index of a bundle: what was written comes back, and nothing else is accepted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlless_nb.data.bundle import decode_index, encode_head, index_bytes, padded, told_span
from mlless_nb.errors import DecodeError

SIZES = st.lists(st.integers(1, 5000), min_size=1, max_size=60)


def bundle(first: int, parts: list[bytes], told: bytes) -> bytes:
    return encode_head(first, [len(part) for part in parts], told) + b"".join(
        part + bytes(padded(len(part)) - len(part)) for part in parts
    )


@given(first=st.integers(0, 2**40), sizes=SIZES, told=st.binary(max_size=100), data=st.data())
def test_every_minibatch_is_found_in_any_range(first: int, sizes: list[int], told: bytes, data: st.DataObject) -> None:
    parts = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
    blob = bundle(first, parts, told)
    index = decode_index(blob[: index_bytes(len(sizes))], 5000)
    assert (index.first, index.sizes.tolist(), index.n_told) == (first, sizes, len(told))
    assert not (index.begins % 8).any()
    begin, end = told_span(blob)
    assert blob[begin:end] == told
    low = data.draw(st.integers(0, len(sizes) - 1))
    high = data.draw(st.integers(low + 1, len(sizes)))
    begin, end = index.span(first + low, first + high)
    for number in range(low, high):
        assert index.part(blob[begin:end], begin, first + number) == parts[number]
        assert index.part(blob, 0, first + number) == parts[number]


def test_a_damaged_index_is_refused() -> None:
    blob = encode_head(7, [40, 1000, 24], b"told")[: index_bytes(3)]
    rng = np.random.default_rng(0)
    for _ in range(5_000):
        damaged = bytearray(blob)
        for _ in range(rng.integers(1, 4)):
            damaged[rng.integers(len(damaged))] = rng.integers(256)
        if damaged != blob:
            with pytest.raises(DecodeError):
                decode_index(bytes(damaged), 1000)
    for end in range(len(blob)):
        with pytest.raises(DecodeError):
            decode_index(blob[:end], 1000)


@pytest.mark.parametrize(
    ("sizes", "told", "message"),
    [
        ([40, 1001], b"", r"40\.\.1001 bytes: must be 1 to 1000"),
        ([40, 0], b"", "must be 1 to 1000"),
        ([2**63], b"", "must be 1 to 1000"),
        ([40], bytes((1 << 20) + 1), "tells 1048577 bytes"),
    ],
)
def test_an_index_that_makes_no_sense_is_refused_whatever_its_crc(sizes: list[int], told: bytes, message: str) -> None:
    with pytest.raises(DecodeError, match=message):
        decode_index(encode_head(0, sizes, told), 1000)


@pytest.mark.parametrize(
    "blob", [b"", b"MLLB", b"MLLM" + bytes(60), b"MLLB\x02" + bytes(60), b"MLLB\x01" + b"\xff" * 60]
)
def test_what_is_no_bundle_tells_nothing(blob: bytes) -> None:
    with pytest.raises(DecodeError):
        told_span(blob)
