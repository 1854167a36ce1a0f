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
#: Steps before the first checkpoint, and between two at most, unless the job says otherwise.
FIRST, MOST_APART = 400, 3200


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


def is_due(step: int, every: int) -> bool:
    """Whether a checkpoint is stored after ``step``: every so many steps; 0: after 400, twice as many, and so on.

    What is lost with a worker is then half of the run at most, or `MOST_APART` steps; and requests to the object
    storage, each as dear as a handful of quick steps, stay few.
    """
    if every:
        return step % every == 0
    return step % FIRST == 0 and (step % MOST_APART == 0 or (step // FIRST) & (step // FIRST - 1) == 0)


def model_key(job_id: str) -> str:
    """Where the model lies that the run returns: the best one by validation loss, else the last."""
    return f"runs/{job_id}/model"


def last_key(job_id: str) -> str:
    """Where the last model lies when it is not the one that is returned."""
    return f"runs/{job_id}/last"


def save(objects: ObjectStore, job_id: str, params: NDArray[np.float32], step: int, every: int) -> None:
    """Store a checkpoint and drop the one that is no longer kept; ``every`` as of `is_due`."""
    objects.put(checkpoint_key(job_id, step), encode(params, step))
    unit = every or FIRST
    stored = [past for past in range(unit, step + 1, unit) if is_due(past, every)]
    if len(stored) > KEPT:
        objects.delete([checkpoint_key(job_id, stored[-1 - KEPT])])


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
