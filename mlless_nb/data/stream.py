"""CSR rows that are read from a file whenever they are needed: the file may be larger than memory."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import itertools
import shutil
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack
from functools import cached_property
from typing import IO, TYPE_CHECKING, Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from ..errors import ServiceError
from ..plurals import count
from .csr import Csr
from .cutter import MinibatchCutter
from .dataset import Dataset
from .minibatches import CsrMinibatch, Float32
from .sampling import ORDER, check_size

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Rows = tuple["csr_array", Float32]
#: Reads the rows of a file in blocks; rows whose flag in the mask (one for each row of the file) is False are skipped.
Reader = Callable[[NDArray[np.bool_] | None], Iterator[Rows]]

#: Rows that are shuffled in memory at a time, bytes.
PART_BYTES = 128 << 20
#: Temporary files open at once; past 32 GiB of rows the parts grow instead.
MOST_PARTS = 256


class CsrStream(Dataset):
    """Sparse feature rows with labels, read from a file in blocks; made by ``mlless_nb.datasets``.

    More than 128 MiB of rows are shuffled through unnamed temporary files (in ``TMPDIR``, or the system's folder):
    every row is written to a randomly chosen file, and each file is shuffled in memory. That is a uniform shuffle of
    the whole set.

    Parameters
    ----------
    read : Reader
    n : int
        Number of rows in ``keep``.
    n_features : int
    n_values : int
        Upper bound of the non-zeros in all rows of the file.
    content : str
        Digest of the file and of how it is read.
    name : str
    labels : bool or float32 (rows of the file,)
        True stands for 1, False for 0.
    keep : bool (rows of the file,), optional
        The rows of this dataset; by default all.
    """

    kind = "csr"
    is_synthetic = False
    has_labels = True

    def __init__(
        self,
        read: Reader,
        n: int,
        n_features: int,
        n_values: int,
        content: str,
        name: str,
        labels: NDArray[Any],
        keep: NDArray[np.bool_] | None = None,
    ) -> None:
        self._labels = labels
        self._read, self._content, self._keep, self.n_values = read, content, keep, n_values
        self.n, self.shape, self.name = n, (n_features,), name

    @property
    def y(self) -> NDArray[Any]:
        """Labels, bool (True stands for 1, False for 0) or float32 (n,). Nothing is read for it."""
        return self._labels if self._keep is None else self._labels[self._keep]

    @property
    def nothing_to_learn(self) -> str:
        """See `Dataset`."""
        labels = self.y
        return f"all {self.n:,} labels are {self.label_text(labels[0])}" if bool((labels == labels[0]).all()) else ""

    @cached_property
    def _fingerprint(self) -> str:
        sha = hashlib.sha256(f"csr stream {self.shape} {self.n} {self._content}".encode())
        if self._keep is not None:
            sha.update(np.packbits(self._keep).data)
        return sha.hexdigest()

    def fingerprint(self) -> str:
        """See `Dataset`; made from the file's bytes, not from the rows."""
        return self._fingerprint

    def taken(self, mask: NDArray[np.bool_]) -> Self:
        """See `Dataset`. Nothing is read: a mask of the rows is stored."""
        if self._keep is None:
            keep = mask
        else:
            keep = self._keep.copy()
            keep[self._keep] = mask
        taken = self._changed(n=int(mask.sum()), _keep=keep)
        self._mark(taken, mask)
        return taken

    def _changed(self, **changes: Any) -> Self:
        """A copy with other attributes."""
        other = copy.copy(self)
        vars(other).pop("_fingerprint", None)  # it was computed for this one
        vars(other).update(changes)
        return other

    def with_rows(self, change: Callable[[Any], Any], key: str, n_more: int) -> Self:
        """See `Csr.with_rows`: ``change`` is called on every block when it is read."""

        def read(keep: NDArray[np.bool_] | None) -> Iterator[Rows]:
            return ((change(X), y) for X, y in self._read(keep))

        return self._changed(_read=read, n_values=self.n_values + n_more * self.n, _content=f"{self._content} {key}")

    def blocks(self) -> Iterator[Rows]:
        """The rows in stored order: (X csr_array float32 (k, n_features), y float32 (k,)) block by block."""
        return self._read(self._keep)

    def head(self, n: int, most_blocks: int) -> Csr:
        """The first ``n`` rows in memory, or those of the file's first ``most_blocks`` blocks, if they are fewer."""
        found: list[Rows] = []
        n_found = 0
        with contextlib.closing(cast("Generator[Rows, None, None]", self.blocks())) as blocks:
            for X, y in itertools.islice(blocks, most_blocks):
                found.append((X[: n - n_found], y[: n - n_found]))
                n_found += len(found[-1][1])
                if n_found >= n:
                    break
        X, y = _stacked(found)
        return Csr(X, y if self.has_labels else None, self.name)

    def load(self) -> Csr:
        """All rows in memory, as ``X`` and ``y``."""
        return Csr(*_stacked(self.blocks()), self.name)

    def minibatches(self, size: int, seed: int | None) -> Iterator[CsrMinibatch]:
        """See `Dataset`."""
        check_size(size)
        if seed is None:
            return _cut(self.blocks(), size, self.shape[0])
        if self.n_parts == 1:
            return self.load().minibatches(size, seed)
        return _cut(self._shuffled(self.n_parts, seed), size, self.shape[0])

    @property
    def n_parts(self) -> int:
        """Number of parts that rows are shuffled in, see `mlless_nb.data.sampling.part_order`."""
        return min(-(-self._n_bytes // PART_BYTES), MOST_PARTS)

    @property
    def ids_per_row(self) -> float:
        """See `Dataset`."""
        return self.n_values / len(self._labels)

    @property
    def most_bytes(self) -> int:
        """See `Dataset`."""
        return 24 * self.n_values + 16 * self.n

    @property
    def _n_bytes(self) -> int:
        """Upper bound of the size of the rows in memory, bytes."""
        return 8 * self.n_values + 12 * self.n

    def _shuffled(self, n_parts: int, seed: int) -> Iterator[Rows]:
        folder = tempfile.gettempdir()
        free = shutil.disk_usage(folder).free
        if free < self._n_bytes:
            raise ServiceError(
                f"shuffling {self.name} takes {self._n_bytes / 1e9:.1f} GB of temporary files and {folder} has "
                f"{free / 1e9:.1f} GB left: set TMPDIR to a folder with room"
            )
        rng = np.random.default_rng([seed, ORDER])
        with ExitStack() as files:
            # Unnamed files disappear however this process ends.
            parts = [files.enter_context(tempfile.TemporaryFile()) for _ in range(n_parts)]
            for X, y in self.blocks():
                part_of = rng.integers(n_parts, size=len(y))
                for number in np.unique(part_of):
                    rows = np.flatnonzero(part_of == number)
                    _spill(parts[number], X[rows], y[rows])
            for part in parts:
                if part.tell():
                    X, y = _stacked(_spilled(part, self.shape[0]))
                    order = rng.permutation(len(y))
                    yield X[order], y[order]
                part.close()

    def __repr__(self) -> str:
        return f"<CsrStream {self.name}: {count(self.n, 'row')}, {count(self.shape[0], 'feature')}, read from its file>"


def _stacked(blocks: Iterable[Rows]) -> Rows:
    """All blocks as one."""
    from scipy.sparse import vstack

    pairs = list(blocks)
    if len(pairs) == 1:
        return pairs[0]
    return vstack([X for X, _ in pairs], format="csr"), np.concatenate([y for _, y in pairs])


def _cut(blocks: Iterable[Rows], size: int, n_features: int) -> Iterator[CsrMinibatch]:
    """Minibatches of ``size`` rows from blocks of any size; the last may be short."""
    cut = MinibatchCutter(n_features)
    held: list[Rows] = []
    n_held = 0
    for X, y in blocks:
        held.append((X, y))
        n_held += len(y)
        if n_held < size:
            continue
        X, y = _stacked(held)
        whole = n_held - n_held % size
        for start in range(0, whole, size):
            yield cut(X[start : start + size], y[start : start + size])
        held, n_held = ([(X[whole:], y[whole:])] if whole < n_held else []), n_held - whole
    if held:
        yield cut(*_stacked(held))


def _spill(file: IO[bytes], X: Any, y: Float32) -> None:
    """Append rows: n, nnz (int64), indptr int64 (n + 1,), indices int32 (nnz,), values, labels float32."""
    file.write(np.array([len(y), X.nnz], np.int64).tobytes())
    for array, dtype in ((X.indptr, np.int64), (X.indices, np.int32), (X.data, np.float32), (y, np.float32)):
        file.write(np.ascontiguousarray(array, dtype).tobytes())


def _spilled(file: IO[bytes], n_features: int) -> Iterator[Rows]:
    """The rows that `_spill` appended."""
    from scipy.sparse import csr_array

    file.seek(0)
    while header := file.read(16):
        n, nnz = (int(count) for count in np.frombuffer(header, np.int64))
        indptr, indices = np.frombuffer(file.read(8 * n + 8), np.int64), np.frombuffer(file.read(4 * nnz), np.int32)
        values, y = np.frombuffer(file.read(4 * nnz), np.float32), np.frombuffer(file.read(4 * n), np.float32)
        yield csr_array((values, indices, indptr), shape=(n, n_features)), y
