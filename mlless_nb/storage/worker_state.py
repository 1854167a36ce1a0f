"""A worker's part of a checkpoint as a blob: what it needs to go on bit-identically.

A checkpoint has one part for each active worker, ``runs/<job>/checkpoint-<step>-<number of the restart>/<slot>``. It is
complete when all parts are there, so nothing else has to be written. Tables that are equal on all workers are cut into
ranges of rows, and each part has one range; other tables are whole.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DecodeError
from ..kernels import crc32c
from .checkpoint import Progress

Table = NDArray[Any]
#: Name of the table of a worker's newest reports, see `mlless_nb.exchange.kept_reports`.
REPORTS = "reports"
#: Magic, version, bytes of the facts, checksum of all that follows.
_HEADER = struct.Struct("<4sIII")
_MAGIC, _VERSION = b"MLWS", 1
#: Types that a table may have.
_DTYPES = {"<f4": np.dtype("<f4"), "<i4": np.dtype("<i4")}
#: Most bytes of the facts, and most tables of a part.
_MOST_FACTS, _MOST_TABLES = 1 << 20, 4096


@dataclass(frozen=True, eq=False)
class WorkerState:
    """The state of one worker after a step.

    Attributes
    ----------
    step, slot : int
    active : list of int
        The slots whose parts make up the checkpoint, ascending: those that take part in the next step.
    facts : dict
        What is not a table, as JSON.
    tables : dict of str to ndarray
        float32 or int32, of any shape.
    common : dict of str to ndarray
        Rows [first, end) of tables that are equal on all workers: the ``active.index(slot)``-th of their ranges.
    """

    step: int
    slot: int
    active: list[int]
    facts: dict[str, Any]
    tables: dict[str, Table] = field(default_factory=dict)
    common: dict[str, Table] = field(default_factory=dict)

    def encode(self) -> bytes:
        """The state as a blob."""
        blocks, listed = [], []
        for is_common, tables in ((0, self.tables), (1, self.common)):
            for name, table in tables.items():
                kind = "<i4" if table.dtype.kind == "i" else "<f4"
                block = np.ascontiguousarray(table, kind)
                listed.append([name, is_common, kind, *block.shape])
                blocks.append(block.reshape(-1).view(np.uint8).data)
        spec = {"step": self.step, "slot": self.slot, "active": self.active, "facts": self.facts, "tables": listed}
        facts = json.dumps(spec, separators=(",", ":")).encode()
        return b"".join([_HEADER.pack(_MAGIC, _VERSION, len(facts), _checksum(facts, blocks)), facts, *blocks])

    @classmethod
    def decode(cls, blob: bytes) -> WorkerState:
        """The state in ``blob``; its tables are views of it. Raises `DecodeError` if it is cut short or damaged."""
        try:
            magic, version, n_facts, crc = _HEADER.unpack_from(blob)
            body = memoryview(blob)[_HEADER.size :]
            if magic != _MAGIC or version != _VERSION or n_facts > min(_MOST_FACTS, len(body)):
                raise DecodeError("not a worker's part of a checkpoint")
            spec = json.loads(bytes(body[:n_facts]))
            named, blocks = _tables(spec["tables"], body[n_facts:])
            if _checksum(bytes(body[:n_facts]), blocks) != crc:
                raise DecodeError("a part of a checkpoint that is damaged")
            active, facts = [int(slot) for slot in spec["active"]], dict(spec["facts"])
            return cls(int(spec["step"]), int(spec["slot"]), active, facts, named[0], named[1])
        except (ValueError, TypeError, KeyError, IndexError, struct.error, RecursionError) as error:
            raise DecodeError(f"a part of a checkpoint that is damaged: {type(error).__name__}") from None


def _tables(listed: Sequence[Any], body: memoryview) -> tuple[list[dict[str, Table]], list[memoryview]]:
    """The tables that are listed, own and common ones, and their bytes."""
    named: list[dict[str, Table]] = [{}, {}]
    blocks, at = [], 0
    if len(listed) > _MOST_TABLES:
        raise ValueError
    for name, is_common, kind, *shape in listed:
        if not all(type(n) is int and n >= 0 for n in shape):
            raise ValueError
        n_bytes = 4 * math.prod(shape)
        if n_bytes > len(body) - at:
            raise ValueError
        blocks.append(body[at : at + n_bytes])
        named[int(is_common)][str(name)] = np.frombuffer(blocks[-1], _DTYPES[kind]).reshape(shape)
        at += n_bytes
    if at != len(body):
        raise ValueError
    return named, blocks


def _checksum(facts: bytes, blocks: Sequence[memoryview]) -> int:
    """CRC-32 of the facts followed by the CRC32C of each block, as of a `Progress`."""
    return zlib.crc32(facts + b"".join(struct.pack("<I", crc32c(block)) for block in blocks))


def joined(parts: Mapping[int, WorkerState], name: str) -> Table:
    """The whole of a common table, from the parts of all workers by slot."""
    first = next(iter(parts.values()))
    return np.concatenate([parts[slot].common[name] for slot in first.active])


def assembled(parts: Mapping[int, WorkerState]) -> Progress:
    """The progress of training in the ``parts`` of a checkpoint by slot, from which any number of workers can go on.

    Each worker's residual is published: it is added to the parameters. Rows with an owner are the owner's. The
    optimiser's state is the mean over the workers.
    """
    first = parts[min(parts)]
    whole = joined(parts, "params") if first.common else first.tables["params"]
    params = np.array(whole, np.float32)
    for part in parts.values():
        if "residual" in part.tables and part is not first:
            params += part.tables["residual"]
    for part in parts.values():
        if "own rows" in part.tables:
            rows = part.tables["own rows"]
            params[rows] = part.tables["params"][rows]
    facts, weights = first.facts, sum(float(part.facts["weight"]) for part in parts.values())
    state = []
    for name in facts["state"]:
        mean = np.zeros(params.shape, np.float32)
        for part in parts.values():
            mean += _mean_table(part, name) * np.float32(part.facts["weight"] / weights)
        state.append(mean)
    return Progress(params, first.step, tuple(state), facts["n_steps"], facts["n_updates"], facts["rate_factor"])


def _mean_table(part: WorkerState, name: str) -> Table:
    """A table of the optimiser's state, or the mean of those of the shards that a worker holds."""
    found = [part.tables[one] for one in part.tables if one == name or one.rpartition(".")[0] == name]
    mean: Table = np.asarray(np.mean(found, axis=0), np.float32)
    return mean
