"""What the functions of each stage do with their part of the stage's plan. The objects are the only input and output.

A part that is done twice writes the same bytes to the same objects again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data.bundle import encode_head, padded
from ..data.cutter import MinibatchCutter
from ..data.format import BadLine, Facts, Format
from ..data.minibatches import encode_minibatch
from ..data.spans import Files, Span
from ..data.stored_files import format_from_json, packed_labels
from ..errors import DataError, RunError
from ..job.column_sums import ColumnSums, add_first
from ..job.units import ColumnUnits
from ..storage.objects import ObjectStore
from .rows import SlottedRows, decode_head, decode_rows, encode_piece, head_bytes, stacked

#: A piece is written once its rows have this size, bytes.
PIECE_BYTES = 64 << 20
#: The stages in their order.
STAGES = ("scan", "sum", "scatter", "cut", "bundle")


def work(stage: str, plan: dict[str, Any], index: int, objects: ObjectStore, files: Files) -> dict[str, Any]:
    """Do part ``index`` of ``plan``; returns what was found, as plain JSON.

    Parameters
    ----------
    objects : ObjectStore
        Of the run.
    files : Files
        The bucket of the stored files.
    """
    return _WORK[stage](plan, index, objects, files)


def _spans(plan: dict[str, Any], index: int) -> list[Span]:
    return [Span(*span) for span in plan["shares"][index]]


def _first(plan: dict[str, Any]) -> bytes:
    return bytes(plan["first"], "latin-1")


def scan(plan: dict[str, Any], index: int, objects: ObjectStore, files: Files) -> dict[str, Any]:
    """Count and check the rows of a share; their labels are stored. ``error`` says what is wrong with a line."""
    form, first = format_from_json(plan["format"]), _first(plan)
    digests: list[str] = []
    facts = Facts()
    labels: list[NDArray[Any]] = []
    n_lines: list[tuple[str, int, int]] = []
    for span in _spans(plan, index):
        layout = form.layout(span.key, first)
        number = 1 + (layout.has_header and not span.begin)
        n_rows = facts.n_rows
        blocks = form.blocks(files, [span], plan["leaf"], first, lambda digest: digests.append(digest.hex()))
        try:
            for block in blocks:
                found, facts_here = form.facts_of(block, layout)
                labels.append(found)
                facts = facts.merged(facts_here)
                number += form.n_lines(block)
        except BadLine as bad:
            line = None if bad.line is None else bad.line[:1000].decode(errors="replace")
            return {"error": [span.key, number + bad.offset, line, bad.valid], "n_lines": n_lines}
        except DataError as error:  # of the file as a whole
            is_whole = error.field == "path"
            what = (span.key, f"an object of {span.size} bytes") if is_whole else (error.field, str(error.value))
            return {"error": [what[0], 0, what[1], error.valid], "n_lines": n_lines}
        n_lines.append((span.key, number - 1, facts.n_rows - n_rows))
    objects.put(plan["labels"].format(index), packed_labels(_joined(labels), has_bits=form.has_bits))
    return {"facts": facts.to_json(), "digests": digests, "n_lines": n_lines, "error": None}


def _joined(arrays: list[NDArray[Any]]) -> NDArray[Any]:
    return np.concatenate(arrays) if arrays else np.empty(0, bool)


def scatter(plan: dict[str, Any], index: int, objects: ObjectStore, files: Files) -> dict[str, Any]:
    """Write the rows of a share in pieces, each with the rows of every lot."""
    bounds, digests = np.asarray(plan["bounds"]), []
    slots = np.frombuffer(objects.get(plan["slots"].format(index)), "<i8")
    lots: list[list[SlottedRows]] = [[] for _ in bounds[1:]]
    n_bytes = n_pieces = at = 0
    blocks = _rows(plan, index, objects, files, lambda digest: digests.append(digest.hex()))
    for X, y in blocks:
        rows = SlottedRows(X, y, slots[at : at + len(y)])
        at += len(y)
        if len(rows.slots) < len(y):
            break
        lot_of = np.searchsorted(bounds, rows.slots // plan["size"], side="right") - 1
        lot_of[rows.slots < 0] = -1
        order = np.argsort(lot_of, kind="stable")
        starts = np.searchsorted(lot_of[order], np.arange(len(bounds)))
        for lot, (first, end) in enumerate(itertools.pairwise(starts)):
            if first < end:
                lots[lot].append(rows.taken(order[first:end]))
                n_bytes += lots[lot][-1].n_bytes
        if n_bytes >= PIECE_BYTES:
            objects.put(plan["piece"].format(index, n_pieces), encode_piece(lots))
            lots, n_bytes, n_pieces = [[] for _ in lots], 0, n_pieces + 1
    if at != len(slots) or digests != plan["digests"][index]:
        raise RunError("the files changed while they were prepared")
    if any(lots):
        objects.put(plan["piece"].format(index, n_pieces), encode_piece(lots))
        n_pieces += 1
    return {"n_pieces": n_pieces}


def _rows(
    plan: dict[str, Any], index: int, objects: ObjectStore, files: Files, note: Callable[[bytes], None]
) -> Iterator[tuple[Any, Any]]:
    """The rows of a share in the units of training, block by block."""
    form: Format = format_from_json(plan["format"])
    facts, first, spans = Facts.from_json(plan["facts"]), _first(plan), _spans(plan, index)
    change: Callable[[Any], Any] = _same
    if plan["units"]:
        shift, scale = np.frombuffer(objects.get(plan["units"]), "<f8").reshape(2, -1)
        change = ColumnUnits(shift, scale)
    layout = form.layout(spans[0].key, first)
    for block in form.blocks(files, spans, plan["leaf"], first, note):
        X, y = form.rows_of(block, layout, facts)
        yield change(X), y


def _same(X: Any) -> Any:
    return X


def cut(plan: dict[str, Any], index: int, objects: ObjectStore, files: Files) -> dict[str, Any]:
    """Make the minibatches of some lots; those of each lot are stored in one object, in order."""
    bounds, size = plan["bounds"], plan["size"]
    first, end = plan["lots"][index]
    cutter = MinibatchCutter(plan["n_features"])
    heads = {
        piece: decode_head(objects.get(piece, 0, head_bytes(len(bounds) - 1)), len(bounds) - 1)
        for piece in plan["pieces"]
    }
    sizes, touched = [], []
    for lot in range(first, end):
        parts: list[SlottedRows] = []
        for piece, offsets in heads.items():
            begin, stop = int(offsets[lot]), int(offsets[lot + 1])
            if begin < stop:
                parts += decode_rows(objects.get(piece, begin, stop), plan["n_features"])
        rows = stacked(parts)
        rows = rows.taken(np.argsort(rows.slots, kind="stable"))
        expected = bounds[lot] * size + np.arange(plan["n_rows"][lot])
        if not np.array_equal(rows.slots, expected):
            raise RunError(f"lot {lot} has {len(rows.slots)} rows instead of {len(expected)}, or other ones")
        blobs, n_touched = [], 0
        for start in range(0, len(rows.y), size):
            minibatch = cutter(rows.X[start : start + size], rows.y[start : start + size])
            blobs.append(encode_minibatch(minibatch))
            n_touched += len(minibatch.ids)
        objects.put(plan["cut"].format(lot), b"".join([blob + bytes(-len(blob) % 8) for blob in blobs]))
        sizes.append([len(blob) for blob in blobs])
        touched.append(n_touched)
    return {"sizes": sizes, "touched": touched}


def bundle(plan: dict[str, Any], index: int, objects: ObjectStore, files: Files) -> dict[str, Any]:
    """Put minibatches together in some bundles."""
    for spec in plan["bundles"][index]:
        parts = [objects.get(key, begin, end) for key, begin, end in spec["parts"]]
        assert sum(map(len, parts)) == sum(map(padded, spec["sizes"])), "a part is missing"
        head = encode_head(spec["first"], spec["sizes"], spec["told"].encode())
        objects.put(spec["key"], b"".join([head, *parts]))
    return {}


def sum_columns(plan: dict[str, Any], index: int, objects: ObjectStore, files: Files) -> dict[str, Any]:
    """Sum the columns of the first training rows, or of all, in their order: one function does it."""
    is_kept = np.unpackbits(np.frombuffer(objects.get(plan["kept"]), np.uint8)).astype(bool)
    sums, at = ColumnSums(plan["n_features"]), 0

    def kept() -> Iterator[Any]:
        nonlocal at
        for X, y in _rows(plan, index, objects, files, lambda _: None):
            yield X[np.flatnonzero(is_kept[at : at + len(y)])]
            at += len(y)

    add_first(sums, kept(), plan["most"])
    objects.put(plan["sums"], sums.encode())
    return {"n": sums.n}


_WORK = {"scan": scan, "sum": sum_columns, "scatter": scatter, "cut": cut, "bundle": bundle}
