"""Tables with column names as feature rows: ``datasets.table``."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError, DataWarning
from ..frames.coding import MISSING, TableCoding
from ..frames.names import TableNames
from ..frames.sources import Source
from ..validation import check_choice
from .checks import checked_count
from .csr import Csr
from .openings import opened_table
from .plausibility import doubt_of_ids_column
from .stream import CsrStream, Rows
from .table_pass import Found, TablePass

if TYPE_CHECKING:
    from scipy.sparse import csr_array

BUCKETS = 1 << 12


def table(
    frame: Any,
    label: Any = None,
    *,
    features: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    categorical: Sequence[str] = (),
    hashed: Sequence[str] | None = None,
    buckets: int = BUCKETS,
    missing: str = "error",
    time: str | None = None,
    group: str | None = None,
    like: Any = None,
) -> Csr | CsrStream:
    """A table as feature rows; the model keeps the names of columns and categories, and predicts from such tables.

    A column of numbers (or True and False) is one feature, as it is: models scale columns themselves. A column of text
    or categories is a feature for each of its categories, 1 in the rows that have it; a category that the training
    rows do not have sets none of them. Columns of more than 1,000 categories are hashed: a category is one of
    ``buckets`` features, which it may share with others.

    Parameters
    ----------
    frame : table
        pandas, Polars, Arrow or other tables with the Arrow C stream interface; a NumPy structured array or 2-D array
        (its columns are named "0", "1" and so on); a dictionary of columns; or the path of CSV or Parquet files: a
        path, a glob, a zip archive, a URL of an object storage, or a list of these. Files are read in batches, once at
        the call and again when rows are needed, and may be larger than memory. What a column of a CSV file holds is
        decided by its first megabyte, and blanks, NA, NaN and null are missing values.
    label : str or array_like (n,), optional
        Name of the label's column, or the labels of a table in memory. Numbers stay as they are. Other labels are
        numbered in ascending order, and the model answers with them. None: no labels, as for `KMeans`.
    features : sequence of str, optional
        Columns to use; by default all but ``label``, ``time`` and ``group``. None of them may hold dates.
    drop : sequence of str
        Columns that are left out, instead of ``features``.
    categorical : sequence of str
        Columns of numbers, or of dates written as texts, that are categories.
    hashed : sequence of str, optional
        The columns of categories that are hashed; all others then have a feature for each category.
    buckets : int
        Features of a hashed column.
    missing : {"error", "mean", "indicator", "drop"}
        What is done about missing values in features. "error": they are refused. "mean": a missing number is the mean
        of the column's others, a missing category is none of the categories. "indicator": it is 0, or none of the
        categories, and a feature of its own is 1. "drop": the row is left out, also if its label is missing, which is
        an error otherwise.
    time, group : str, optional
        Columns of the rows' times (numbers or dates) and groups, for `datasets.split`; they are no features.
    like : dataset or fitted model, optional
        Codes the columns as this one does, e.g. for validation rows or `evaluate`; the arguments from ``features``
        to ``buckets`` are its, then.

    Returns
    -------
    Csr or CsrStream
        In memory for a table in memory, else read from its files whenever rows are needed.

    Raises
    ------
    DataError
        Naming the column, the row (from 0), and what would be valid.
    """
    check_choice("missing", missing, MISSING)
    checked_count("buckets", buckets, most=1 << 30)
    source = opened_table(frame)
    known = _names_of(like)
    wanted = TablePass(source, label, time, group, missing, known)
    if known is None:
        wanted.choose(features, drop, categorical, hashed)
    else:
        known.coding.check_columns(source, "like")
    found = wanted.first_pass(buckets)
    names = TableNames(found.coding, found.classes)
    dataset: Csr | CsrStream
    if source.is_in_memory:
        X = _gathered(wanted.rows(found.coding), found.n, names.coding)
        dataset = Csr(X, found.labels, source.name)
    else:
        dataset = _stream(source, wanted, found)
    dataset.names, dataset.times, dataset.groups = names, found.times, found.groups
    for doubt in map(doubt_of_ids_column, found.ids):
        warnings.warn(doubt, DataWarning, stacklevel=2)
    return dataset


def _gathered(blocks: Iterator[csr_array], n: int, coding: TableCoding) -> csr_array:
    """All blocks as one; memory is taken once, and what is not needed given back."""
    from scipy.sparse import csr_array

    most = n * coding.n_entries
    values, indices = np.empty(most, np.float32), np.empty(most, np.int32)
    indptr = np.zeros(n + 1, np.int64 if most >= 2**31 else np.int32)
    row = end = 0
    for block in blocks:
        begin, end = end, end + block.nnz
        values[begin:end], indices[begin:end] = block.data, block.indices
        indptr[row + 1 : row + 1 + block.shape[0]] = block.indptr[1:] + begin
        row += block.shape[0]
    values.resize(end, refcheck=False)
    indices.resize(end, refcheck=False)
    return csr_array((values, indices, indptr), shape=(n, coding.n_features))


def _stream(source: Source, wanted: TablePass, found: Found) -> CsrStream:
    labels = found.labels if found.labels is not None else np.zeros(found.n, np.float32)

    def read(keep: NDArray[np.bool_] | None) -> Iterator[Rows]:
        at = 0
        for X in wanted.rows(found.coding):
            y = labels[at : at + X.shape[0]]
            rows = slice(None) if keep is None else np.flatnonzero(keep[at : at + len(y)])
            at += len(y)
            yield X[rows], y[rows]

    content = f"{found.digest} {hashlib.sha256(found.coding.to_array().tobytes()).hexdigest()}"
    n_values = found.n * found.coding.n_entries
    stream = CsrStream(read, found.n, found.coding.n_features, n_values, content, source.name, labels)
    stream.has_labels = found.labels is not None
    return stream


def _names_of(like: Any) -> TableNames | None:
    if like is None:
        return None
    names = getattr(like, "names", None)
    if not isinstance(names, TableNames):
        raise DataError("like", like, "a dataset of datasets.table, or a model that was trained on one")
    return names
