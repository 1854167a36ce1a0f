"""Bundles: many minibatches in one object, after an index of their sizes.

A request to an object storage has a fixed price, whatever its size. So minibatches are written in few large objects,
and read in runs, by byte ranges. Layout (little-endian)::

    magic b"MLLB"   version u8   3 zero bytes   first u64   count u64   n_told u64   sizes u64 (count,)
    crc32c u32 over everything before it   0 u32
    payload (n_told,), then zeros up to a multiple of 8 bytes
    count minibatches from number ``first`` on, as `encode_minibatch` wrote them, each up to a multiple of 8 bytes

The payload is the data's manifest in the last bundle, and empty in the others. Each minibatch has its own CRC32C.
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
#: Largest payload (a manifest), bytes: it is sent in a message, too.
MOST_TOLD = 1 << 20


def padded(n_bytes: int) -> int:
    """``n_bytes`` rounded up to a multiple of 8, so that arrays can be used without a copy."""
    return n_bytes + -n_bytes % 8


def index_bytes(count: int) -> int:
    """Size of the header and index of a bundle with ``count`` minibatches, bytes."""
    return _HEADER.size + 8 * count + _CRC.size


def encode_head(first: int, sizes: Sequence[int], told: bytes = b"") -> bytes:
    """The first part of a bundle: its index and its payload.

    Parameters
    ----------
    first : int
        Number of the first minibatch.
    sizes : sequence of int
        Size of each minibatch, bytes.
    told : bytes
        The payload, at most `MOST_TOLD` bytes.
    """
    index = _HEADER.pack(MAGIC, VERSION, first, len(sizes), len(told)) + np.asarray(sizes, "<u8").tobytes()
    return index + _CRC.pack(crc32c(index), 0) + told + bytes(-len(told) % 8)


@dataclass(frozen=True, eq=False)
class BundleIndex:
    """The positions of the minibatches in one bundle.

    Attributes
    ----------
    first : int
        Number of the first minibatch.
    n_told : int
        Size of the payload, bytes.
    begins, sizes : int64 (count,)
        Offset of each minibatch in the object, and its size, bytes.
    """

    first: int
    n_told: int
    begins: NDArray[np.int64]
    sizes: NDArray[np.int64]

    def span(self, first: int, end: int) -> tuple[int, int]:
        """The byte range [begin, end) of the minibatches numbered [first, end) in the object."""
        last = end - 1 - self.first
        return int(self.begins[first - self.first]), int(self.begins[last] + self.sizes[last])

    def part(self, blob: bytes, begin: int, number: int) -> memoryview:
        """Minibatch ``number`` in ``blob``, which was read from offset ``begin`` on."""
        at = int(self.begins[number - self.first]) - begin
        return memoryview(blob)[at : at + int(self.sizes[number - self.first])]


def decode_index(blob: bytes, most_bytes: int) -> BundleIndex:
    """The index at the beginning of ``blob``.

    Parameters
    ----------
    blob : bytes
        The beginning of a bundle, or the whole bundle.
    most_bytes : int
        Size of the largest minibatch that is valid.

    Raises
    ------
    DecodeError
        When any part of the index is invalid.
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
    """The byte range [begin, end) of a bundle's payload, from the header in ``blob``; DecodeError if it is invalid."""
    if len(blob) < _HEADER.size:
        raise DecodeError(f"a bundle of {len(blob)} bytes: must be at least {_HEADER.size}")
    magic, version, _, count, n_told = _HEADER.unpack_from(blob)
    if magic != MAGIC or version != VERSION or n_told > MOST_TOLD or count >= 2**40:
        raise DecodeError(f"not a bundle of version {VERSION}")
    return index_bytes(count), index_bytes(count) + n_told
