"""Text files of numbers, read in blocks of whole lines."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from ..frames.locations import UNREADABLE, LocalFile, Location

#: Bytes of text read and converted at once: of the first block, and of most; each is twice as large as the one before,
#: so that who needs a file's first rows only has them soon.
FIRST_BYTES, BLOCK_BYTES = 256 << 10, 8 << 20
#: Longest line, bytes.
LINE_BYTES = 64 << 20


class Readable(Protocol):
    """What text is read from: a file, or the chunks of a stored one."""

    def read(self, n: int, /) -> bytes:
        """The next ``n`` bytes; fewer at the end."""


def line_blocks(file: Readable, path: Path | str) -> Iterator[bytes]:
    """The rest of ``file`` in blocks of whole lines; a missing line end at the end of the file is added.

    Raises
    ------
    DataError
        When the file cannot be decompressed, or has a line longer than `LINE_BYTES`.
    """
    rest, n = b"", min(FIRST_BYTES, BLOCK_BYTES)
    while block := _read(file, path, n):
        n = min(2 * n, BLOCK_BYTES)
        end = block.rfind(b"\n") + 1
        if end:
            yield rest + block[:end]
            rest = block[end:]
        else:
            rest += block
        if len(rest) > LINE_BYTES:
            raise DataError("path", str(path), f"a text file with lines shorter than {LINE_BYTES >> 20} MiB")
    if rest:
        yield rest + b"\n"


def _read(file: Any, path: Path | str, n: int, how: str = "read") -> bytes:
    try:
        found: bytes = getattr(file, how)(n)
        return found
    except UNREADABLE as error:
        raise DataError("path", str(path), f"a file that can be read to its end ({error})") from None


def to_numbers(text: bytes) -> NDArray[np.float64] | None:
    """All numbers in ``text``, separated by white space; None if anything in it is not a number."""
    if not text or text.isspace():
        return np.empty(0)
    with warnings.catch_warnings():
        # NumPy stops at the first text that is not a number, and only warns. The filter names this one warning,
        # because filters are global and other threads may be importing modules.
        warnings.filterwarnings("error", "string or file could not be read", DeprecationWarning)
        try:
            return np.fromstring(text, np.float64, sep=" ")
        except (DeprecationWarning, ValueError):
            return None


def text_blocks(file: Location, header: bytes | None = None) -> Iterator[tuple[bytes, int]]:
    """(whole lines, number of the first one) of a file, block by block; without its first line, which is ``header``.

    Raises
    ------
    DataError
        When the file begins with another line.
    """
    number = 1
    with file.text() as opened:
        if header is not None:
            first, number = opened.readline().rstrip(b"\r\n"), 2
            if first != header:
                valid = f"{header.decode(errors='replace')!r}, as in the first file"
                raise DataError(f"{file.name}, line 1", first.decode(errors="replace"), valid)
        for block in line_blocks(opened, file.name):
            yield block, number
            number += block.count(b"\n")


def first_line(file: Location) -> bytes:
    """The first line of a text file, without its end."""
    with file.text() as opened:
        return _read(opened, file.name, LINE_BYTES, "readline").rstrip(b"\r\n")


def number_blocks(path: Path, separator: bytes, n_columns: int, skip_lines: int = 0) -> Iterator[NDArray[np.float64]]:
    """The first ``n_columns`` columns of a file of numbers, float64 (k, n_columns), block by block.

    Raises
    ------
    DataError
        When a line differs from the others (the message names it), or there are no lines.
    """
    n_fields = 0
    line_number = 1 + skip_lines
    with LocalFile.of(path).text() as file:
        for _ in range(skip_lines):
            file.readline()
        for block in line_blocks(file, path):
            n_lines = block.count(b"\n")
            n_fields = n_fields or block[: block.index(b"\n")].count(separator) + 1
            numbers = to_numbers(block.replace(separator, b" ")) if n_fields >= n_columns else None
            # The total alone would accept a long line after a short one.
            per_line = np.fromiter((line.count(separator) for line in block.split(b"\n")[:-1]), np.int64, n_lines)
            if numbers is None or len(numbers) != n_lines * n_fields or not bool((per_line == n_fields - 1).all()):
                raise _first_bad_line(path, block, line_number, separator, n_fields, n_columns)
            yield numbers.reshape(n_lines, n_fields)[:, :n_columns]
            line_number += n_lines
    if line_number == 1 + skip_lines:
        raise DataError(str(path), "an empty file", f"lines of {n_columns} or more numbers")


def _first_bad_line(
    path: Path, block: bytes, first_number: int, separator: bytes, n_fields: int, n_columns: int
) -> DataError:
    valid = f"{max(n_fields, n_columns)} numbers separated by {separator.decode()!r}"
    for number, line in enumerate(block.splitlines(), first_number):
        fields = line.split(separator)
        try:
            if len(fields) == n_fields >= n_columns and [float(field) for field in fields]:
                continue
        except ValueError:
            pass
        return DataError(f"{path}, line {number}", line.decode(errors="replace"), valid)
    return DataError(f"{path}, from line {first_number}", "text", valid)
