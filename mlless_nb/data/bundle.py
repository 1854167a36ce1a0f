"""Bundles: many minibatches, one after another, in one object, behind an index of their sizes.

A request to an object storage is priced by itself, however much it moves: so minibatches are written in few large
objects, and read in runs of them, by ranges. Layout (little-endian)::

    magic b"MLLB"   version u8   3 zero bytes   first u64   count u64   n_told u64   sizes u64 (count,)
    crc32c u32 over everything before it   0 u32
    what is told (n_told,), then zeros up to a multiple of 8 bytes
    count minibatches from number ``first`` on, as `encode_minibatch` wrote them, each up to a multiple of 8 bytes

What is told is the data's manifest, in its last bundle. A minibatch has a CRC32C of its own.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..errors import DecodeError
from ..kernels import crc32c

MAGIC = b"MLLB"
VERSION = 1
_HEADER = struct.Struct("<4sB3xQQQ")
_CRC = struct.Struct("<II")
#: Bytes of a manifest at most: it travels in a message, too.
MOST_TOLD = 1 << 20


def padded(n_bytes: int) -> int:
    """``n_bytes`` up to a multiple of 8, so that arrays can be used where they lie."""
    return n_bytes + -n_bytes % 8


def index_bytes(count: int) -> int:
    """Bytes of the index of ``count`` minibatches: what has to be read of a bundle to find them."""
    return _HEADER.size + 8 * count + _CRC.size


def encode_head(first: int, sizes: Sequence[int], told: bytes = b"") -> bytes:
    """What a bundle begins with: its index, and what is told.

    Parameters
    ----------
    first : int
        Number of the first minibatch.
    sizes : sequence of int
        Bytes of each minibatch.
    told : bytes
        At most `MOST_TOLD`.
    """
    index = _HEADER.pack(MAGIC, VERSION, first, len(sizes), len(told)) + np.asarray(sizes, "<u8").tobytes()
    return index + _CRC.pack(crc32c(index), 0) + told + bytes(-len(told) % 8)


@dataclass(frozen=True, eq=False)
class BundleIndex:
    """Where the minibatches of one bundle lie.

    Attributes
    ----------
    first : int
        Number of the first one.
    n_told : int
        Bytes of what is told.
    begins, sizes : int64 (count,)
        Where each begins in the object, and its bytes.
    """

    first: int
    n_told: int
    begins: NDArray[np.int64]
    sizes: NDArray[np.int64]

    def span(self, first: int, end: int) -> tuple[int, int]:
        """Where the minibatches numbered [first, end) begin and end in the object, bytes."""
        last = end - 1 - self.first
        return int(self.begins[first - self.first]), int(self.begins[last] + self.sizes[last])

    def part(self, blob: bytes, begin: int, number: int) -> memoryview:
        """Minibatch ``number`` in ``blob``, which was read from the place ``begin`` on."""
        at = int(self.begins[number - self.first]) - begin
        return memoryview(blob)[at : at + int(self.sizes[number - self.first])]


def decode_index(blob: bytes, most_bytes: int) -> BundleIndex:
    """The index that ``blob`` begins with.

    Parameters
    ----------
    blob : bytes
        The beginning of a bundle, or all of it.
    most_bytes : int
        The largest minibatch that is to be expected.

    Raises
    ------
    DecodeError
        When anything is not as it should be.
    """
    if len(blob) < index_bytes(0):
        raise DecodeError(f"a bundle of {len(blob)} bytes: must be at least {index_bytes(0)}")
    magic, version, first, count, n_told = _HEADER.unpack_from(blob)
    if magic != MAGIC or any(blob[5:8]):
        raise DecodeError(f"not a bundle of minibatches: begins with {bytes(blob[:8])!r}")
    if version != VERSION:
        raise DecodeError(f"bundle version {version}: this mlless_nb reads version {VERSION}")
    if not 0 < count <= (len(blob) - index_bytes(0)) // 8:
        raise DecodeError(f"a bundle of {count} minibatches in {len(blob)} bytes")
    end = index_bytes(count)
    crc, zero = _CRC.unpack_from(blob, end - _CRC.size)
    if crc32c(memoryview(blob)[: end - _CRC.size]) != crc or zero:
        raise DecodeError("a bundle's index with a wrong CRC32C: its bytes were damaged")
    if n_told > MOST_TOLD or first >= 2**62:
        raise DecodeError(f"a bundle that begins with minibatch {first} and tells {n_told} bytes")
    sizes = np.frombuffer(blob, "<u8", count, _HEADER.size)
    if not 0 < int(sizes.min()) <= int(sizes.max()) <= most_bytes:
        raise DecodeError(f"a bundle with minibatches of {sizes.min()}..{sizes.max()} bytes: must be 1 to {most_bytes}")
    ends = np.cumsum(padded(sizes.astype(np.int64)))  # type: ignore[arg-type]
    begins = end + padded(n_told) + np.append(0, ends[:-1])
    return BundleIndex(first, n_told, begins, sizes.astype(np.int64))


def told_span(blob: bytes) -> tuple[int, int]:
    """Where what a bundle tells begins and ends, bytes, by the header that ``blob`` begins with; it may be anything."""
    if len(blob) < _HEADER.size:
        raise DecodeError(f"a bundle of {len(blob)} bytes: must be at least {_HEADER.size}")
    magic, version, _, count, n_told = _HEADER.unpack_from(blob)
    if magic != MAGIC or version != VERSION or n_told > MOST_TOLD or count >= 2**40:
        raise DecodeError(f"not a bundle of version {VERSION}")
    return index_bytes(count), index_bytes(count) + n_told
