"""Criteo display advertising: 13 numbers scaled to [0, 1] and 26 categories hashed, read as a stream."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, compress
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from ..frames.locations import check_unchanged, located, name_of
from .checks import MOST_IDS, checked_count
from .format import BadLine, Facts, Float64, Format, extremes, scaled
from .minibatches import Float32
from .numbers import first_line, text_blocks, to_numbers
from .stream import CsrStream, Rows

N_NUMERIC, N_CATEGORIES = 13, 26
COLUMNS = ("Label", *(f"I{k + 1}" for k in range(N_NUMERIC)), *(f"C{k + 1}" for k in range(N_CATEGORIES)))


@dataclass(frozen=True)
class _Layout:
    """The positions of the columns of `COLUMNS` in a line."""

    separator: bytes
    n_fields: int
    label: int
    numeric: tuple[int, ...]
    categories: tuple[int, ...]
    has_header: bool


def criteo(path: str | Path | Sequence[str | Path], n_features: int = 100_000) -> CsrStream:
    """Criteo click logs: Kaggle's TSV (no header), or CSV/TSV with a header Label, I1.., C1.. in any order.

    Feature ``k`` < 13 is number I(k+1) scaled to [0, 1] by the least and greatest value in the file; a blank is 0.
    Feature ``13 + h`` is the category whose MurmurHash3 (x86, 32 bits, seeded by the column) is ``h`` modulo
    ``n_features``; a blank is a category of its own. Categories of one row in the same bucket are added.

    The file is read once at the call, for the checks and the scaling, and again whenever rows are needed. It may be
    larger than memory, and compressed (.gz, .bz2, .xz).

    Parameters
    ----------
    path : path, glob, zip archive or URL of an object storage, or a list of these
    n_features : int
        Buckets of the categories; the dataset has 13 more features.

    References
    ----------
    Weinberger et al. (2009): Feature hashing for large scale multitask learning. MLLess, section 6.1 (data sets).
    """
    files = located("path", path)
    n_buckets = checked_buckets(n_features)
    first = first_line(files[0])
    layout = _layout(files[0].name, first)
    header = first if layout.has_header else None
    format_ = CriteoFormat(n_buckets)
    # The header is not among the lines, and columns may be in any order.
    sha = hashlib.sha256(f"criteo 1 {layout}".encode())
    facts = Facts()
    is_one: list[NDArray[np.bool_]] = []
    for file in files:
        for block, number in text_blocks(file, header):
            sha.update(b"".join([line + b"\n" for line in _lines(block) if line]))
            try:
                labels, found = format_.facts_of(block, layout)
            except BadLine as bad:
                raise bad.error(file.name, number) from None
            is_one.append(labels)
            facts = facts.merged(found)
    format_.check(path, facts)

    def read(keep: NDArray[np.bool_] | None) -> Iterator[Rows]:
        check_unchanged(files)
        at = 0
        for block, _ in chain.from_iterable(text_blocks(file, header) for file in files):
            lines = [line for line in _lines(block) if line]
            taken = lines if keep is None else list(compress(lines, keep[at : at + len(lines)].tolist()))
            at += len(lines)
            if taken:
                yield _features(taken, layout, facts, n_buckets)

    content, n_columns = f"{sha.hexdigest()} {n_buckets}", format_.n_features(layout, facts)
    name = f"Criteo {name_of(files)}"
    return CsrStream(read, facts.n_rows, n_columns, facts.n_values, content, name, np.concatenate(is_one))


def checked_buckets(n_features: int) -> int:
    """``n_features`` if it is a number of buckets."""
    return checked_count("n_features", n_features, most=MOST_IDS - 1 - N_NUMERIC)


@dataclass(frozen=True)
class CriteoFormat(Format):
    """See `criteo`."""

    buckets: int
    kind: ClassVar[str] = "criteo"

    def layout(self, place: object, first: bytes) -> _Layout:
        """See `Format`."""
        return _layout(place, first)

    def facts_of(self, block: bytes, layout: _Layout) -> tuple[NDArray[np.bool_], Facts]:
        """See `Format`."""
        _, labels, numeric = _fields(_lines(block), layout)
        low, high = extremes(numeric)
        return labels > 0, Facts(len(labels), len(labels) * (N_NUMERIC + N_CATEGORIES), low=low, high=high)

    def rows_of(self, block: bytes, layout: _Layout, facts: Facts) -> Rows:
        """See `Format`."""
        return _features(_lines(block), layout, facts, self.buckets)

    def n_features(self, layout: _Layout, facts: Facts) -> int:
        """See `Format`."""
        return N_NUMERIC + self.buckets


def _layout(path: object, first: bytes) -> _Layout:
    separator = b"\t" if b"\t" in first else b","
    fields = first.split(separator)
    names = [field.strip().decode(errors="replace") for field in fields]
    if "Label" in names or "C1" in names:
        missing = [column for column in COLUMNS if column not in names]
        if missing:
            raise DataError(f"{path}, header", first.decode(errors="replace"), f"with a column {', '.join(missing)}")
        at = [names.index(column) for column in COLUMNS]
    elif len(fields) == len(COLUMNS):
        at = list(range(len(COLUMNS)))
    else:
        raise DataError(
            f"{path}, line 1",
            first.decode(errors="replace"),
            "a header with Label, I1..I13, C1..C26, or these 40 columns separated by tabs",
        )
    last_number = 1 + N_NUMERIC
    has_header = "Label" in names
    return _Layout(separator, len(fields), at[0], tuple(at[1:last_number]), tuple(at[last_number:]), has_header)


def _lines(block: bytes) -> list[bytes]:
    """The lines of a block without their ends; blank ones are empty."""
    return block.replace(b"\r\n", b"\n").split(b"\n")[:-1]


def _fields(lines: list[bytes], layout: _Layout) -> tuple[list[list[bytes]], Float32, Float64]:
    """(fields of each line that is not blank, labels (n,), numbers (n, 13) with NaN where blank)."""
    rows = [line.split(layout.separator) for line in lines if line]
    n_fields, label, numeric = layout.n_fields, layout.label, layout.numeric
    is_wrong = [len(row) != n_fields or row[label] not in (b"0", b"1") for row in rows]
    numbers = None
    if not any(is_wrong):
        numbers = to_numbers(b" ".join([row[column] or b"nan" for row in rows for column in numeric]))
    if numbers is None or len(numbers) != len(rows) * N_NUMERIC or np.isinf(numbers).any():
        raise _first_bad_line(lines, layout)
    labels = np.array([row[label] == b"1" for row in rows], np.float32)
    return rows, labels, numbers.reshape(len(rows), N_NUMERIC)


def _features(lines: list[bytes], layout: _Layout, facts: Facts, n_buckets: int) -> Rows:
    """Lines as CSR rows and labels."""
    from mmh3 import hash as murmur
    from scipy.sparse import csr_array

    rows, labels, numeric = _fields(lines, layout)
    n = len(rows)
    indices = np.empty((n, N_NUMERIC + N_CATEGORIES), np.int64)
    values = np.ones((n, N_NUMERIC + N_CATEGORIES), np.float32)
    indices[:, :N_NUMERIC] = np.arange(N_NUMERIC)
    values[:, :N_NUMERIC] = scaled(numeric, facts)
    for number, column in enumerate(layout.categories):
        hashes = np.array([murmur(row[column], number, False) for row in rows], np.int64)
        indices[:, N_NUMERIC + number] = N_NUMERIC + hashes % n_buckets
    is_stored = values != 0
    indptr = np.concatenate([[0], np.cumsum(is_stored.sum(axis=1))])
    X = csr_array((values[is_stored], indices[is_stored], indptr), shape=(n, N_NUMERIC + n_buckets))
    X.sum_duplicates()
    return X, labels


def _first_bad_line(lines: list[bytes], layout: _Layout) -> BadLine:
    valid = f"{layout.n_fields} columns with label 0 or 1 and numbers or blanks in I1..I13"
    for offset, line in enumerate(lines):
        row = line.split(layout.separator)
        if line and len(row) == layout.n_fields and row[layout.label] in (b"0", b"1"):
            numbers = [to_numbers(row[column] or b"nan") for column in layout.numeric]
            if all(found is not None and len(found) == 1 and not np.isinf(found[0]) for found in numbers):
                continue
        if line:
            return BadLine(offset, line, valid)
    return BadLine(0, None, valid)
