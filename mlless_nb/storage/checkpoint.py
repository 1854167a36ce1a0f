"""Checkpoints and final models as blobs in the object storage: header, CRC, tables.

The first table has the parameters. If the run ended regularly, the tables of the optimiser's state follow, from which
another run can continue.
"""

from __future__ import annotations

import itertools
import math
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..errors import DecodeError
from ..kernels import crc32c
from .objects import ObjectStore

Float32 = NDArray[np.float32]

#: Magic, version, step, n_rows, width, n_tables, n_owners, n_steps, n_updates, rate_factor.
_HEADER = struct.Struct("<4sIIIIIIQQd")
_CRC = struct.Struct("<I")
_MAGIC, _VERSION = b"MLCK", 3
_BODY = _HEADER.size + _CRC.size
#: Most tables of one blob: a few for each worker.
MOST_TABLES = 1 << 16
#: Number of checkpoints of a run that are kept.
KEPT = 3
#: Step of the first checkpoint, and most steps between two, unless the job sets another interval.
FIRST, MOST_APART = 1000, 4000


@dataclass(frozen=True, eq=False)
class Progress:
    """The state of training: the parameters, and what else a run needs to continue from them.

    Attributes
    ----------
    params : float32 (n_rows, width)
    step : int
        Of the run.
    state : tuple of float32 (n_rows, width)
        The algorithm's tables, the mean over all shards of the data; where each worker's state is its own, the tables
        of each worker by slot. None where it has none, or they were not kept.
    n_steps, n_updates : int
        Steps, and steps of the optimiser, that have led here, those of earlier runs included.
    rate_factor : float
        What the learning rate was multiplied by in the end.
    owners : int32 (n_users,), optional
        The shard of each user, for a run in which users are sharded.
    """

    params: Float32
    step: int = 0
    state: tuple[Float32, ...] = ()
    n_steps: int = 0
    n_updates: int = 0
    rate_factor: float = 1.0
    owners: NDArray[np.int32] | None = None

    def encode(self) -> bytes:
        """The progress as a blob."""
        tables = [np.ascontiguousarray(table, dtype="<f4") for table in (self.params, *self.state)]
        owners = np.ascontiguousarray(self.owners if self.owners is not None else (), "<i4")
        counts = (len(tables), len(owners), self.n_steps, self.n_updates, self.rate_factor)
        header = _HEADER.pack(_MAGIC, _VERSION, self.step, *tables[0].shape, *counts)
        parts = [part.reshape(-1).view(np.uint8).data for part in (*tables, owners)]
        return b"".join([header, _CRC.pack(_checksum(header, parts)), *parts])

    @classmethod
    def decode(cls, blob: bytes) -> Progress:
        """The progress in ``blob``.

        Raises
        ------
        DecodeError
            When the blob is cut short or damaged.
        """
        if len(blob) < _BODY:
            raise DecodeError("a checkpoint that is cut short")
        magic, version, step, n_rows, width, n_tables, n_owners, n_steps, n_updates, factor = _HEADER.unpack_from(blob)
        (crc,) = _CRC.unpack_from(blob, _HEADER.size)
        body, table_bytes = memoryview(blob)[_BODY:], 4 * n_rows * width
        if n_tables > MOST_TABLES:
            raise DecodeError(f"a checkpoint of {n_tables} tables: must be at most {MOST_TABLES}")
        if magic != _MAGIC or version != _VERSION or len(body) != n_tables * table_bytes + 4 * n_owners:
            raise DecodeError("a checkpoint that is damaged")
        ends = [number * table_bytes for number in range(n_tables + 1)]
        parts = [*(body[first:end] for first, end in itertools.pairwise(ends)), body[ends[-1] :]]
        if _checksum(blob[: _HEADER.size], parts) != crc:
            raise DecodeError("a checkpoint that is damaged")
        if not n_tables or not math.isfinite(factor):
            raise DecodeError("a checkpoint of no table, or of no learning rate")
        params, *state = (
            np.frombuffer(part, "<f4").reshape(n_rows, width).astype(np.float32, copy=False) for part in parts[:-1]
        )
        owners = np.frombuffer(parts[-1], "<i4").astype(np.int32) if n_owners else None
        return cls(params.copy(), step, tuple(state), n_steps, n_updates, factor, owners)


def encode(params: Float32, step: int) -> bytes:
    """``params``, float32 (n_rows, width), after ``step`` as a blob."""
    return Progress(params, step).encode()


def decode(blob: bytes) -> tuple[Float32, int]:
    """The parameters and the step in ``blob``; raises as `Progress.decode`."""
    progress = Progress.decode(blob)
    return progress.params, progress.step


def read_rows(objects: ObjectStore, key: str, width: int, first: int, end: int) -> Float32:
    """The rows [first, end) of the parameters under ``key``, float32 (end - first, width), in one small request.

    A part has no checksum. Raises `DecodeError` if the blob is shorter, `KeyError` if there is none.
    """
    if first == end:
        return np.empty((0, width), np.float32)
    blob = objects.get(key, _BODY + 4 * width * first, _BODY + 4 * width * end)
    if len(blob) != 4 * width * (end - first):
        raise DecodeError("a checkpoint that is cut short")
    return np.frombuffer(blob, "<f4").reshape(end - first, width).astype(np.float32)


def _checksum(header: bytes, parts: Sequence[memoryview]) -> int:
    """CRC-32 of the header followed by the CRC32C of each part.

    The two have different polynomials: with one, a flipped bit of a part looks like a flipped bit of the header or of
    another part, and two such flips cancel.
    """
    return zlib.crc32(header + b"".join(_CRC.pack(crc32c(part)) for part in parts))


def checkpoint_key(job_id: str, step: int) -> str:
    """The key of the checkpoint after ``step``."""
    return f"runs/{job_id}/checkpoint-{step:09d}"


def is_due(step: int, every: int) -> bool:
    """Whether a checkpoint is stored after ``step``: every ``every`` steps; 0: after `FIRST`, 2 `FIRST` and so on.

    With 0, a lost run loses at most half of its steps, or `MOST_APART` of them, and requests to the object storage,
    each as expensive as several fast steps, stay few.
    """
    if every:
        return step % every == 0
    return step % FIRST == 0 and (step % MOST_APART == 0 or (step // FIRST) & (step // FIRST - 1) == 0)


def model_key(job_id: str) -> str:
    """The key of the model that the run returns: the best one by validation loss, else the last one."""
    return f"runs/{job_id}/model"


def last_key(job_id: str) -> str:
    """The key of the last model, if it is not the one that is returned."""
    return f"runs/{job_id}/last"


def start_key(job_id: str) -> str:
    """The key of the progress that a run continues from."""
    return f"runs/{job_id}/start"


def save(objects: ObjectStore, job_id: str, params: Float32, step: int, every: int) -> None:
    """Store a checkpoint and delete the one that is no longer kept; ``every`` is as in `is_due`."""
    objects.put(checkpoint_key(job_id, step), encode(params, step))
    objects.delete(_checkpoint_keys(job_id, step, every)[KEPT:])


def _checkpoint_keys(job_id: str, step: int, every: int) -> list[str]:
    """The keys of a run's checkpoints at ``step``, newest first; the last key is of one that may be deleted."""
    unit = every or FIRST
    due = (past for past in range(step - step % unit, 0, -unit) if is_due(past, every))
    return [checkpoint_key(job_id, past) for past in itertools.islice(due, KEPT + 1)]


def remove(objects: ObjectStore, job_id: str, step: int | None, every: int) -> None:
    """Remove all objects of a run.

    Parameters
    ----------
    step : int or None
        The last step of a run that ended regularly, whose objects are known. With None they are listed, and a listing
        costs as much as storing an object.
    every : int
        As in `is_due`.
    """
    if step is None:
        objects.delete(objects.list(f"runs/{job_id}/"))
    else:
        kept = [make_key(job_id) for make_key in (model_key, last_key, start_key)]
        objects.delete([*kept, *_checkpoint_keys(job_id, step, every)])


def newest(objects: ObjectStore, job_id: str) -> tuple[str, Float32, int] | None:
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
