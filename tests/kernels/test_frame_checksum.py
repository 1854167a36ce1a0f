"""The checksum of frames: equal to the reference at every size, and no damage passes."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from mlless_nb import kernels
from mlless_nb.kernels import reference_frames as reference

SIZES = [64, 65, 96, 127, 128, 129, 191, 1023, 1024, 1025, 1088, 1151, 1152, 2111, 2112, 2113, 9000, 66_001]


def made(size: int) -> bytes:
    """Bytes that are as long as a frame of ``size``."""
    return np.random.default_rng(size).bytes(size)


@pytest.mark.parametrize("size", SIZES)
def test_it_equals_the_reference_at_any_address(size: int) -> None:
    frame = made(size)
    expected = reference.frame_checksum(frame)
    assert kernels.frame_checksum(frame) == expected
    for shift in (1, 3, 8):
        assert kernels.frame_checksum(memoryview(bytes(shift) + frame)[shift:]) == expected


@pytest.mark.parametrize("fill", [0, 255])
@pytest.mark.parametrize("size", SIZES)
def test_plain_bytes_equal_the_reference(size: int, fill: int) -> None:
    frame = bytes([fill]) * size
    assert kernels.frame_checksum(frame) == reference.frame_checksum(frame)


def test_its_own_place_does_not_count() -> None:
    frame = bytearray(made(500))
    before = kernels.frame_checksum(frame)
    frame[60:64] = b"else"
    assert kernels.frame_checksum(frame) == before


def test_it_is_that_of_a_frame() -> None:
    frame = kernels.encode_update(None, np.ones((7, 3), np.float32), 1, 0, 7, (0.0,) * 4)
    assert struct.unpack("<I", frame[60:64]) == (kernels.frame_checksum(frame),)


def test_a_frame_that_is_too_short_is_refused() -> None:
    with pytest.raises(ValueError, match="frame of 63 bytes: must be at least 64"):
        kernels.frame_checksum(bytes(63))


@pytest.mark.parametrize("frame", [made(64 + 2500), bytes(64 + 2500)], ids=["random", "zeros"])
def test_every_flipped_bit_is_noticed(frame: bytes) -> None:
    right, bad = kernels.frame_checksum(frame), bytearray(frame)
    for at in [*range(60), *range(64, len(frame))]:
        for bit in range(8):
            bad[at] ^= 1 << bit
            assert kernels.frame_checksum(bad) != right
            bad[at] ^= 1 << bit


def test_damage_of_other_kinds_is_noticed() -> None:
    """What servers and memory do: a stretch of zeros, of another place, two places changed for one another, a shift."""
    rng = np.random.default_rng(5)
    for _ in range(3000):
        size = int(rng.integers(200, 6000))
        frame = bytearray(rng.normal(size=size // 4 + 1).astype(np.float32).tobytes()[:size])
        right = kernels.frame_checksum(frame)
        n = int(rng.integers(1, 64))
        first, second = (int(at) for at in rng.integers(64, size - n, 2))
        bad = bytearray(frame)
        kind = rng.integers(4)
        if kind == 0:
            bad[first : first + n] = bytes(n)
        elif kind == 1:
            bad[first : first + n] = frame[second : second + n]
        elif kind == 2:
            bad[first : first + n], bad[second : second + n] = frame[second : second + n], frame[first : first + n]
        else:
            bad[64:] = frame[64 + n :] + frame[64 : 64 + n]
        assert (kernels.frame_checksum(bad) == right) == (bad == frame)
