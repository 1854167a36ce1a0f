"""Criteo display advertising: 13 numbers scaled to [0, 1] and 26 categories hashed, read as a stream."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import compress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from .checks import MOST_IDS, checked_count
from .minibatches import Float32
from .numbers import FileState, checked_path, line_blocks, open_bytes, to_numbers
from .stream import CsrStream, Rows

N_NUMERIC, N_CATEGORIES = 13, 26
COLUMNS = ("Label", *(f"I{k + 1}" for k in range(N_NUMERIC)), *(f"C{k + 1}" for k in range(N_CATEGORIES)))
Float64 = NDArray[np.float64]


@dataclass(frozen=True)
class _Layout:
    """The positions of the columns of `COLUMNS` in a line."""

    separator: bytes
    n_fields: int
    label: int
    numeric: tuple[int, ...]
    categories: tuple[int, ...]
    has_header: bool


def criteo(path: str | Path, n_features: int = 100_000) -> CsrStream:
    """Criteo click logs: Kaggle's TSV (no header), or CSV/TSV with a header Label, I1.., C1.. in any order.

    Feature ``k`` < 13 is number I(k+1) scaled to [0, 1] by the least and greatest value in the file; a blank is 0.
    Feature ``13 + h`` is the category whose MurmurHash3 (x86, 32 bits, seeded by the column) is ``h`` modulo
    ``n_features``; a blank is a category of its own. Categories of one row in the same bucket are added.

    The file is read once at the call, for the checks and the scaling, and again whenever rows are needed. It may be
    larger than memory, and compressed (.gz, .bz2, .xz).

    Parameters
    ----------
    path : path of the file
    n_features : int
        Buckets of the categories; the dataset has 13 more features.

    References
    ----------
    Weinberger et al. (2009): Feature hashing for large scale multitask learning. MLLess, section 6.1 (data sets).
    """
    file = checked_path("path", path)
    n_buckets = checked_count("n_features", n_features, most=MOST_IDS - 1 - N_NUMERIC)
    state = FileState.of(file)
    layout = _layout(file)
    # The header is not among the lines, and columns may be in any order.
    sha = hashlib.sha256(f"criteo 1 {layout}".encode())
    n_rows = 0
    is_one: list[NDArray[np.bool_]] = []
    low, high = np.full(N_NUMERIC, np.inf), np.full(N_NUMERIC, -np.inf)
    for lines, number in _lines(file, layout):
        sha.update(b"\n".join(lines) + b"\n")
        _, labels, numeric = _fields(file, layout, lines, number)
        is_one.append(labels > 0)
        low, high = np.fmin(low, np.fmin.reduce(numeric)), np.fmax(high, np.fmax.reduce(numeric))
        n_rows += len(lines)
    if not n_rows:
        raise DataError("path", str(path), "a file with at least one row")

    def read(keep: NDArray[np.bool_] | None) -> Iterator[Rows]:
        state.check_unchanged()
        at = 0
        for lines, number in _lines(file, layout):
            taken = lines if keep is None else list(compress(lines, keep[at : at + len(lines)].tolist()))
            at += len(lines)
            if taken:
                yield _features(file, layout, taken, number, low, high, n_buckets)

    content = f"{sha.hexdigest()} {n_buckets}"
    n_values = n_rows * (N_NUMERIC + N_CATEGORIES)
    name = f"Criteo {file.name}"
    return CsrStream(read, n_rows, N_NUMERIC + n_buckets, n_values, content, name, np.concatenate(is_one))


def _layout(path: Path) -> _Layout:
    with open_bytes(path) as file:
        first = file.readline().rstrip(b"\r\n")
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


def _lines(path: Path, layout: _Layout) -> Iterator[tuple[list[bytes], int]]:
    """(lines that are not blank, number of the first line), block by block."""
    with open_bytes(path) as file:
        number = 1
        if layout.has_header:
            file.readline()
            number = 2
        for block in line_blocks(file, path):
            lines = block.replace(b"\r\n", b"\n").split(b"\n")[:-1]
            filled = [line for line in lines if line]
            if filled:
                yield filled, number
            number += len(lines)


def _fields(
    path: Path, layout: _Layout, lines: list[bytes], first_number: int
) -> tuple[list[list[bytes]], Float32, Float64]:
    """(fields of each line, labels (n,), numbers (n, 13) with NaN where blank)."""
    rows = [line.split(layout.separator) for line in lines]
    n_fields, label, numeric = layout.n_fields, layout.label, layout.numeric
    is_wrong = [len(row) != n_fields or row[label] not in (b"0", b"1") for row in rows]
    numbers = None
    if not any(is_wrong):
        numbers = to_numbers(b" ".join([row[column] or b"nan" for row in rows for column in numeric]))
    if numbers is None or len(numbers) != len(rows) * N_NUMERIC or np.isinf(numbers).any():
        raise _first_bad_line(path, layout, lines, rows, first_number)
    labels = np.array([row[label] == b"1" for row in rows], np.float32)
    return rows, labels, numbers.reshape(len(rows), N_NUMERIC)


def _features(
    path: Path, layout: _Layout, lines: list[bytes], first_number: int, low: Float64, high: Float64, n_buckets: int
) -> Rows:
    """Lines as CSR rows and labels."""
    from mmh3 import hash as murmur
    from scipy.sparse import csr_array

    rows, labels, numeric = _fields(path, layout, lines, first_number)
    n = len(rows)
    indices = np.empty((n, N_NUMERIC + N_CATEGORIES), np.int64)
    values = np.ones((n, N_NUMERIC + N_CATEGORIES), np.float32)
    indices[:, :N_NUMERIC] = np.arange(N_NUMERIC)
    # A column with a single value carries no information: 0.
    span = np.where(high > low, high - low, np.inf)
    values[:, :N_NUMERIC] = np.nan_to_num((numeric - np.where(np.isfinite(low), low, 0)) / span, nan=0.0)
    for number, column in enumerate(layout.categories):
        hashes = np.array([murmur(row[column], number, False) for row in rows], np.int64)
        indices[:, N_NUMERIC + number] = N_NUMERIC + hashes % n_buckets
    is_stored = values != 0
    indptr = np.concatenate([[0], np.cumsum(is_stored.sum(axis=1))])
    X = csr_array((values[is_stored], indices[is_stored], indptr), shape=(n, N_NUMERIC + n_buckets))
    X.sum_duplicates()
    return X, labels


def _first_bad_line(
    path: Path, layout: _Layout, lines: list[bytes], rows: list[list[bytes]], first_number: int
) -> DataError:
    valid = f"{layout.n_fields} columns with label 0 or 1 and numbers or blanks in I1..I13"
    for number, (line, row) in enumerate(zip(lines, rows, strict=True), first_number):
        if len(row) == layout.n_fields and row[layout.label] in (b"0", b"1"):
            numbers = [to_numbers(row[column] or b"nan") for column in layout.numeric]
            if all(found is not None and len(found) == 1 and not np.isinf(found[0]) for found in numbers):
                continue
        return DataError(f"{path}, line {number}", line.decode(errors="replace"), valid)
    return DataError(f"{path}, from line {first_number}", "text", valid)
