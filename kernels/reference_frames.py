"""The functions of frames in plain, readable NumPy, for the tests to compare with; not for training.

Each has the name and arguments of the compiled one, and bit-identical effects. The layout is in ``frame_header.py``.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mlless_nb.errors import DecodeError

from .frame_header import INDEX_CODECS, VALUE_CODECS, FrameHeader

Float32 = NDArray[np.float32]
Int32 = NDArray[np.int32]
UInt32 = NDArray[np.uint32]

HEADER = struct.Struct("<4sBBBBIHHIIIddddI")
BLOCK = 128  # values with a common scale
FACTOR = 0x9E3779B97F4A7C15

_CRC_TABLE: list[int] = []
for _crc in range(256):
    for _ in range(8):
        _crc = (_crc >> 1) ^ 0x82F63B78 if _crc & 1 else _crc >> 1
    _CRC_TABLE.append(_crc)


def crc32c(data: bytes | memoryview) -> int:
    """CRC32C (Castagnoli)."""
    crc = 0xFFFFFFFF
    for byte in bytes(data):
        crc = _CRC_TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def _split_mix(number: int) -> int:
    mixed = number * FACTOR % 2**64
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB % 2**64
    return mixed ^ mixed >> 31


_KEY = [_split_mix(number) >> 32 for number in range(1, 257)]


def _nh(block: bytes) -> int:
    words: tuple[int, ...] = struct.unpack(f"<{len(block) // 4}I", block)
    keyed = [(word + key) % 2**32 for word, key in zip(words, _KEY, strict=False)]
    return sum(first * second for first, second in zip(keyed[::2], keyed[1::2], strict=True)) % 2**64


def frame_checksum(frame: bytes | memoryview) -> int:
    """The checksum of a frame: NH of its header and of each block, see ``frame_checksum.h``."""
    head, body = bytes(frame[: HEADER.size - 4]) + bytes(4), bytes(frame[HEADER.size :])
    total = _nh(head)
    for at in range(0, len(body), 1024):
        block = body[at : at + 1024]
        total = (total * FACTOR + _nh(block + bytes(-len(block) % 64))) % 2**64
    return ((total ^ total >> 32) * FACTOR % 2**64) >> 32


def _varint(gap: int) -> bytes:
    out = bytearray()
    while gap >= 128:
        out.append(gap & 127 | 128)
        gap >>= 7
    return bytes(out) + bytes([gap])


def _varints(ids: Sequence[int]) -> bytes:
    return b"".join(_varint(each - before - 1) for before, each in itertools.pairwise([-1, *ids]))


def _rowmasks(positions: Sequence[int], width: int) -> bytes:
    out, before = b"", -1
    for row, each in itertools.groupby(positions, lambda position: position // width):
        mask = sum(1 << position % width for position in each)
        out += _varint(row - before - 1) + mask.to_bytes((width + 7) // 8, "little")
        before = row
    return out


def _bits(positions: Sequence[int], size: int) -> bytes:
    return sum(1 << position for position in positions).to_bytes((size + 7) // 8, "little")


def _pack(codec: str, values: Float32) -> bytes:
    if codec == "float32":
        return values.astype("<f4").tobytes()
    if codec == "bf16":
        bits = values.view(np.uint32).astype(np.uint64)
        rounded = (bits + 0x7FFF + (bits >> np.uint64(16) & np.uint64(1))) >> np.uint64(16)
        return np.where(np.isnan(values), bits >> np.uint64(16) | np.uint64(0x40), rounded).astype("<u2").tobytes()
    out = b""
    for start in range(0, len(values), BLOCK):
        block = values[start : start + BLOCK]
        scale = np.float32(np.abs(block).max() / np.float32(127) if np.isfinite(block).all() else np.nan)
        levels = np.zeros(len(block), np.int8)
        if scale > 0:
            levels = np.clip(np.rint(block / scale), -127, 127).astype(np.int8)
        out += scale.tobytes() + levels.tobytes()
    return out


def _size(codec: str, count: int) -> int:
    return {"float32": 4 * count, "bf16": 2 * count, "int8": count + 4 * -(-count // BLOCK)}[codec]


def _unpack(codec: str, packed: bytes, count: int) -> tuple[Float32, bytes]:
    """The values, and the bytes after them."""
    size = _size(codec, count)
    if len(packed) < size:
        raise DecodeError("frame's values are cut off")
    packed, rest = packed[:size], packed[size:]
    if codec == "float32":
        return np.frombuffer(packed, "<f4").copy(), rest
    if codec == "bf16":
        return (np.frombuffer(packed, "<u2").astype(np.uint32) << np.uint32(16)).view(np.float32), rest
    blocks = [packed[start : start + BLOCK + 4] for start in range(0, size, BLOCK + 4)]
    with np.errstate(invalid="ignore", over="ignore"):
        values = [np.frombuffer(b[4:], np.int8).astype(np.float32) * np.frombuffer(b[:4], "<f4") for b in blocks]
    return np.concatenate([np.empty(0, np.float32), *values]), rest


def _frame(
    index_codec: str,
    codec: str,
    values: Float32,
    index: bytes,
    step: int,
    slot: int,
    n_rows: int,
    width: int,
    stats: Sequence[float],
) -> bytes:
    body = _pack(codec, values.ravel()) + index
    codecs = INDEX_CODECS.index(index_codec), VALUE_CODECS.index(codec)
    head = HEADER.pack(b"MLLF", 3, *codecs, 0, step, slot, width, n_rows, values.size, len(body), *stats, 0)
    return head[:-4] + struct.pack("<I", frame_checksum(head + body)) + body


def encode_update(
    rows: Int32 | None, update: Float32, step: int, slot: int, n_rows: int, stats: Sequence[float]
) -> bytes:
    """Whole rows: dense if rows is None, else values and varint row ids, or bits if these are smaller."""
    if rows is None:
        return _frame("dense", "float32", update, b"", step, slot, n_rows, update.shape[1], stats)
    codec, index = "rows", _varints(rows.tolist())
    if update.shape[1] == 1 and (n_rows + 7) // 8 < len(index):
        codec, index = "bits", _bits(rows.tolist(), n_rows)
    return _frame(codec, "float32", update, index, step, slot, n_rows, update.shape[1], stats)


def _sections(at: Sequence[int], n_rows: int, width: int, index: str) -> dict[str, bytes]:
    """The section of positions in codec ``index``, or for "auto" in each one that may be the smallest."""
    sections, rows = {}, sorted({position // width for position in at}) if width else []
    if index in ("varint", "auto"):
        sections["varint"] = _varints(at)
    if index in ("u32", "auto"):
        sections["u32"] = struct.pack(f"<{len(at)}I", *at)
    if index in ("rowmask", "auto") and width:
        sections["rowmask"] = _rowmasks(at, width)
    if index == "auto" and width and [row * width + column for row in rows for column in range(width)] == at:
        sections["rows"] = _varints(rows)
    if index == "bits" or (index == "auto" and (width == 1 or "rows" not in sections)):
        sections["bits"] = _bits(at, n_rows * width)
    return sections


def encode_sparse(
    positions: UInt32,
    values: Float32,
    step: int,
    slot: int,
    n_rows: int,
    width: int,
    stats: Sequence[float],
    index: str = "auto",
    codec: str = "float32",
    residual: Float32 | None = None,
) -> bytes:
    """Values and their positions; "auto" takes the smallest codec. The rounding error goes to the residual."""
    at = positions.tolist()
    sections = {} if index == "dense" else _sections(at, n_rows, width, index)
    if index == "auto":
        sizes = {name: len(section) for name, section in sections.items()}
        sizes["dense"] = _size(codec, n_rows * width) - _size(codec, len(values))
        index = min(sizes, key=lambda each: sizes[each])
    if index == "dense":
        framed, section = np.full(n_rows * width, -0.0, np.float32), b""
        framed[positions] = values
    else:
        framed, section = values.copy(), sections[index]
    if codec != "float32":
        assert residual is not None
        decoded = _unpack(codec, _pack(codec, framed), len(framed))[0]
        decoded = decoded[positions] if index == "dense" else decoded
        with np.errstate(invalid="ignore"):
            residual[np.divmod(positions, width)] = values - decoded
        values[:] = decoded
    return _frame(index, codec, framed, section, step, slot, n_rows, width, stats)


def read_header(frame: bytes) -> FrameHeader:
    """The header; DecodeError unless it is valid and matches the frame's length."""
    if len(frame) < HEADER.size:
        raise DecodeError("frame too short")
    magic, version, index, value, flags, step, slot, width, n_rows, count, body_bytes, *rest = HEADER.unpack(
        frame[: HEADER.size]
    )
    if (
        (magic, version, flags) != (b"MLLF", 3, 0)
        or index >= len(INDEX_CODECS)
        or value >= len(VALUE_CODECS)
        or body_bytes != len(frame) - HEADER.size
        or n_rows * width >= 2**32
        or count > n_rows * width
    ):
        raise DecodeError("frame's header is malformed")
    _unpack(VALUE_CODECS[value], frame[HEADER.size :], count)
    return FrameHeader(step, slot, n_rows, width, count, INDEX_CODECS[index], VALUE_CODECS[value], *rest[:4])


def decode_frame(frame: bytes) -> tuple[UInt32, Float32]:
    """(positions, values); DecodeError unless the whole frame is valid."""
    header = read_header(frame)
    body = frame[HEADER.size :]
    if frame_checksum(frame) != struct.unpack("<I", frame[HEADER.size - 4 : HEADER.size])[0]:
        raise DecodeError("frame's checksum is wrong")
    values, index = _unpack(header.value_codec, body, header.count)
    width, high = header.width, header.n_rows * header.width
    if header.index_codec == "dense":
        if index or header.count != high:
            raise DecodeError("a dense frame has every value of the table and no indices")
        ids = list(range(high))
    elif header.index_codec == "u32":
        if len(index) % 4:
            raise DecodeError("frame ends within a position")
        ids = np.frombuffer(index, "<u4").tolist()
    elif header.index_codec == "varint":
        ids = _read_varints(index)
    elif header.index_codec == "rows":
        ids = [row * width + column for row in _read_varints(index) for column in range(width)]
        if not width and index:
            raise DecodeError("frame has rows without values")
    elif header.index_codec == "bits":
        ids = _read_bits(index, high)
    else:
        ids = _read_rowmasks(index, width)
    if len(ids) != header.count or any(b <= a for a, b in itertools.pairwise(ids)) or (ids and ids[-1] >= high):
        raise DecodeError("frame's indices are malformed")
    return np.array(ids, np.uint32), values


def _read_varint(index: bytes) -> tuple[int, bytes]:
    gap = 0
    for at, byte in enumerate(index[:5]):
        gap |= (byte & 127) << 7 * at
        if byte < 128:
            if (at and not byte) or gap >= 2**32:
                break
            return gap, index[at + 1 :]
    raise DecodeError("frame has a malformed gap")


def _read_varints(index: bytes) -> list[int]:
    ids = [-1]
    while index:
        gap, index = _read_varint(index)
        ids.append(ids[-1] + gap + 1)
    return ids[1:]


def _read_rowmasks(index: bytes, width: int) -> list[int]:
    ids, row, size = [], -1, (width + 7) // 8
    if not width and index:
        raise DecodeError("frame has rows without values")
    while index:
        gap, index = _read_varint(index)
        row += gap + 1
        mask, rest = int.from_bytes(index[:size], "little"), index[size:]
        if len(index) < size or not 0 < mask < 1 << width:
            raise DecodeError("frame has a malformed mask")
        ids += [row * width + column for column in range(width) if mask >> column & 1]
        index = rest
    return ids


def _read_bits(index: bytes, size: int) -> list[int]:
    mask = int.from_bytes(index, "little")
    if len(index) != (size + 7) // 8 or mask >> size:
        raise DecodeError("frame's bits are not those of its table")
    return [position for position in range(size) if mask >> position & 1]


def apply_frame(frame: bytes, params: Float32, *, add: bool = True) -> tuple[float, float, float, float]:
    """``params += values`` (or =) at their positions, if the whole frame is valid; returns its stats."""
    header = read_header(frame)
    if (header.n_rows, header.width) != params.shape:
        raise DecodeError("frame is for another table")
    positions, values = decode_frame(frame)
    if len(values):
        at = np.divmod(positions, header.width)
        params[at] = params[at] + values if add else values
    return header.loss_sum, header.loss_count, header.val_sum, header.val_count


def merge_frames(
    frames: Sequence[bytes], first_row: int, end_row: int, step: int, slot: int, stats: Sequence[float]
) -> bytes:
    """The sum of the frames in the order given, over the union of their positions."""
    n_rows, width = read_header(frames[0]).n_rows, read_header(frames[0]).width
    table = np.full(n_rows * width, -0.0, np.float32)
    there = np.zeros(n_rows * width, bool)
    within = slice(first_row * width, end_row * width)
    for frame in frames:
        header = read_header(frame)
        if (header.n_rows, header.width) != (n_rows, width):
            raise DecodeError("frames are for different tables")
        positions, values = decode_frame(frame)
        inside = (positions >= within.start) & (positions < within.stop)
        if not inside.all() and (header.index_codec != "dense" or values[~inside].any()):
            raise DecodeError("frame reaches out of the range")
        positions, values = positions[inside], values[inside]
        table[positions] += values
        there[positions] = True
    positions = np.flatnonzero(there).astype(np.uint32)
    return encode_sparse(positions, table[positions], step, slot, n_rows, width, stats)


def subtract_sent(rows: Int32 | None, update: Float32, positions: UInt32, values: Float32) -> None:
    """``update -= values`` at their positions."""
    at, column = np.divmod(positions, update.shape[1])
    update[at if rows is None else np.searchsorted(rows, at), column] -= values


def poly1305(message: bytes | memoryview, key: bytes) -> bytes:
    """See `mlless_nb.kernels.poly1305`: the definition of RFC 8439, section 2.5, in whole numbers."""
    r, total = int.from_bytes(key[:16], "little") & 0x0FFFFFFC0FFFFFFC0FFFFFFC0FFFFFFF, 0
    for at in range(0, len(message), 16):
        total = (total + int.from_bytes(bytes(message[at : at + 16]) + b"\1", "little")) * r % (2**130 - 5)
    return ((total + int.from_bytes(key[16:], "little")) % 2**128).to_bytes(16, "little")
