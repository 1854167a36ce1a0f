"""The kernels in plain NumPy, written to be read: the oracle of the tests, not for training.

Each function has the compiled one's name, arguments and effects; the compiled one differs by rounding only (the
codec, the split and adding not even by that).
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


def pmf_gradient(
    params: Float32,
    rows: Int32,
    user: Int32,
    item: Int32,
    rating: Float32,
    mean: float,
    l2: float,
    divisor: float,
    biases: bool,
    grad: Float32,
) -> float:
    """d/dx of the sum of ``e^2/2 + l2/2 (|p_u|^2 + |q_i|^2)``, divided; e = r - mean - b_u - b_i - p_u.q_i."""
    table = params[rows].astype(np.float64)
    p, q = table[user], table[item]
    rank = params.shape[1] - biases
    error = rating - mean - (p[:, :rank] * q[:, :rank]).sum(1)
    d_user, d_item = l2 * p, l2 * q
    if biases:
        error -= p[:, rank] + q[:, rank]
        d_user[:, rank] -= error
        d_item[:, rank] -= error
    d_user[:, :rank] -= error[:, None] * q[:, :rank]
    d_item[:, :rank] -= error[:, None] * p[:, :rank]
    total = np.zeros(grad.shape)
    np.add.at(total, user, d_user)
    np.add.at(total, item, d_item)
    grad[:] = total / divisor
    return float((error**2).sum())


def pmf_predict(params: Float32, user: Int32, item: Int32, mean: float, biases: bool, out: Float32) -> None:
    """``mean + b_u + b_i + p_u.q_i``; user and item are rows of params."""
    p, q = params[user].astype(np.float64), params[item].astype(np.float64)
    rank = params.shape[1] - biases
    score = mean + (p[:, :rank] * q[:, :rank]).sum(1)
    out[:] = score + p[:, rank] + q[:, rank] if biases else score


def pmf_squared_error(
    params: Float32,
    rows: Int32,
    user: Int32,
    item: Int32,
    rating: Float32,
    mean: float,
    biases: bool,
) -> float:
    """Sum of ``e^2``."""
    score = np.empty(len(rating), np.float64)
    pmf_predict(params, rows[user], rows[item], mean, biases, score)  # type: ignore[arg-type]
    return float(((rating - score) ** 2).sum())


def _dense(indptr: Int32, indices: Int32, values: Float32, n_columns: int) -> NDArray[np.float64]:
    X = np.zeros((len(indptr) - 1, n_columns))
    np.add.at(X, (np.repeat(np.arange(len(X)), np.diff(indptr)), indices), values)
    return X


def logistic_gradient(
    params: Float32,
    rows: Int32,
    indptr: Int32,
    indices: Int32,
    values: Float32,
    labels: Float32,
    divisor: float,
    grad: Float32,
) -> float:
    """d/dw of the sum of log losses, divided; the intercept is the last of ``rows``."""
    X = _dense(indptr, indices, values, len(rows))
    X[:, -1] += 1.0
    margin = X @ params[rows, 0].astype(np.float64)
    residual = 1.0 / (1.0 + np.exp(-np.clip(margin, -700, 700))) - labels
    grad[:, 0] = X.T @ residual / divisor
    return float((np.logaddexp(0.0, margin) - labels * margin).sum())


def logistic_loss(
    params: Float32,
    rows: Int32,
    indptr: Int32,
    indices: Int32,
    values: Float32,
    labels: Float32,
) -> float:
    """Sum of ``log(1 + exp(z)) - y z``."""
    return logistic_gradient(params, rows, indptr, indices, values, labels, 1.0, np.empty((len(rows), 1), np.float32))


def logistic_margins(params: Float32, indptr: Int32, indices: Int32, values: Float32, out: Float32) -> None:
    """``w.x + intercept``; indices are features."""
    out[:] = _dense(indptr, indices, values, len(params) - 1) @ params[:-1, 0].astype(np.float64) + params[-1, 0]


def _slope(
    params: Float32, rows: Int32, grad: Float32, l2: float, l2_rows: int, out: Float32
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The rows that are walked and their gradient, the penalty included."""
    walked = np.asarray(rows, np.int64) if len(out) == len(rows) else np.arange(len(params))
    slope = np.zeros(params.shape)
    slope[rows] = grad
    slope[:l2_rows] += l2 * params[:l2_rows]
    return walked, slope[walked]


def sgd_update(params: Float32, rows: Int32, grad: Float32, rate: float, l2: float, l2_rows: int, out: Float32) -> None:
    """``out = -rate * g``."""
    out[:] = -rate * _slope(params, rows, grad, l2, l2_rows, out)[1]


def momentum_update(
    params: Float32,
    rows: Int32,
    grad: Float32,
    velocity: Float32,
    rate: float,
    momentum: float,
    nesterov: bool,
    l2: float,
    l2_rows: int,
    out: Float32,
) -> None:
    """``v = momentum*v + g``; ``out = -rate * v``, or ``-rate * (g + momentum*v)``."""
    walked, slope = _slope(params, rows, grad, l2, l2_rows, out)
    v = momentum * velocity[walked] + slope
    velocity[walked] = v
    out[:] = -rate * (slope + momentum * v if nesterov else v)


def adam_update(
    params: Float32,
    rows: Int32,
    grad: Float32,
    first: Float32,
    second: Float32,
    rate: float,
    b1: float,
    b2: float,
    eps: float,
    step: int,
    l2: float,
    l2_rows: int,
    out: Float32,
) -> None:
    """Kingma and Ba's Adam, eps outside the root of the corrected second moment."""
    walked, slope = _slope(params, rows, grad, l2, l2_rows, out)
    m = b1 * first[walked] + (1 - b1) * slope
    v = b2 * second[walked] + (1 - b2) * slope**2
    first[walked], second[walked] = m, v
    out[:] = -rate * (m / (1 - b1**step)) / (np.sqrt(v / (1 - b2**step)) + eps)


def adagrad_update(
    params: Float32,
    rows: Int32,
    grad: Float32,
    squares: Float32,
    rate: float,
    eps: float,
    l2: float,
    l2_rows: int,
    out: Float32,
) -> None:
    """``s = s + g^2``; ``out = -rate * g / (sqrt(s) + eps)``."""
    walked, slope = _slope(params, rows, grad, l2, l2_rows, out)
    s = squares[walked] + slope**2
    squares[walked] = s
    out[:] = -rate * slope / (np.sqrt(s) + eps)


def apply_rows(params: Float32, rows: Int32 | None, update: Float32) -> None:
    """``params[rows] += update``."""
    params[slice(None) if rows is None else rows] += update


def split_significant(
    params: Float32,
    rows: Int32 | None,
    update: Float32,
    residual: Float32,
    threshold: float,
    positions: UInt32,
    values: Float32,
) -> int:
    """``residual += update``; what exceeds ``threshold * |x|`` moves to (positions, values)."""
    walked = np.arange(len(params)) if rows is None else rows
    total = residual[walked] + update
    with np.errstate(invalid="ignore"):
        sent = (total != 0) & ~(np.abs(total) <= np.float32(threshold) * np.abs(params[walked]))
    residual[walked] = np.where(sent, np.float32(0), total)
    at, column = np.nonzero(sent)
    count = len(at)
    positions[:count] = np.asarray(walked, np.int64)[at] * params.shape[1] + column
    values[:count] = total[sent]
    return count


def flush_residual(residual: Float32, positions: UInt32, values: Float32) -> int:
    """Every non-zero moves to (positions, values)."""
    at = np.flatnonzero(residual)
    positions[: len(at)], values[: len(at)] = at, residual.ravel()[at]
    residual[:] = 0
    return len(at)


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


def _varints(ids: NDArray[np.unsignedinteger] | Int32) -> bytes:
    out, following = bytearray(), 0
    for each in ids.tolist():
        gap = each - following
        while gap >= 128:
            out.append(gap & 127 | 128)
            gap >>= 7
        out.append(gap)
        following = each + 1
    return bytes(out)


def _frame(
    index_codec: str,
    values: Float32,
    index: bytes,
    step: int,
    slot: int,
    n_rows: int,
    width: int,
    stats: Sequence[float],
) -> bytes:
    body = values.astype("<f4").tobytes() + index
    codec = INDEX_CODECS.index(index_codec)
    head = HEADER.pack(b"MLLF", 1, codec, 0, 0, step, slot, width, n_rows, values.size, len(body), *stats, 0)[:-4]
    return head + struct.pack("<I", crc32c(head + body)) + body


def encode_update(
    rows: Int32 | None, update: Float32, step: int, slot: int, n_rows: int, stats: Sequence[float]
) -> bytes:
    """Whole rows: dense where rows is None, else values and varint row ids."""
    if rows is None:
        return _frame("dense", update, b"", step, slot, n_rows, update.shape[1], stats)
    return _frame("rows", update, _varints(rows), step, slot, n_rows, update.shape[1], stats)


def encode_sparse(
    positions: UInt32,
    values: Float32,
    step: int,
    slot: int,
    n_rows: int,
    width: int,
    stats: Sequence[float],
    codec: str = "auto",
) -> bytes:
    """Values and where they belong; "auto" takes what is smallest."""
    index = {"varint": _varints(positions), "u32": positions.astype("<u4").tobytes()}
    if codec == "auto":
        codec = "u32" if len(index["varint"]) > len(index["u32"]) else "varint"
        if 4 * n_rows * width < 4 * len(values) + len(index[codec]):
            table = np.zeros(n_rows * width, np.float32)
            table[positions] = values
            return _frame("dense", table, b"", step, slot, n_rows, width, stats)
    return _frame(codec, values, index[codec], step, slot, n_rows, width, stats)


def read_header(frame: bytes) -> FrameHeader:
    """The header; DecodeError unless it is one and fits the frame's length."""
    if len(frame) < HEADER.size:
        raise DecodeError("frame too short")
    magic, version, index, value, flags, step, slot, width, n_rows, count, body_bytes, *rest = HEADER.unpack(
        frame[: HEADER.size]
    )
    if (
        (magic, version, flags) != (b"MLLF", 1, 0)
        or index >= len(INDEX_CODECS)
        or value >= len(VALUE_CODECS)
        or body_bytes != len(frame) - HEADER.size
        or n_rows * width >= 2**32
        or count > n_rows * width
        or 4 * count > body_bytes
    ):
        raise DecodeError("frame's header is malformed")
    return FrameHeader(step, slot, n_rows, width, count, INDEX_CODECS[index], VALUE_CODECS[value], *rest[:4])


def decode_frame(frame: bytes) -> tuple[UInt32, Float32]:
    """(positions, values); DecodeError unless everything is right."""
    header = read_header(frame)
    body = frame[HEADER.size :]
    if crc32c(frame[: HEADER.size - 4] + body) != struct.unpack("<I", frame[HEADER.size - 4 : HEADER.size])[0]:
        raise DecodeError("frame's checksum is wrong")
    values, index = np.frombuffer(body, "<f4", header.count).copy(), body[4 * header.count :]
    high, n_ids = header.n_rows * header.width, header.count
    if header.index_codec == "dense":
        ids = list(range(high)) if not index and header.count == high else []
    elif header.index_codec == "u32":
        ids = np.frombuffer(index, "<u4").tolist() if len(index) % 4 == 0 else []
    else:
        if header.index_codec == "rows":
            high, n_ids = header.n_rows, header.count // max(header.width, 1)
        ids = _read_varints(index)
    if header.index_codec == "dense" and header.count != high:
        raise DecodeError("frame is not the whole table")
    if len(ids) != n_ids or any(b <= a for a, b in itertools.pairwise(ids)) or (ids and ids[-1] >= high):
        raise DecodeError("frame's indices are malformed")
    if header.index_codec == "rows":
        ids = [row * header.width + column for row in ids for column in range(header.width)]
        if len(ids) != header.count:
            raise DecodeError("frame's rows are incomplete")
    return np.array(ids, np.uint32), values


def _read_varints(index: bytes) -> list[int]:
    ids, following, gap, shift = [], 0, 0, 0
    for byte in index:
        gap |= (byte & 127) << shift
        if byte >= 128:
            shift += 7
            continue
        if (shift and not byte) or gap >= 2**32:
            raise DecodeError("frame has a malformed gap")
        ids.append(following + gap)
        following, gap, shift = ids[-1] + 1, 0, 0
    if shift:
        raise DecodeError("frame ends within a gap")
    return ids


def apply_frame(frame: bytes, params: Float32) -> int:
    """``params += values`` at their positions; nothing is written unless the whole frame is valid."""
    header = read_header(frame)
    if (header.n_rows, header.width) != params.shape:
        raise DecodeError("frame is for another table")
    positions, values = decode_frame(frame)
    params.reshape(-1)[positions] += values
    return len(values)
