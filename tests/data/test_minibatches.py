"""The minibatch format: what was written comes back, and nothing else is accepted."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlless_nb.data.minibatches import (
    SHORT_IDS,
    CsrMinibatch,
    Minibatch,
    RatingsMinibatch,
    decode_minibatch,
    encode_minibatch,
)
from mlless_nb.errors import DecodeError
from mlless_nb.kernels import crc32c

N_IDS = 40


def int32(*values: int) -> np.ndarray[Any, Any]:
    return np.array(values, np.int32)


def float32(*values: float) -> np.ndarray[Any, Any]:
    return np.array(values, np.float32)


RATINGS = RatingsMinibatch(
    ids=int32(0, 3, 10, 39), user=int32(0, 0, 1), item=int32(2, 3, 2), rating=float32(1.0, 3.5, 5.0)
)
CSR = CsrMinibatch(
    ids=int32(2, 39),
    columns=int32(1),
    dense=float32(0.25, 0.0, -3.0)[None],
    indptr=int32(0, 2, 2, 3),
    indices=np.array([0, 1, 1], np.uint16),
    values=float32(0.5, -1.0, 2.0),
    labels=float32(1.0, 0.0, -2.5),
)
ONES = replace(CSR, columns=int32(), dense=np.empty((0, 3), np.float32), values=float32())
BARE = replace(ONES, ids=int32(), indptr=int32(0, 0, 0, 0), indices=np.empty(0, np.uint16))
EACH = pytest.mark.parametrize("minibatch", [RATINGS, CSR, ONES, BARE], ids=["ratings", "csr", "ones", "no features"])


def same(one: Minibatch, other: Minibatch) -> bool:
    return type(one) is type(other) and all(
        getattr(other, name).dtype == array.dtype and np.array_equal(getattr(other, name), array)
        for name, array in vars(one).items()
    )


@EACH
def test_what_was_encoded_comes_back(minibatch: Minibatch) -> None:
    decoded = decode_minibatch(encode_minibatch(minibatch), N_IDS)
    assert same(minibatch, decoded)
    assert decoded.n == 3


@st.composite
def minibatches(draw: st.DrawFn) -> tuple[Minibatch, int]:
    n_ids = draw(st.one_of(st.integers(2, 1000), st.just(SHORT_IDS), st.just(SHORT_IDS + 1)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n, is_ratings = draw(st.integers(1, 30)), draw(st.booleans())
    m = n_ids if n_ids >= SHORT_IDS else draw(st.integers(int(is_ratings), n_ids))
    ids = np.sort(rng.choice(n_ids, m, replace=False)).astype(np.int32)
    if is_ratings:
        user, item = rng.integers(0, m, (2, n)).astype(np.int32)
        return RatingsMinibatch(ids, user, item, rng.normal(size=n).astype(np.float32)), n_ids
    counts = rng.integers(0, 5, n) if m else np.zeros(n, int)
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    indices = rng.integers(0, max(m, 1), indptr[-1]).astype(np.uint16 if m <= SHORT_IDS else np.int32)
    columns = np.sort(rng.choice(m, rng.integers(0, min(m, 5) + 1), replace=False)).astype(np.int32)
    dense = rng.normal(size=(len(columns), n)).astype(np.float32)
    values = rng.normal(size=draw(st.sampled_from([0, len(indices)]))).astype(np.float32)
    labels = rng.normal(size=n).astype(np.float32)
    return CsrMinibatch(ids, columns, dense, indptr, indices, values, labels), n_ids


@given(minibatches())
def test_every_minibatch_comes_back(drawn: tuple[Minibatch, int]) -> None:
    minibatch, n_ids = drawn
    assert same(minibatch, decode_minibatch(encode_minibatch(minibatch), n_ids))


@EACH
def test_arrays_are_aligned_views_of_the_bytes(minibatch: Minibatch) -> None:
    decoded = decode_minibatch(encode_minibatch(minibatch), N_IDS)
    for array in vars(decoded).values():
        assert array.ctypes.data % 8 == 0
        assert not array.flags.owndata
        assert not array.flags.writeable


@EACH
def test_damaged_bytes_are_refused(minibatch: Minibatch) -> None:
    blob = encode_minibatch(minibatch)
    rng = np.random.default_rng(0)
    for _ in range(10_000):
        damaged = bytearray(blob)
        for _ in range(rng.integers(1, 4)):
            damaged[rng.integers(len(damaged))] = rng.integers(256)
        if damaged != blob:
            with pytest.raises(DecodeError):
                decode_minibatch(bytes(damaged), N_IDS)


@EACH
def test_bytes_cut_short_or_followed_by_more_are_refused(minibatch: Minibatch) -> None:
    blob = encode_minibatch(minibatch)
    for end in range(len(blob)):
        with pytest.raises(DecodeError):
            decode_minibatch(blob[:end], N_IDS)
    with pytest.raises(DecodeError):
        decode_minibatch(blob + bytes(8), N_IDS)


@EACH
def test_bytes_with_a_right_crc_are_checked_all_the_same(minibatch: Minibatch) -> None:
    """Whoever can write a CRC still cannot make an index leave its array."""
    body = encode_minibatch(minibatch)[:-4]
    rng = np.random.default_rng(1)
    for _ in range(5_000):
        forged = bytearray(body)
        at = 4 * rng.integers(len(forged) // 4)
        forged[at : at + 4] = struct.pack("<i", rng.choice([-(2**31), -1, 0, 1, 3, 40, 2**31 - 1]))
        try:
            decoded = decode_minibatch(bytes(forged) + struct.pack("<I", crc32c(bytes(forged))), N_IDS)
        except DecodeError:
            continue
        m = len(decoded.ids)
        assert not m or 0 <= decoded.ids.min() <= decoded.ids.max() < N_IDS
        is_ratings = isinstance(decoded, RatingsMinibatch)
        local = [decoded.user, decoded.item] if is_ratings else [decoded.columns, decoded.indices]
        assert all(not array.size or 0 <= array.min() <= array.max() < m for array in local)


@pytest.mark.parametrize(
    ("minibatch", "message"),
    [
        (replace(RATINGS, ids=int32(3, 0, 10, 39)), "sorted"),
        (replace(RATINGS, ids=int32(0, 3, 3, 39)), "unique"),
        (replace(RATINGS, ids=int32(0, 3, 10, 40)), "below 40"),
        (replace(RATINGS, ids=int32(-1, 3, 10, 39)), "ids -1"),
        (replace(RATINGS, user=int32(0, 0, 4)), "user 0..4: must be from 0 to 3"),
        (replace(RATINGS, item=int32(2, -1, 2)), "item -1..2"),
        (replace(RATINGS, rating=float32(1, np.nan, 5)), "finite"),
        (replace(CSR, ids=int32(2, 40)), "ids 2..40: must be sorted, unique and below 40"),
        (replace(BARE, indptr=int32(0, 1, 1, 1), indices=np.zeros(1, np.uint16)), "indices 0..0"),
        (replace(RATINGS, ids=int32()), "empty"),
        (replace(CSR, indptr=int32(0, 2, 1, 3)), "indptr"),
        (replace(CSR, indptr=int32(1, 2, 2, 3)), "indptr"),
        (replace(CSR, indptr=int32(0, 2, 2, 4)), "indptr"),
        (replace(CSR, indices=np.array([0, 1, 2], np.uint16)), "indices 0..2: must be from 0 to 1"),
        (replace(CSR, columns=int32(2)), "columns 2..2: must be from 0 to 1"),
        (replace(CSR, columns=int32(1, 0), dense=np.zeros((2, 3), np.float32)), "columns: must be sorted"),
        (replace(CSR, dense=float32(1, np.inf, 2)[None]), "dense: must be finite"),
        (replace(CSR, values=float32(0.5, np.inf, 2)), "finite"),
        (replace(CSR, labels=float32(1, 0, np.nan)), "labels: must be finite"),
    ],
)
def test_each_thing_that_is_wrong_is_named(minibatch: Minibatch, message: str) -> None:
    with pytest.raises(DecodeError, match=message):
        decode_minibatch(encode_minibatch(minibatch), N_IDS)


@pytest.mark.parametrize(
    ("minibatch", "at", "form", "value"),
    [
        (RATINGS, 6, "<H", 1),
        (RATINGS, 16, "<Q", 1),
        (RATINGS, 24, "<Q", 1),
        (CSR, 6, "<H", 2),
        (CSR, 6, "<H", 1),
        (CSR, 8, "<I", 2**32 - 1),
        (CSR, 12, "<I", 2**32 - 1),
        (CSR, 16, "<Q", 2**64 - 1),
        (CSR, 24, "<Q", 2**63),
        (ONES, 6, "<H", 0),
    ],
)
def test_forged_headers_are_refused(minibatch: Minibatch, at: int, form: str, value: int) -> None:
    forged = bytearray(encode_minibatch(minibatch)[:-4])
    struct.pack_into(form, forged, at, value)
    with pytest.raises(DecodeError):
        decode_minibatch(bytes(forged) + struct.pack("<I", crc32c(bytes(forged))), N_IDS)


def test_another_version_is_named() -> None:
    blob = bytearray(encode_minibatch(RATINGS))
    blob[4] = 9
    with pytest.raises(DecodeError, match="version 9"):
        decode_minibatch(bytes(blob), N_IDS)
