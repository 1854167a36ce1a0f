"""Checkpoints and final models as checked blobs in the object storage: header, CRC, the parameter table."""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

from .errors import DecodeError
from .kernels import crc32c
from .objects import ObjectStore

_HEADER = struct.Struct("<4sIIII")  # magic, version, step, n_rows, width
_CRC = struct.Struct("<I")
_MAGIC, _VERSION = b"MLCK", 1
_BODY = _HEADER.size + _CRC.size
#: How many checkpoints of a run are kept.
KEPT = 3


def encode(params: NDArray[np.float32], step: int) -> bytes:
    """``params``, float32 (n_rows, width), after ``step`` as a blob."""
    table = np.ascontiguousarray(params, dtype="<f4")
    body = table.tobytes()
    header = _HEADER.pack(_MAGIC, _VERSION, step, *table.shape)
    return header + _CRC.pack(_checksum(header, body)) + body


def decode(blob: bytes) -> tuple[NDArray[np.float32], int]:
    """The parameter table and the step in ``blob``.

    Raises
    ------
    DecodeError
        When the blob is cut short or damaged.
    """
    if len(blob) < _BODY:
        raise DecodeError("a checkpoint that is cut short")
    magic, version, step, n_rows, width = _HEADER.unpack_from(blob)
    (crc,) = _CRC.unpack_from(blob, _HEADER.size)
    body = memoryview(blob)[_BODY:]
    is_intact = magic == _MAGIC and version == _VERSION and len(body) == 4 * n_rows * width
    if not is_intact or _checksum(blob[: _HEADER.size], body) != crc:
        raise DecodeError("a checkpoint that is damaged")
    return np.frombuffer(body, dtype="<f4").reshape(n_rows, width).astype(np.float32), step


def _checksum(header: bytes, body: bytes | memoryview) -> int:
    """CRC32C of the header followed by the body's own."""
    return crc32c(header + _CRC.pack(crc32c(body)))


def checkpoint_key(job_id: str, step: int) -> str:
    """Where the checkpoint after ``step`` lies."""
    return f"runs/{job_id}/checkpoint-{step:09d}"


def model_key(job_id: str) -> str:
    """Where the final model lies."""
    return f"runs/{job_id}/model"


def save(objects: ObjectStore, job_id: str, params: NDArray[np.float32], step: int, every: int) -> None:
    """Store a checkpoint and drop the one that is no longer kept; checkpoints are ``every`` steps apart."""
    objects.put(checkpoint_key(job_id, step), encode(params, step))
    if step > KEPT * every:
        objects.delete([checkpoint_key(job_id, step - KEPT * every)])


def newest(objects: ObjectStore, job_id: str) -> tuple[str, NDArray[np.float32], int] | None:
    """Key, table and step of the newest intact and finite checkpoint or model; None when there is none."""
    keys = objects.list(f"runs/{job_id}/")
    for key in sorted((key for key in keys if key.endswith("/model") or "/checkpoint-" in key), key=_newest_first):
        try:
            params, step = decode(objects.get(key))
        except (DecodeError, KeyError):
            continue
        if np.isfinite(params).all():
            return key, params, step
    return None


def _newest_first(key: str) -> tuple[bool, int]:
    return (not key.endswith("/model"), -int(key.rpartition("-")[2]) if "/checkpoint-" in key else 0)
