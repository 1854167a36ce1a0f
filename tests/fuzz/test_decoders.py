"""Fuzzing of every decoder: no crash, no wrong accept, no error but the named ones, and memory that input bounds."""

from __future__ import annotations

import os
import resource
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from fuzz.decoders import DECODERS, Decoder
from hypothesis import given, settings
from hypothesis import strategies as st

NASTY = sorted(Path(__file__).with_name("corpus").glob("*/*"))
#: Numbers that decoders trip over.
EXTREME = [0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1]
#: Bytes of memory that a decoder may take for each byte of its input, and beside them.
PER_BYTE, BESIDE = 200, 40 << 20
#: Inputs of a long test; `MLLESS_FUZZ=100000 make test-long` takes an hour.
N_LONG = int(os.environ.get("MLLESS_FUZZ", "10000"))


def damaged(rng: np.random.Generator, valid: list[bytes]) -> bytes:
    """A valid input with one to four changes."""
    body = bytearray(valid[rng.integers(len(valid))])
    for _ in range(rng.integers(1, 5)):
        at = int(rng.integers(len(body) + 1))
        match int(rng.integers(7)):
            case 0 if body:
                body[at % len(body)] ^= 1 << int(rng.integers(8))
            case 1:
                size = int(rng.choice([1, 2, 4, 8]))
                body[at : at + size] = (EXTREME[rng.integers(len(EXTREME))] % 256**size).to_bytes(size, "little")
            case 2:
                del body[at:]
            case 3:
                del body[at : at + int(rng.integers(1, 9))]
            case 4:
                body[at:at] = rng.bytes(int(rng.integers(1, 9)))
            case 5:
                other = valid[rng.integers(len(valid))]
                body[at:] = other[int(rng.integers(len(other) + 1)) :]
            case _:
                word = rng.choice(
                    [b"9" * 30, b"[" * 50, b"null", b"-1", b"1e999", b"NaN", b'"', b"{}", b"\\ud800", b"\x80\x02"]
                )
                body[at:at] = bytes(word)
    return bytes(body)


def check(decoder: Decoder, body: bytes) -> bool:
    """Decode ``body``; returns whether it was accepted, and only what is as it was encoded may be."""
    try:
        found = decoder.decode(body)
    except decoder.errors:
        return False
    assert not decoder.is_checked or body in decoder.valid or decoder.seal is not None
    if decoder.encode is not None:
        assert decoder.encode(found) == body
    return True


@pytest.mark.parametrize("name", DECODERS)
def test_valid_input_is_accepted(name: str) -> None:
    decoder = DECODERS[name]
    assert all(check(decoder, body) for body in decoder.valid)
    if decoder.seal is not None:
        assert [decoder.seal(body) for body in decoder.valid] == decoder.valid


@pytest.mark.parametrize("name", DECODERS)
def test_damaged_input_is_refused_or_read_in_bounded_memory(name: str) -> None:
    _fuzz(name, 300, seed=0)


@pytest.mark.long
@pytest.mark.parametrize("name", DECODERS)
def test_very_much_damaged_input_is_refused_or_read_in_bounded_memory(name: str) -> None:
    n = N_LONG if not name.endswith(("model", "lines", "rows_file")) else N_LONG // 10
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    _fuzz(name, 10 * n if name == "frame" else n, seed=1)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 << 10


def _fuzz(name: str, n: int, seed: int) -> None:
    decoder, rng = DECODERS[name], np.random.default_rng(seed)
    for _ in range(n):
        body = damaged(rng, decoder.valid)
        is_accepted = check(decoder, body)
        # Where any change is noticed, none is accepted; then once more with the right checksum.
        assert not (decoder.is_checked and is_accepted and body not in decoder.valid), body
        if decoder.seal is not None:
            check(decoder, decoder.seal(body))


@pytest.mark.parametrize("name", DECODERS)
@settings(max_examples=60)
@given(body=st.binary(max_size=400))
def test_any_bytes_are_refused_or_read(name: str, body: bytes) -> None:
    check(DECODERS[name], body)


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("message", b'{"kind":"Started","slot":1,"start_s":1' + b" " * (1 << 20) + b"}"),
        ("plan", b'{"version":1}' + b" " * (2 << 20)),
        ("reply", b"+" + b"x" * (3 << 20)),
        ("reply", b"*1\r\n" * 1_000_000),
    ],
    ids=["message", "plan", "line", "lists"],
)
def test_what_is_too_long_is_refused(name: str, body: bytes) -> None:
    assert not check(DECODERS[name], body)


def test_a_long_line_of_a_record_ends_it() -> None:
    assert DECODERS["lines"].decode(b'[1]\n"' + b"x" * (2 << 20) + b'"\n[2]\n') == [[1]]


@pytest.mark.parametrize(
    ("name", "body"),
    [
        *(pytest.param(path.parent.name, path.read_bytes(), id=f"{path.parent.name}-{path.name}") for path in NASTY),
        *(
            pytest.param("reply", 20_000 * (head + b"\r\n"), id=f"reply-deep_{kind}")
            for kind, head in {"lists": b"*1", "pushes": b">0", "attributes": b"|0"}.items()
        ),
    ],
)
def test_nasty_input_is_refused_in_bounded_memory(name: str, body: bytes) -> None:
    """Each was accepted, crashed a decoder or took much memory once, or would in a decoder that is less careful."""
    decoder = DECODERS[name]
    tracemalloc.start()
    try:
        is_accepted = check(decoder, body)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert not is_accepted or name in ("lines", "rows_file")
    assert most < PER_BYTE * len(body) + BESIDE
