"""CSV and TSV files of numbers: one column is the label, the others are scaled to [0, 1]."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from ..frames.files import separator_of
from ..frames.locations import check_unchanged, located, name_of
from .format import BadLine, Facts, Float64, Format, extremes, scaled
from .minibatches import Float32
from .numbers import first_line, text_blocks, to_numbers
from .stream import CsrStream, Rows

if TYPE_CHECKING:
    from scipy.sparse import csr_array


@dataclass(frozen=True)
class _Layout:
    """The separator of a file's columns, their number, and the position of the label."""

    separator: bytes
    n_fields: int
    label: int
    has_header: bool


def csv(path: str | Path | Sequence[str | Path], label: str | int = "label") -> CsrStream:
    """A CSV or TSV file of numbers, with or without a header.

    Each column but the label's is scaled to [0, 1] by the least and greatest value in the file; a blank is 0.

    `table` reads files with text, categories and missing values, and leaves numbers as they are.

    The file is read once at the call, for the checks and the scaling, and again whenever rows are needed. It may be
    larger than memory, and compressed (.gz, .bz2, .xz).

    Parameters
    ----------
    path : path, glob, zip archive or URL of an object storage, or a list of these
        All files have the same header. Columns are separated by commas, semicolons or tabs; values are not quoted.
    label : str or int
        Name of the label's column, or its 0-based number; -1 is the last one.
    """
    files, format_ = located("path", path), CsvFormat(checked_label(label))
    first = first_line(files[0])
    layout = format_.layout(files[0].name, first)
    header = first if layout.has_header else None
    sha = hashlib.sha256(f"csv 1 {layout}".encode())
    facts: list[Facts] = [Facts()]
    labels: list[NDArray[np.float32]] = []
    for file in files:
        for block, number in text_blocks(file, header):
            sha.update(block)
            try:
                found, facts_here = format_.facts_of(block, layout)
            except BadLine as bad:
                raise bad.error(file.name, number) from None
            labels.append(found)
            facts.append(facts_here)
    merged = reduce(Facts.merged, facts)
    format_.check(path, merged)

    def read(keep: NDArray[np.bool_] | None) -> Iterator[Rows]:
        check_unchanged(files)
        at = 0
        for block, _ in chain.from_iterable(text_blocks(file, header) for file in files):
            X, y = format_.rows_of(block, layout, merged)
            taken = slice(None) if keep is None else np.flatnonzero(keep[at : at + len(y)])
            at += len(y)
            yield X[taken], y[taken]

    n_features = format_.n_features(layout, merged)
    return CsrStream(
        read, merged.n_rows, n_features, merged.n_values, sha.hexdigest(), name_of(files), np.concatenate(labels)
    )


def checked_label(label: object) -> str | int:
    """``label`` if it can name a column."""
    if isinstance(label, bool) or not isinstance(label, (str, int)):
        raise DataError("label", label, "the name of a column, or its 0-based number")
    return label


@dataclass(frozen=True)
class CsvFormat(Format):
    """See `csv`."""

    label: str | int = "label"
    kind: ClassVar[str] = "csv"
    has_bits: ClassVar[bool] = False

    def layout(self, place: object, first: bytes) -> _Layout:
        """See `Format`."""
        separator = separator_of(first)
        fields = [field.strip() for field in first.split(separator)]
        has_header = any(to_numbers(field) is None for field in fields)
        names = [field.strip(b'"').decode(errors="replace") for field in fields]
        if not has_header and isinstance(self.label, str):
            raise DataError("label", self.label, f"a column's number: {place} has no header")
        return _Layout(separator, len(fields), label_position(place, names, self.label), has_header)

    def facts_of(self, block: bytes, layout: _Layout) -> tuple[Float32, Facts]:
        """See `Format`."""
        labels, numeric = _columns(block, layout)
        low, high = extremes(numeric)
        return labels, Facts(len(labels), numeric.size, low=low, high=high)

    def rows_of(self, block: bytes, layout: _Layout, facts: Facts) -> tuple[csr_array, Float32]:
        """See `Format`."""
        labels, numeric = _columns(block, layout)
        return scaled_rows(numeric, facts), labels

    def n_features(self, layout: _Layout, facts: Facts) -> int:
        """See `Format`."""
        return layout.n_fields - 1


def label_position(place: object, names: Sequence[str], label: str | int) -> int:
    """The position of the label's column among ``names``; DataError if there is none, or no other column."""
    n = len(names)
    position = label + (n if label < 0 else 0) if isinstance(label, int) else -1
    if isinstance(label, str) and names.count(label) > 1:
        raise DataError("label", label, f"the name of one column of {place}, or its number; several have this name")
    if label in names:
        position = names.index(str(label))
    if not 0 <= position < n or n < 2:
        raise DataError(
            "label", label, f"one of the columns of {place}, of which there are two or more: {', '.join(names)}"
        )
    return position


def scaled_rows(numeric: Float64, facts: Facts) -> csr_array:
    """Scaled columns as CSR rows float32 (n, n_columns), without zeros."""
    from scipy.sparse import csr_array

    return csr_array(scaled(numeric, facts).astype(np.float32))


def _columns(block: bytes, layout: _Layout) -> tuple[Float32, Float64]:
    """(labels, the other columns with NaN where blank) of the lines that are not blank."""
    lines = block.replace(b"\r\n", b"\n").split(b"\n")[:-1]
    rows = [line.split(layout.separator) for line in lines if line]
    numbers = None
    if all(len(row) == layout.n_fields for row in rows):
        numbers = to_numbers(b" ".join([field.strip() or b"nan" for row in rows for field in row]))
    if numbers is not None and len(numbers) == len(rows) * layout.n_fields:
        table = numbers.reshape(len(rows), layout.n_fields)
        with np.errstate(over="ignore"):  # labels too large for float32 become infinite, and are refused
            labels = table[:, layout.label].astype(np.float32)
        if np.isfinite(labels).all() and not np.isinf(table).any():
            return labels, np.delete(table, layout.label, axis=1)
    raise _first_bad_line(lines, layout)


def _first_bad_line(lines: list[bytes], layout: _Layout) -> BadLine:
    fields = f"{layout.n_fields} numbers or blanks separated by {layout.separator.decode()!r}"
    valid = f"{fields}, with a finite label; datasets.table reads text and categories"
    for offset, line in enumerate(lines):
        row = line.split(layout.separator)
        found = [to_numbers(field.strip() or b"nan") for field in row]
        is_valid = len(row) == layout.n_fields and all(
            number is not None and len(number) == 1 and not np.isinf(number[0]) for number in found
        )
        if line and not (is_valid and np.isfinite(np.float32(float(row[layout.label].strip() or b"nan")))):
            return BadLine(offset, line, valid)
    return BadLine(0, None, valid)
