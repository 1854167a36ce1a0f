"""The interface of a file format: what is learnt of its rows in a first pass, and the rows themselves in a second one.

Both passes work on blocks of whole lines, in any order and on any machine. What the first pass finds in each block is
merged, and the second pass needs the merged facts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from .minibatches import Float32
from .numbers import line_blocks
from .spans import TAIL_BYTES, Chunks, Files, Span, line_chunks, shares

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Float64 = NDArray[np.float64]
#: Bytes of a stored file whose lines are its first block.
HEAD_BYTES = 4 << 20


class BadLine(ValueError):  # noqa: N818 - becomes a DataError where the file and the line's number are known
    """A line is not of its format.

    Parameters
    ----------
    offset : int
        Of the line in the block, 0-based.
    line : bytes or None
        None if it is not known which of the following lines it is.
    valid : str
        What would be valid.
    """

    def __init__(self, offset: int, line: bytes | None, valid: str) -> None:
        super().__init__(valid)
        self.offset, self.line, self.valid = offset, line, valid

    def error(self, place: object, first: int, unit: str = "line") -> DataError:
        """The error for the user; the block is of the file ``place`` and begins at line number ``first``."""
        if self.line is None:
            return DataError(f"{place}, from {unit} {first + self.offset}", "text", self.valid)
        return DataError(f"{place}, {unit} {first + self.offset}", self.line.decode(errors="replace"), self.valid)


@dataclass(frozen=True)
class Facts:
    """What a pass over rows has found.

    Attributes
    ----------
    n_rows, n_values : int
        Number of rows, and an upper bound of their non-zeros.
    width : int
        Largest index, 1-based, where rows have indices.
    labels : tuple of float
        The different labels, where the format allows few.
    low, high : tuple of float
        Least and greatest value of each column that is scaled; infinite if it is blank in all rows.
    """

    n_rows: int = 0
    n_values: int = 0
    width: int = 0
    labels: tuple[float, ...] = ()
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()

    def merged(self, other: Facts) -> Facts:
        """The facts of both sets of rows. The result does not depend on how rows were grouped."""
        return Facts(
            self.n_rows + other.n_rows,
            self.n_values + other.n_values,
            max(self.width, other.width),
            tuple(sorted({*self.labels, *other.labels})),
            tuple(map(min, self.low, other.low)) if self.low and other.low else self.low or other.low,
            tuple(map(max, self.high, other.high)) if self.high and other.high else self.high or other.high,
        )

    def to_json(self) -> dict[str, Any]:
        """The facts as plain JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, spec: dict[str, Any]) -> Facts:
        """The facts that ``to_json`` wrote."""
        fields: dict[str, Any] = {name: tuple(each) if isinstance(each, list) else each for name, each in spec.items()}
        return cls(**fields)


class Layout(Protocol):
    """What the first line of a file says about the others."""

    @property
    def has_header(self) -> bool:
        """Whether the first line names the columns."""


@dataclass(frozen=True)
class NoHeader:
    """The layout of files whose first line is like the others."""

    has_header: bool = False


class Format(ABC):
    """A format of files, of text unless methods are overridden; a frozen dataclass whose fields are plain JSON.

    Attributes
    ----------
    kind : str
    has_bits : bool
        Whether labels are 0 and 1, so that a bit is enough for each.
    unit : str
        What errors number.
    """

    kind: ClassVar[str]
    has_bits: ClassVar[bool] = True
    unit: ClassVar[str] = "line"

    @abstractmethod
    def layout(self, place: object, first: bytes) -> Any:
        """The `Layout` of a file named ``place`` that begins with the line ``first``; DataError if it has none."""

    @abstractmethod
    def facts_of(self, block: Any, layout: Any) -> tuple[NDArray[Any], Facts]:
        """(labels, facts) of a block; labels are bool or float32 (n,). Raises `BadLine`."""

    @abstractmethod
    def rows_of(self, block: Any, layout: Any, facts: Facts) -> tuple[csr_array, Float32]:
        """(X, labels) of a block; ``facts`` are those of all rows."""

    @abstractmethod
    def n_features(self, layout: Any, facts: Facts) -> int:
        """Number of columns of ``X``."""

    def n_lines(self, block: Any) -> int:
        """Lines of a block, blank ones too."""
        n_lines: int = block.count(b"\n")
        return n_lines

    def check(self, place: object, facts: Facts) -> None:
        """Raise DataError unless the rows of all blocks together are valid."""
        if not facts.n_rows:
            raise DataError("path", str(place), "a file with at least one row")

    def to_json(self) -> dict[str, Any]:
        """The format as plain JSON."""
        return {"kind": self.kind, **asdict(self)}  # type: ignore[call-overload]

    # -- stored files

    def first_line(self, files: Files, key: str, size: int) -> bytes:
        """The first line of a stored file, without its end and the mark of UTF-8 that spreadsheets write."""
        line = b""
        while b"\n" not in line and len(line) < size:
            line += files.get(key, len(line), min(len(line) + TAIL_BYTES, size))
        return line.removeprefix(BOM_UTF8).split(b"\n", 1)[0].rstrip(b"\r")

    def shares(self, files: Files, sizes: Sequence[tuple[str, int]], n: int) -> list[list[Span]]:
        """Stored files, keys with sizes in bytes, cut into at most ``n`` shares of about the same size."""
        return shares(sizes, n)

    def blocks(
        self,
        files: Files,
        spans: Sequence[Span],
        leaf: int,
        first: bytes,
        note: Callable[[bytes], None] = lambda _: None,
    ) -> Iterator[Any]:
        """The lines that begin in ``spans`` of stored files, in blocks, without headers.

        Parameters
        ----------
        leaf : int
            Size of a leaf, bytes.
        first : bytes
            The first line of the first file: if it is a header, each file must begin with it.
        note : callable
            Called with digests; all digests together identify the content, whatever the spans.
        """
        has_header = self.layout(spans[0].key, first).has_header
        parts = (self._chunks(files, span, leaf, first if has_header else None, note) for span in spans)
        # A read of one piece, as of one file: where blocks end does not depend on how many files there are.
        return line_blocks(Chunks(chain.from_iterable(parts)), spans[0].key)

    def first_block(self, files: Files, key: str, size: int, first: bytes) -> tuple[Any, float]:
        """The first lines of a stored file as one block, and what share of its rows they are, estimated."""
        span = Span(key, 0, min(size, HEAD_BYTES), size)
        return b"".join(self.blocks(files, [span], size, first)), span.end / size

    @staticmethod
    def _chunks(
        files: Files, span: Span, leaf: int, header: bytes | None, note: Callable[[bytes], None]
    ) -> Iterator[bytes]:
        chunks = line_chunks(files, span, leaf, note)
        if header is None or span.begin:
            yield from chunks
            return
        file = Chunks(chunks)
        line = file.readline().rstrip(b"\r\n")
        if line != header:
            valid = f"{header.decode(errors='replace')!r}, as in the first file"
            raise DataError(f"{span.key}, line 1", line.decode(errors="replace"), valid)
        yield from iter(file.rest, b"")


def scaled(numeric: Float64, facts: Facts) -> Float64:
    """Columns scaled to [0, 1] by the least and greatest value in all rows; blanks (NaN) become 0."""
    low, high = np.asarray(facts.low), np.asarray(facts.high)
    # A column with a single value carries no information: 0.
    span = np.where(high > low, high - low, np.inf)
    found: Float64 = np.nan_to_num((numeric - np.where(np.isfinite(low), low, 0)) / span, nan=0.0)
    return found


def extremes(numeric: Float64) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """(least, greatest) value of each column; infinite if all are blank (NaN)."""
    low, high = np.fmin.reduce(numeric, initial=np.inf), np.fmax.reduce(numeric, initial=-np.inf)
    return tuple(low.tolist()), tuple(high.tolist())
