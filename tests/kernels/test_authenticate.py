"""Poly1305: the RFC's vectors, and the definition in whole numbers."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mlless_nb.kernels import poly1305
from mlless_nb.kernels.reference_frames import poly1305 as tag

FULL = b"\xff" * 16
ZERO = bytes(16)


# RFC 8439: section 2.5.2, and appendix A.3, vectors 1 and 7 to 11.
@pytest.mark.parametrize(
    ("message", "key", "due"),
    [
        (
            b"Cryptographic Forum Research Group",
            bytes.fromhex("85d6be7857556d337f4452fe42d506a80103808afb0db2fd4abff6af4149f51b"),
            bytes.fromhex("a8061dc1305136c6c22b8baf0c0127a9"),
        ),
        (bytes(64), bytes(32), ZERO),
        (FULL, b"\2" + bytes(31), b"\3" + bytes(15)),
        (b"\2" + bytes(15), b"\2" + bytes(15) + FULL, b"\3" + bytes(15)),
        (FULL + b"\xf0" + FULL[1:] + b"\x11" + bytes(15), b"\1" + bytes(31), b"\5" + bytes(15)),
        (FULL + b"\xfb" + b"\xfe" * 15 + b"\1" * 16, b"\1" + bytes(31), ZERO),
        (b"\xfd" + FULL[1:], b"\2" + bytes(31), b"\xfa" + FULL[1:]),
    ],
)
def test_vectors(message: bytes, key: bytes, due: bytes) -> None:
    assert poly1305(message, key) == due == tag(message, key)


@given(message=st.binary(max_size=300), key=st.binary(min_size=32, max_size=32))
@example(message=b"\xff" * 255, key=b"\xff" * 32)
@example(message=b"", key=b"\xff" * 32)
def test_it_is_what_the_definition_says(message: bytes, key: bytes) -> None:
    assert poly1305(message, key) == tag(message, key)
    assert poly1305(memoryview(b"before" + message + b"after")[6 : 6 + len(message)], key) == tag(message, key)


@pytest.mark.parametrize("n", [*range(20), 31, 32, 33, 63, 64, 65, 127, 128, 129, 1023, 4096])
@pytest.mark.parametrize("byte", [0, 1, 0xFF])
def test_lengths_and_extreme_bytes(n: int, byte: int) -> None:
    for key in (bytes([byte]) * 32, bytes(range(32)), b"\xff" * 32):
        assert poly1305(bytes([byte]) * n, key) == tag(bytes([byte]) * n, key)


@pytest.mark.parametrize("n", [0, 16, 31, 33])
def test_a_key_of_another_length_is_refused(n: int) -> None:
    with pytest.raises(ValueError, match=f"a key of {n} bytes: must have 32"):
        poly1305(b"", bytes(n))
