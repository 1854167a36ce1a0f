"""LIBSVM text: one line for each row, ``label index:value index:value ...``, indices from 1."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from ..frames.locations import Location, check_unchanged, located, name_of
from .checks import MOST_IDS, checked_count
from .csr import Csr
from .format import BadLine, Facts, Format, NoHeader
from .minibatches import Float32
from .numbers import text_blocks, to_numbers
from .stream import CsrStream, Rows

if TYPE_CHECKING:
    from scipy.sparse import csr_array

#: Rows larger than this are not kept in memory but read from their file whenever they are needed, bytes.
IN_MEMORY_BYTES = 1 << 30
VALID_LINE = (
    "'label index:value index:value ...' with label 0 or 1 (or -1 and 1), indices that differ, from 1, and numbers"
)


def libsvm(path: str | Path | Sequence[str | Path], n_features: int | None = None) -> Csr | CsrStream:
    """A file in LIBSVM format; decompressed while reading if its name ends in .gz, .bz2 or .xz.

    Parameters
    ----------
    path : path, glob, zip archive or URL of an object storage, or a list of these
        Labels are 0 and 1, or -1 and 1 (which become 0 and 1).
    n_features : int, optional
        By default the largest index in the file. For a test file, pass that of its training file.

    Returns
    -------
    Csr or CsrStream
        In memory up to 1 GiB; beyond that the rows are read from the file whenever they are needed.
    """
    files = located("path", path)
    n_features = checked_width(n_features)
    sha = hashlib.sha256(b"libsvm 1")
    kept: list[tuple[csr_array, Float32]] | None = []
    n_rows = n_values = width = 0
    label_values: set[float] = set()
    is_one: list[NDArray[np.bool_]] = []
    for X, labels, text in _blocks(files, n_features):
        sha.update(text)
        n_rows, n_values, width = n_rows + len(labels), n_values + X.nnz, max(width, X.shape[1])
        label_values |= set(np.unique(labels).tolist())
        is_one.append(labels > 0)
        if kept is not None:
            kept.append((X, labels))
            if 8 * n_values + 12 * n_rows > IN_MEMORY_BYTES:
                kept = None
    if not n_rows:
        raise DataError("path", str(path), "a file with at least one row")
    _check_labels(path, label_values)
    n_features = n_features or max(width, 1)

    def read(keep: NDArray[np.bool_] | None) -> Iterator[Rows]:
        check_unchanged(files)
        at = 0
        for X, labels, _ in _blocks(files, n_features):
            taken = slice(None) if keep is None else np.flatnonzero(keep[at : at + len(labels)])
            at += len(labels)
            yield X[taken], (labels[taken] > 0).astype(np.float32)

    if kept is None:
        content = f"{sha.hexdigest()} {n_features}"
        return CsrStream(read, n_rows, n_features, n_values, content, name_of(files), np.concatenate(is_one))
    from scipy.sparse import vstack

    for X, _ in kept:
        X.resize(X.shape[0], n_features)
    y = (np.concatenate([labels for _, labels in kept]) > 0).astype(np.float32)
    return Csr(vstack([X for X, _ in kept], format="csr", dtype=np.float32), y, name_of(files))


def checked_width(n_features: int | None) -> int | None:
    """``n_features`` if it is None or a number of features."""
    return None if n_features is None else checked_count("n_features", n_features, most=MOST_IDS - 1)


def _check_labels(place: object, values: Collection[float]) -> None:
    if -1.0 in values and 0.0 in values:
        raise DataError("path", str(place), "a file with labels 0 and 1, or -1 and 1; this one has -1 and 0")


@dataclass(frozen=True)
class LibsvmFormat(Format):
    """See `libsvm`."""

    features: int | None = None
    kind: ClassVar[str] = "libsvm"

    def layout(self, place: object, first: bytes) -> NoHeader:
        """See `Format`."""
        return NoHeader()

    def facts_of(self, block: bytes, layout: NoHeader) -> tuple[NDArray[np.bool_], Facts]:
        """See `Format`."""
        X, labels = _parsed(block, self.features)
        values = tuple(np.unique(labels).tolist())
        return labels > 0, Facts(len(labels), int(X.nnz), int(X.shape[1]), values)

    def rows_of(self, block: bytes, layout: NoHeader, facts: Facts) -> tuple[csr_array, Float32]:
        """See `Format`."""
        X, labels = _parsed(block, self.n_features(layout, facts))
        return X, (labels > 0).astype(np.float32)

    def n_features(self, layout: NoHeader, facts: Facts) -> int:
        """See `Format`."""
        return self.features or max(facts.width, 1)

    def check(self, place: object, facts: Facts) -> None:
        """See `Format`."""
        super().check(place, facts)
        _check_labels(place, facts.labels)


def _blocks(files: Sequence[Location], n_features: int | None) -> Iterator[tuple[csr_array, Float32, bytes]]:
    """(X, labels as in the file, text) block by block; without ``n_features``, X is as wide as its largest index."""
    for file in files:
        for text, number in text_blocks(file):
            try:
                X, labels = _parsed(text, n_features)
            except BadLine as bad:
                raise bad.error(file.name, number) from None
            if len(labels):
                yield X, labels, text


def _parsed(text: bytes, n_features: int | None) -> tuple[csr_array, Float32]:
    """(X, labels) of whole lines; `BadLine` if anything in them is invalid."""
    parsed = _parse(text, n_features)
    if parsed is None:
        raise _first_bad_line(text, n_features)
    return parsed


def _parse(text: bytes, n_features: int | None) -> tuple[csr_array, Float32] | None:
    """(X, labels) of whole lines; None if anything in them is invalid."""
    from scipy.sparse import csr_array

    if b"#" in text:
        text = re.sub(rb"#[^\n]*", b"", text)
    letters = np.frombuffer(text, np.uint8)
    is_space = letters <= 32
    token_starts = np.flatnonzero(~is_space & np.concatenate([[True], is_space[:-1]]))
    line_of = np.searchsorted(np.flatnonzero(letters == ord("\n")), token_starts)
    is_label = np.diff(line_of, prepend=-1) != 0
    colons = np.flatnonzero(letters == ord(":"))
    token_of_colon = np.searchsorted(token_starts, colons, side="right") - 1
    if not np.array_equal(token_of_colon, np.flatnonzero(~is_label)):  # one colon in every token that is not a label
        return None
    numbers = to_numbers(text.replace(b":", b" "))
    if numbers is None or len(numbers) != len(token_starts) + len(colons):
        return None
    at = np.arange(len(token_starts)) + np.cumsum(~is_label) - ~is_label
    labels, indices, values = numbers[at[is_label]], numbers[at[~is_label]], numbers[at[~is_label] + 1]
    with np.errstate(over="ignore"):  # values too large for float32 become infinite, and are refused
        values32 = values.astype(np.float32)
    most = n_features if n_features is not None else MOST_IDS - 1
    if not (
        np.isin(labels, (-1, 0, 1)).all()
        and (indices == np.floor(indices)).all()
        and ((indices >= 1) & (indices <= most)).all()
        and np.isfinite(values32).all()
    ):
        return None
    indptr = np.append(np.flatnonzero(is_label) - np.arange(len(labels)), len(indices))
    width = n_features if n_features is not None else int(indices.max(initial=1))
    X = csr_array((values32, (indices - 1).astype(np.int32), indptr), shape=(len(labels), width))
    X.sort_indices()
    return (X, labels.astype(np.float32)) if X.has_canonical_format else None


def _first_bad_line(text: bytes, n_features: int | None) -> BadLine:
    valid = VALID_LINE if n_features is None else f"{VALID_LINE}; indices up to n_features={n_features}"
    for offset, line in enumerate(text.split(b"\n")):
        if _parse(line + b"\n", n_features) is None:
            return BadLine(offset, line, valid)
    return BadLine(0, None, valid)
