"""Byte ranges of stored text files: how they are shared out among functions, and the whole lines that begin in them.

A line that lies in two ranges belongs to the one in which it begins. Ranges end at the multiples of a leaf, whose size
depends on the files only: the digests of the leaves, and so that of the content, are the same for any number of ranges.
"""

from __future__ import annotations

import hashlib
from bisect import bisect
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple, Protocol

from .numbers import BLOCK_BYTES

#: Least size of a leaf, bytes, and about how many leaves there are if they are larger.
LEAF_BYTES, N_LEAVES = 16, 4096
#: Bytes that are read at a time past the end of a range, until its last line ends.
TAIL_BYTES = 1 << 16


class Files(Protocol):
    """Stored files, of which byte ranges can be read: an object store as in `mlless_nb.storage.objects`."""

    gets: int
    puts: int

    def get(self, key: str, first: int = 0, end: int | None = None) -> bytes:
        """The bytes [first, end) under ``key``."""

    def sizes(self, prefix: str) -> dict[str, int]:
        """The sizes of the files whose keys begin with ``prefix``, bytes."""


class Span(NamedTuple):
    """The bytes [begin, end) of the object ``key``, which has ``size`` bytes."""

    key: str
    begin: int
    end: int
    size: int


def leaf_bytes(sizes: Iterable[int]) -> int:
    """The size of a leaf of files of these sizes, bytes."""
    return max(-(-sum(sizes) // N_LEAVES), LEAF_BYTES)


def shares(files: Sequence[tuple[str, int]], n: int) -> list[list[Span]]:
    """At most ``n`` shares of about the same number of leaves; together they are all files, in order.

    Parameters
    ----------
    files : sequence of (str, int)
        Key and size of each file; none is empty.
    n : int
    """
    leaf = leaf_bytes(size for _, size in files)
    ends = list(accumulate(-(-size // leaf) for _, size in files))  # numbers of leaves
    n = min(n, ends[-1])
    return [list(_share(files, ends, leaf, k * ends[-1] // n, (k + 1) * ends[-1] // n)) for k in range(n)]


def _share(files: Sequence[tuple[str, int]], ends: Sequence[int], leaf: int, first: int, end: int) -> Iterator[Span]:
    """The ranges of the leaves [first, end), counted through all files, of which ``ends`` has the last ones."""
    while first < end:
        number = bisect(ends, first)
        key, size = files[number]
        before, last = ends[number - 1] if number else 0, min(end, ends[number])
        yield Span(key, (first - before) * leaf, min((last - before) * leaf, size), size)
        first = last


def line_chunks(files: Files, span: Span, leaf: int, note: Callable[[bytes], None]) -> Iterator[bytes]:
    """The lines that begin in ``span``, in chunks of any size; a missing line end at the end of the file is added.

    The mark of UTF-8 that spreadsheets write at the begin of a file is left out.

    Parameters
    ----------
    leaf : int
        Size of a leaf, bytes.
    note : callable
        Called with the digest of each leaf of the span.
    """
    digests = _Leaves(leaf, note)
    at, is_inside, last = max(span.begin - 1, 0), span.begin == 0, b""
    while at < span.end:
        # Whether a line begins at the first byte can be seen from the byte before it.
        blob = files.get(span.key, at, min(at + BLOCK_BYTES, span.end))
        if len(blob) < min(BLOCK_BYTES, span.end - at):
            raise EOFError(f"{span.key} is shorter than {span.size} bytes")
        digests.add(blob[span.begin - at :] if at < span.begin else blob)
        n_read = len(blob)
        if not at:
            blob = blob.removeprefix(BOM_UTF8)
        at += n_read
        if not is_inside:
            cut = blob.find(b"\n") + 1
            if not cut:
                continue
            blob, is_inside = blob[cut:], True
        last = blob[-1:]
        if blob:
            yield blob
    digests.end()
    while last not in (b"", b"\n"):
        if at >= span.size:
            yield b"\n"
            return
        blob = files.get(span.key, at, min(at + TAIL_BYTES, span.size))
        at += len(blob)
        cut = blob.find(b"\n") + 1
        last = b"\n" if cut else blob[-1:]
        yield blob[:cut] if cut else blob


class _Leaves:
    """The digests of the leaves of a span, whose bytes come in parts."""

    def __init__(self, leaf: int, note: Callable[[bytes], None]) -> None:
        self._leaf, self._note = leaf, note
        self._sha, self._n = hashlib.sha256(), 0

    def add(self, blob: bytes) -> None:
        """The next bytes."""
        view = memoryview(blob)
        while view:
            part = view[: self._leaf - self._n]
            self._sha.update(part)
            self._n += len(part)
            view = view[len(part) :]
            if self._n == self._leaf:
                self.end()

    def end(self) -> None:
        """Note the leaf that has begun, if any."""
        if self._n:
            self._note(self._sha.digest())
        self._sha, self._n = hashlib.sha256(), 0


class Chunks:
    """Chunks of bytes as a file that can be read from its begin to its end."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks, self._rest = iter(chunks), b""

    def read(self, n: int) -> bytes:
        """The next ``n`` bytes; fewer at the end."""
        parts, missing = [self._rest[:n]], n - len(self._rest)
        self._rest = self._rest[n:]
        while missing > 0:
            chunk = next(self._chunks, b"")
            if not chunk:
                break
            parts.append(chunk[:missing])
            self._rest = chunk[missing:]
            missing -= len(chunk)
        return b"".join(parts)

    def rest(self) -> bytes:
        """The next bytes, as many as are at hand; b"" at the end."""
        rest, self._rest = self._rest, b""
        return rest or next(self._chunks, b"")

    def readline(self) -> bytes:
        """The next line with its end; b"" at the end."""
        line = self._rest
        while b"\n" not in line and (chunk := next(self._chunks, b"")):
            line += chunk
        cut = line.find(b"\n") + 1 or len(line)
        self._rest = line[cut:]
        return line[:cut]
