"""Files in the object storage as training data: the notebook never holds their rows, functions prepare them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from ..plurals import count
from ..validation import specification
from . import libsvm
from .checks import checked_count
from .criteo import CriteoFormat, checked_buckets
from .csv import CsvFormat, checked_label
from .dataset import Dataset
from .format import Facts, Format
from .libsvm import LibsvmFormat
from .minibatches import Float32
from .parquet import ParquetFormat, check_pyarrow
from .sampling import part_order
from .spans import Files, leaf_bytes
from .stream import CsrStream, Rows

#: The formats by name, and the arguments that each takes beside the prefix.
FORMATS: dict[str, type[Format]] = {each.kind: each for each in (LibsvmFormat, CriteoFormat, CsvFormat, ParquetFormat)}
#: Most functions that prepare data at once.
MOST_FUNCTIONS = 1000
#: Buckets of Criteo's categories, as `mlless_nb.data.criteo` has them.
BUCKETS = 100_000


def format_from_json(spec: dict[str, Any]) -> Format:
    """The format that ``to_json`` wrote."""
    fields = dict(spec)
    return FORMATS[fields.pop("kind")](**fields)


@specification
@dataclass(frozen=True)
class StoredFiles(Dataset):
    """All objects whose keys begin with a prefix, as one data set: ``data`` or ``validation`` of a `TrainingJob`.

    Functions count and check the rows, scale and hash them, and cut them into minibatches, when a run starts; the run's
    budget pays for them. The minibatches are the same bit for bit as those of one file with the same lines that is read
    by ``mlless_nb.datasets``, whatever the number of functions. Later runs on the same files use them again.

    Parameters
    ----------
    prefix : str
        "bucket/prefix", in the object storage of the job's backend. Objects are taken in the order of their keys;
        those whose name begins with "_" or "." are left out.
    format : {"libsvm", "criteo", "csv", "parquet"}
        As in ``datasets``. Text is not compressed. All files have the same header, or columns.
    functions : int
        Most functions that work at once, at most 1,000.
    n_features : int, optional
        Of "libsvm" and "criteo", see there.
    label : str or int, optional
        Of "csv" and "parquet", see there.
    """

    prefix: str
    format: str
    functions: int = 8
    n_features: int | None = None
    label: str | int | None = None
    kind: ClassVar[str] = "csr"

    def __post_init__(self) -> None:
        vars(self).update(name=self.prefix, is_synthetic=False)
        if not isinstance(self.prefix, str) or not all(self.place):
            raise DataError("prefix", self.prefix, "'bucket/prefix', e.g. 'my-bucket/criteo/part-'")
        if self.format not in FORMATS:
            raise DataError("format", self.format, "one of " + ", ".join(map(repr, FORMATS)))
        if self.format == ParquetFormat.kind:
            check_pyarrow()
        checked_count("functions", self.functions, most=MOST_FUNCTIONS)
        has_label = self.format not in (LibsvmFormat.kind, CriteoFormat.kind)
        if self.label is not None and not has_label:
            raise DataError("label", self.label, f"left out with format={self.format!r}, which has its own labels")
        if self.n_features is not None and has_label:
            raise DataError("n_features", self.n_features, f"left out with format={self.format!r}: it is counted")
        _ = self.form  # checks its arguments

    @property
    def place(self) -> tuple[str, str]:
        """(bucket, prefix of the keys)."""
        bucket, _, prefix = self.prefix.rpartition("://")[2].partition("/")
        return bucket, prefix

    @property
    def form(self) -> Format:
        """The format with its arguments."""
        if self.format == CriteoFormat.kind:
            return CriteoFormat(checked_buckets(self.n_features or BUCKETS))
        if self.format == LibsvmFormat.kind:
            return LibsvmFormat(libsvm.checked_width(self.n_features))
        return FORMATS[self.format](checked_label("label" if self.label is None else self.label))  # type: ignore[call-arg]

    def _unknown(self, *_: Any) -> Any:
        """What depends on the rows is not known before functions have read them."""
        raise DataError("data", self, "rows that are here, e.g. datasets.libsvm(path): functions read these in a run")

    n = shape = ids_per_row = most_bytes = property(_unknown)
    fingerprint = split = taken = minibatches = _unknown  # type: ignore[assignment]


def listed(store: Files, spec: StoredFiles) -> list[tuple[str, int]]:
    """Key and size, bytes, of each file, in the order of their keys; DataError if there is none, or one is empty."""
    found = {
        key: size
        for key, size in sorted(store.sizes(spec.place[1]).items())
        if not key.rpartition("/")[2].startswith(("_", ".")) and not key.endswith("/")
    }
    if not found:
        raise DataError("prefix", spec.prefix, "the begin of some object's key; there is none")
    for key, size in found.items():
        if not size:
            raise DataError(f"{spec.place[0]}/{key}", "an empty object", "a file with at least one row")
    return list(found.items())


@dataclass(frozen=True, eq=False)
class Source:
    """Stored files, and what the first pass over them found.

    Attributes
    ----------
    spec : StoredFiles
    sizes : sequence of (str, int)
        Key and size, bytes, of each file.
    first : bytes
        The first line of the first file.
    facts : Facts
        Of all rows.
    counts : tuple of int
        Rows in each share, see `Format.shares`.
    digests : tuple of tuple of str
        Of the parts of the content, by share.
    digest : str
        Of the content.
    """

    spec: StoredFiles
    sizes: Sequence[tuple[str, int]]
    first: bytes
    facts: Facts
    counts: tuple[int, ...]
    digests: tuple[tuple[str, ...], ...]
    digest: str

    @property
    def leaf(self) -> int:
        """Bytes that a digest is of."""
        return leaf_bytes(size for _, size in self.sizes)

    @property
    def layout(self) -> Any:
        """The layout of the files."""
        return self.spec.form.layout(self.sizes[0][0], self.first)

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return self.spec.form.n_features(self.layout, self.facts)


class StoredRows(CsrStream):
    """The rows of stored files, once functions have counted and checked them.


    Attributes
    ----------
    source : Source
    files : Files
        The bucket of the files.
    change : callable or None
        Applied to the rows, see `Csr.with_rows`.
    sum_columns : callable or None
        Has functions sum the columns of the rows, see `mlless_nb.job.column_sums`; None: the rows are read here.
    """

    change: Callable[[Any], Any] | None = None
    sum_columns: Callable[[Any], Any] | None = None

    def __init__(self, source: Source, store: Files, labels: NDArray[Any]) -> None:
        form, facts = source.spec.form, source.facts

        def read(keep: NDArray[np.bool_] | None) -> Iterator[Rows]:
            at, layout = 0, source.layout
            [spans] = form.shares(store, source.sizes, 1)
            for block in form.blocks(store, spans, source.leaf, source.first):
                X, y = form.rows_of(block, layout, facts)
                taken = slice(None) if keep is None else np.flatnonzero(keep[at : at + len(y)])
                at += len(y)
                yield X[taken], y[taken]

        content = f"stored {source.digest} {json.dumps(form.to_json())}"
        arguments = facts.n_rows, source.n_features, facts.n_values, content, source.spec.name, labels
        super().__init__(read, *arguments)
        self.source, self.files = source, store

    def with_rows(self, change: Callable[[Any], Any], key: str, n_more: int) -> Self:
        """See `Csr.with_rows`."""
        other = super().with_rows(change, key, n_more)
        other.change = change
        return other

    @property
    def n_parts(self) -> int:
        """See `CsrStream`."""
        return 1 if self.is_as_in_memory else super().n_parts

    @property
    def is_as_in_memory(self) -> bool:
        """Whether ``datasets`` has the rows of such a file in memory."""
        facts = self.source.facts
        is_libsvm = self.source.spec.format == LibsvmFormat.kind
        return is_libsvm and 8 * facts.n_values + 12 * facts.n_rows <= libsvm.IN_MEMORY_BYTES

    @property
    def kept(self) -> NDArray[np.bool_]:
        """Which rows of the files are in this dataset, bool (rows of the files,)."""
        return np.ones(self.n, bool) if self._keep is None else self._keep

    def places(self, seed: int | None) -> NDArray[np.int64]:
        """Where each row of the files is in the order of minibatches, int64 (rows of the files,); -1: left out."""
        order = part_order(self.n, self.n_parts, seed)
        place_of = np.empty(self.n, np.int64)
        place_of[order] = np.arange(self.n)
        if self._keep is None:
            return place_of
        places = np.full(len(self._keep), -1, np.int64)
        places[self._keep] = place_of
        return places

    def __repr__(self) -> str:
        size = f"{count(self.n, 'row')}, {count(self.shape[0], 'feature')}"
        return f"<StoredRows {self.name}: {size}, in the object storage>"


def digest_of(spec: StoredFiles, first: bytes, digests: Sequence[str]) -> str:
    """The digest of the content, from those of its parts in order."""
    sha = hashlib.sha256(f"{spec.format} {first!r} ".encode())
    sha.update("".join(digests).encode())
    return sha.hexdigest()


def packed_labels(labels: NDArray[Any], *, has_bits: bool) -> bytes:
    """Labels as bytes: a bit each, or float32."""
    return np.packbits(labels).tobytes() if has_bits else np.ascontiguousarray(labels, "<f4").tobytes()


def unpacked_labels(blob: bytes, n: int, *, has_bits: bool) -> NDArray[np.bool_] | Float32:
    """The labels that `packed_labels` wrote."""
    if has_bits:
        return np.unpackbits(np.frombuffer(blob, np.uint8), count=n).astype(bool)
    return np.frombuffer(blob, "<f4", n)
