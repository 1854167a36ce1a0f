"""Parquet files of numbers: one column is the label, the others are scaled to [0, 1]. Needs pyarrow.

Functions share out row groups: the range of a share counts these instead of bytes.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import json
from bisect import bisect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate, chain, groupby, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from ..frames.locations import check_unchanged, located, name_of
from .csv import checked_label, label_position, scaled_rows
from .format import BadLine, Facts, Float64, Format, extremes
from .minibatches import Float32
from .spans import Files, Span
from .stream import CsrStream, Rows

if TYPE_CHECKING:
    from scipy.sparse import csr_array

#: Bytes at the end of a file that are read first: they hold the footer of most files.
FOOTER_BYTES = 1 << 16


def check_pyarrow() -> None:
    """Raise DataError unless pyarrow is installed."""
    if importlib.util.find_spec("pyarrow") is None:
        raise DataError("format", "parquet", "used with pyarrow, which is missing: pip install 'mlless_nb[parquet]'")


def parquet(path: str | Path | Sequence[str | Path], label: str | int = "label") -> CsrStream:
    """A Parquet file of numbers; without a value means 0.

    Each column but the label's is scaled to [0, 1] by the least and greatest value in the file. The file is read once
    at the call, for the checks and the scaling, and again whenever rows are needed. It may be larger than memory.
    ``pip install 'mlless_nb[parquet]'`` installs what reads it.

    Parameters
    ----------
    path : path, glob, zip archive or URL of an object storage, or a list of these
        All files have the same columns.
    label : str or int
        Name of the label's column, or its 0-based number; -1 is the last one.
    """
    check_pyarrow()
    files, form = located("path", path), ParquetFormat(checked_label(label))
    with _opened(files[0].opened(), files[0].name) as opened:
        first = _first(opened)
    layout = form.layout(files[0].name, first)
    sha = hashlib.sha256(f"parquet 1 {first!r} {layout.label}".encode())
    facts, labels = [Facts()], []
    for file in files:
        number = 1
        for block in _groups(file.opened(), file.name, None, first):
            sha.update(block.tobytes())
            try:
                found, facts_here = form.facts_of(block, layout)
            except BadLine as bad:
                raise bad.error(file.name, number, form.unit) from None
            number += len(block)
            labels.append(found)
            facts.append(facts_here)
    merged = reduce(Facts.merged, facts)
    form.check(path, merged)

    def read(keep: NDArray[np.bool_] | None) -> Iterator[Rows]:
        check_unchanged(files)
        at = 0
        for block in chain.from_iterable(_groups(file.opened(), file.name, None, first) for file in files):
            X, y = form.rows_of(block, layout, merged)
            taken = slice(None) if keep is None else np.flatnonzero(keep[at : at + len(y)])
            at += len(y)
            yield X[taken], y[taken]

    content = merged.n_rows, form.n_features(layout, merged), merged.n_values, sha.hexdigest(), name_of(files)
    return CsrStream(read, *content, np.concatenate(labels))


@dataclass(frozen=True)
class _Layout:
    """The position of the label among the columns, and their number."""

    label: int
    n_columns: int
    has_header: bool = False


@dataclass(frozen=True)
class ParquetFormat(Format):
    """See `parquet`. The "first line" of a file is the list of its columns' names, as JSON."""

    label: str | int = "label"
    kind: ClassVar[str] = "parquet"
    has_bits: ClassVar[bool] = False
    unit: ClassVar[str] = "row"

    def layout(self, place: object, first: bytes) -> _Layout:
        """See `Format`."""
        names: list[str] = json.loads(first)
        return _Layout(label_position(place, names, self.label), len(names))

    def facts_of(self, block: Float64, layout: _Layout) -> tuple[Float32, Facts]:
        """See `Format`."""
        with np.errstate(over="ignore"):  # labels too large for float32 become infinite, and are refused
            labels = block[:, layout.label].astype(np.float32)
        is_bad = ~np.isfinite(labels) | np.isinf(block).any(axis=1)
        if is_bad.any():
            at = int(np.flatnonzero(is_bad)[0])
            row = " ".join(f"{value:g}" for value in block[at])
            raise BadLine(at, row.encode(), "numbers or missing values, with a finite label")
        numeric = np.delete(block, layout.label, axis=1)
        low, high = extremes(numeric)
        return labels, Facts(len(labels), numeric.size, low=low, high=high)

    def rows_of(self, block: Float64, layout: _Layout, facts: Facts) -> tuple[csr_array, Float32]:
        """See `Format`."""
        return scaled_rows(np.delete(block, layout.label, axis=1), facts), block[:, layout.label].astype(np.float32)

    def n_features(self, layout: _Layout, facts: Facts) -> int:
        """See `Format`."""
        return layout.n_columns - 1

    def n_lines(self, block: Float64) -> int:
        """Rows of a block."""
        return len(block)

    def first_line(self, files: Files, key: str, size: int) -> bytes:
        """The names of the columns."""
        with _opened(RangeFile(files, key, size), key) as opened:
            return _first(opened)

    def shares(self, files: Files, sizes: Sequence[tuple[str, int]], n: int) -> list[list[Span]]:
        """Row groups, shared out by their bytes. The footers of all files are read for it."""
        groups: list[tuple[Span, int]] = []
        for key, size in sizes:
            with _opened(RangeFile(files, key, size), key) as opened:
                meta = opened.metadata
                if not meta.num_rows:
                    raise DataError("path", key, "a file with at least one row")
                for number in range(meta.num_row_groups):
                    span = Span(key, number, number + 1, size)
                    groups.append((span, max(meta.row_group(number).total_byte_size, 1)))
        ends = list(accumulate(n_bytes for _, n_bytes in groups))
        # A row group goes to the share in which its middle lies.
        n = min(n, len(groups))
        middles = [end - n_bytes / 2 for end, (_, n_bytes) in zip(ends, groups, strict=True)]
        cuts = sorted({0, len(groups), *(bisect(middles, ends[-1] * k / n) for k in range(1, n))})
        return [_merged([span for span, _ in groups[first:end]]) for first, end in pairwise(cuts)]

    def blocks(
        self,
        files: Files,
        spans: Sequence[Span],
        leaf: int,
        first: bytes,
        note: Callable[[bytes], None] = lambda _: None,
    ) -> Iterator[Float64]:
        """A block for each row group: float64 (n, n_columns), NaN where there is no value."""
        for span in spans:
            for block in _groups(RangeFile(files, span.key, span.size), span.key, range(span.begin, span.end), first):
                note(hashlib.sha256(block.tobytes()).digest())
                yield block

    def first_block(self, files: Files, key: str, size: int, first: bytes) -> tuple[Float64, float]:
        """See `Format`: the first row group."""
        source = RangeFile(files, key, size)
        with _opened(source, key) as opened:
            n_rows = max(opened.metadata.num_rows, 1)
        [block] = _groups(source, key, range(1), first)
        return block, len(block) / n_rows


def _merged(spans: Sequence[Span]) -> list[Span]:
    """Neighbouring row groups of a file as one span."""
    found = []
    for _, same in groupby(spans, key=lambda span: span.key):
        parts = list(same)
        found.append(parts[0]._replace(end=parts[-1].end))
    return found


class RangeFile(io.RawIOBase):
    """A stored file that is read by byte ranges; what was read ahead is served from memory."""

    def __init__(self, files: Files, key: str, size: int) -> None:
        super().__init__()
        self._files, self._key, self._size, self._at = files, key, size, 0
        self._begin, self._ahead = 0, b""
        self.read_ahead(max(size - FOOTER_BYTES, 0), size)

    def read_ahead(self, begin: int, end: int) -> None:
        """Read the bytes [begin, end) now."""
        self._begin, self._ahead = begin, self._files.get(self._key, begin, end)

    def readable(self) -> bool:
        """See `io.IOBase`."""
        return True

    def seekable(self) -> bool:
        """See `io.IOBase`."""
        return True

    def tell(self) -> int:
        """See `io.IOBase`."""
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        """See `io.IOBase`."""
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def read(self, n: int | None = -1) -> bytes:
        """See `io.RawIOBase`."""
        begin, end = self._at, self._size if n is None or n < 0 else min(self._at + n, self._size)
        self._at = max(end, begin)
        if begin >= end:
            return b""
        if self._begin <= begin and end <= self._begin + len(self._ahead):
            return self._ahead[begin - self._begin : end - self._begin]
        return self._files.get(self._key, begin, end)


def _opened(source: Any, place: object) -> Any:
    """The Parquet file in ``source``."""
    import pyarrow
    from pyarrow.parquet import ParquetFile

    try:
        return ParquetFile(source)
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError("path", str(place), f"a Parquet file ({' '.join(str(error).split())})") from None


def _first(opened: Any) -> bytes:
    """The names of the columns, as JSON."""
    return json.dumps(opened.schema_arrow.names).encode()


def _groups(source: Any, place: object, numbers: range | None, first: bytes) -> Iterator[Float64]:
    """Row groups as arrays float64 (n, n_columns); the file must have the columns of ``first``."""
    import pyarrow

    with _opened(source, place) as opened:
        if _first(opened) != first:
            raise DataError(str(place), _first(opened).decode(), f"a file with the columns {first.decode()}")
        for number in numbers if numbers is not None else range(opened.metadata.num_row_groups):
            if isinstance(source, RangeFile):
                source.read_ahead(*_span_of(opened.metadata.row_group(number)))
            try:
                table = opened.read_row_group(number, use_threads=False)
            except (pyarrow.ArrowException, OSError) as error:
                raise DataError("path", str(place), f"a Parquet file ({' '.join(str(error).split())})") from None
            yield np.stack([_column(place, name, table.column(k)) for k, name in enumerate(table.column_names)], axis=1)


def _span_of(group: Any) -> tuple[int, int]:
    """The byte range of a row group."""
    begins, ends = [], []
    for number in range(group.num_columns):
        column = group.column(number)
        begin = column.data_page_offset
        if column.dictionary_page_offset is not None:
            begin = min(begin, column.dictionary_page_offset)
        begins.append(begin)
        ends.append(begin + column.total_compressed_size)
    return min(begins), max(ends)


def _column(place: object, name: str, column: Any) -> Float64:
    """A column as float64, NaN where there is no value."""
    import pyarrow

    kind = column.type
    types = pyarrow.types
    if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
        raise DataError(f"{place}, column {name!r}", str(kind), "numbers")
    if types.is_boolean(kind):
        column = column.cast(pyarrow.int8())
    values: Float64 = column.to_numpy().astype(np.float64)
    return values
