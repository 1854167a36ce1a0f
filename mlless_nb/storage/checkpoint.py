"""The progress of training as a blob in the object storage: header, CRC, tables.

The first table has the parameters. If the run ended regularly, the tables of the optimiser's state follow, from which
another run can continue. The model of a run ends with a text that says how the run ended.
"""

from __future__ import annotations

import itertools
import json
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
#: Most characters of a reason in the text that says how a run ended, and most bytes of that text.
MOST_REASON, MOST_VERDICT = 1000, 1 << 14


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
    verdict : (str, str), optional
        Status and reason with which the run ended, in its model: its plan may be lost before anybody has read it.
    """

    params: Float32
    step: int = 0
    state: tuple[Float32, ...] = ()
    n_steps: int = 0
    n_updates: int = 0
    rate_factor: float = 1.0
    owners: NDArray[np.int32] | None = None
    verdict: tuple[str, str] | None = None

    def encode(self) -> bytes:
        """The progress as a blob."""
        tables = [np.ascontiguousarray(table, dtype="<f4") for table in (self.params, *self.state)]
        owners = np.ascontiguousarray(self.owners if self.owners is not None else (), "<i4")
        counts = (len(tables), len(owners), self.n_steps, self.n_updates, self.rate_factor)
        header = _HEADER.pack(_MAGIC, _VERSION, self.step, *tables[0].shape, *counts)
        parts = [part.reshape(-1).view(np.uint8).data for part in (*tables, owners)]
        if self.verdict is not None:
            parts.append(memoryview(_encoded(*self.verdict)))
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
        ends = [number * table_bytes for number in range(n_tables + 1)]
        ends.append(ends[-1] + 4 * n_owners)
        if magic != _MAGIC or version != _VERSION or not 0 <= len(body) - ends[-1] <= MOST_VERDICT:
            raise DecodeError("a checkpoint that is damaged")
        parts, text = [body[first:end] for first, end in itertools.pairwise(ends)], body[ends[-1] :]
        if _checksum(blob[: _HEADER.size], [*parts, text] if text else parts) != crc:
            raise DecodeError("a checkpoint that is damaged")
        if not n_tables or not math.isfinite(factor):
            raise DecodeError("a checkpoint of no table, or of no learning rate")
        params, *state = (
            np.frombuffer(part, "<f4").reshape(n_rows, width).astype(np.float32, copy=False) for part in parts[:-1]
        )
        owners = np.frombuffer(parts[-1], "<i4").astype(np.int32) if n_owners else None
        verdict = _verdict(bytes(text)) if text else None
        return cls(params.copy(), step, tuple(state), n_steps, n_updates, factor, owners, verdict)


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


def _encoded(status: str, reason: str) -> bytes:
    return json.dumps([status, reason[:MOST_REASON]]).encode()


def _verdict(text: bytes) -> tuple[str, str]:
    try:
        status, reason = json.loads(text)
        if isinstance(status, str) and isinstance(reason, str) and _encoded(status, reason) == text:
            return status, reason
    except (ValueError, TypeError, RecursionError):
        pass
    raise DecodeError("a checkpoint whose end is no status and reason")


def _checksum(header: bytes, parts: Sequence[memoryview]) -> int:
    """CRC-32 of the header followed by the CRC32C of each part.

    The two have different polynomials: with one, a flipped bit of a part looks like a flipped bit of the header or of
    another part, and two such flips cancel.
    """
    return zlib.crc32(header + b"".join(_CRC.pack(crc32c(part)) for part in parts))
