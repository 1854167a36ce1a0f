"""The columns of a table as features: numbers as they are, categories as one column each, or hashed into buckets."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from .ids import INTEGERS, TEXTS, Coded, Ids
from .sources import CODED, NUMBER, NUMBERS, TEXT, Batch, Source, source_of

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Float32 = NDArray[np.float32]
#: What is done about missing values, see `mlless_nb.data.tables.table`.
MISSING = ("error", "mean", "indicator", "drop")
RULES = "missing='mean', 'indicator' or 'drop' says what becomes of it"
#: The same where columns are coded as other rows were.
UNRULED = "leave such rows out, or say missing='mean' or 'indicator' where the training rows are read"
#: Which rows of a batch count.
Keep = NDArray[np.bool_] | bool
#: Entries, of rows by columns, that are coded at once.
MOST_ENTRIES = 1 << 21
#: Most columns and features of a stored coding.
MOST_COLUMNS, MOST_FEATURES = 1 << 20, 2**31 - 2


@dataclass(frozen=True)
class Column:
    """How one column of a table becomes features.

    Attributes
    ----------
    name : str
    categories : Ids or None
        Of a column of categories, each of which is a feature; another value than these sets none of them.
    buckets : int
        Features into which categories are hashed; 0 if they are not.
    fill : float
        What a missing number becomes.
    is_filled, has_mark : bool
        Whether missing values are allowed; and whether a feature of its own is 1 where the value is missing.
    """

    name: str
    categories: Ids | None = field(default=None)
    buckets: int = 0
    fill: float = 0.0
    is_filled: bool = False
    has_mark: bool = False

    @property
    def is_number(self) -> bool:
        """Whether the column is a number."""
        return self.categories is None and not self.buckets

    @property
    def width(self) -> int:
        """Number of features."""
        return (self.buckets or (1 if self.categories is None else len(self.categories))) + self.has_mark

    @property
    def features(self) -> list[str]:
        """The names of the features."""
        if self.buckets:
            names = [f"{self.name} in bucket {place}" for place in range(self.buckets)]
        elif self.categories is not None:
            names = [f"{self.name}={self.categories[place]}" for place in range(len(self.categories))]
        else:
            names = [self.name]
        return names + [f"{self.name} is missing"] * self.has_mark

    def places(self, coded: Coded) -> NDArray[np.int64]:
        """The feature, from 0, of each of the values of ``coded``; -1 for none."""
        if self.categories is not None:
            return self.categories.places(coded.values)
        digests = (hashlib.blake2b(f"{self.name}={each}".encode(errors="surrogatepass"), digest_size=8)
                   for each in coded.values)  # fmt: skip
        found = (int.from_bytes(digest.digest(), "little") % self.buckets for digest in digests)
        return np.fromiter(found, np.int64, len(coded.values))

    def to_json(self) -> dict[str, Any]:
        """The column as plain JSON."""
        ids = self.categories
        listed = None if ids is None else [ids[place] for place in range(len(ids))]
        return {**{name: value for name, value in vars(self).items() if name != "categories"}, "categories": listed}

    @classmethod
    def from_json(cls, spec: Any) -> Column:
        """The column that `to_json` wrote; ValueError if it is none."""
        types = {"name": str, "buckets": int, "fill": float, "is_filled": bool, "has_mark": bool}
        if not isinstance(spec, dict) or set(spec) != {*types, "categories"}:
            raise ValueError("a column must have its fields")
        values, listed = {name: spec[name] for name in types}, spec["categories"]
        if any(type(values[name]) is not kind for name, kind in types.items()):
            raise ValueError("a column's fields must have their types")
        if not math.isfinite(values["fill"]) or not 0 <= values["buckets"] <= MOST_FEATURES:
            raise ValueError("a column's fill must be finite, and its buckets few enough")
        return cls(categories=None if listed is None else _categories(listed), **values)


def _categories(listed: Any) -> Ids:
    is_list = isinstance(listed, list) and all(one < other for one, other in pairwise(listed))
    if is_list and all(type(each) is int and abs(each) < 2**63 for each in listed):
        return Ids(np.array(listed, np.int64), INTEGERS)
    if is_list and all(type(each) is str for each in listed):
        return Ids(listed, TEXTS)
    raise ValueError("categories must be ascending texts or whole numbers")


@dataclass(frozen=True)
class TableCoding:
    """How a table becomes features, in the order of its columns.

    Attributes
    ----------
    columns : tuple of Column
    """

    columns: tuple[Column, ...]

    @cached_property
    def begins(self) -> list[int]:
        """The first feature of each column, then the number of features."""
        return [0, *accumulate(column.width for column in self.columns)]

    @property
    def n_features(self) -> int:
        """Number of features."""
        return self.begins[-1]

    @cached_property
    def features(self) -> list[str]:
        """The names of the features."""
        return [name for column in self.columns for name in column.features]

    @property
    def roles(self) -> dict[str, str]:
        """What each column is read as."""
        return {column.name: NUMBER if column.is_number else CODED for column in self.columns}

    @property
    def n_entries(self) -> int:
        """Most features of a row that are not 0."""
        return len(self.columns)

    def check(self, batch: Batch, first: int, keep: Keep = True) -> None:
        """Raise DataError if a value of a batch, whose first row has the number ``first``, is not allowed.

        ``keep``: which rows count.
        """
        for column in self.columns:
            values = batch[column.name]
            if not column.is_filled:
                no_missing(column.name, values, first, UNRULED, keep)
            if column.is_number:
                no_infinite(column.name, values, first, keep)

    def rows(self, batch: Batch, first: int) -> csr_array:
        """The rows of a batch, whose first has the number ``first``, as float32 (n, n_features) without zeros."""
        from scipy.sparse import csr_array, vstack

        n = n_rows(batch)
        self.check(batch, first)
        places = {one.name: one.places(batch[one.name]) for one in self.columns if not one.is_number}
        step = max(MOST_ENTRIES // max(len(self.columns), 1), 1)
        parts = [self._rows(batch, places, slice(begin, begin + step)) for begin in range(0, n, step)]
        found = [csr_array(part, shape=(len(part[2]) - 1, self.n_features)) for part in parts]
        if not found:
            return csr_array((0, self.n_features), dtype=np.float32)
        return found[0] if len(found) == 1 else vstack(found, format="csr")

    def _rows(self, batch: Batch, places: Mapping[str, NDArray[Any]], part: slice) -> tuple[Any, Any, Any]:
        """(values, indices, indptr) of a part of the rows."""
        n = len(range(n_rows(batch))[part])
        indices, values = np.empty((n, len(self.columns)), np.int32), np.empty((n, len(self.columns)), np.float32)
        for at, (column, begin) in enumerate(zip(self.columns, self.begins, strict=False)):
            found = batch[column.name]
            if column.is_number:
                number = found[part]
                is_gone = np.isnan(number)
                indices[:, at] = begin
                values[:, at] = np.where(is_gone, 0.0 if column.has_mark else column.fill, number)
            else:
                codes = found.codes[part]
                is_gone = codes < 0
                place = np.append(places[column.name], -1)[codes]  # -1 takes the last
                indices[:, at] = begin + place
                values[:, at] = place >= 0
            if column.has_mark:
                indices[is_gone, at] = begin + column.width - 1
                values[is_gone, at] = 1.0
        is_there = values != 0
        indptr = np.append(0, np.cumsum(is_there.sum(1)))
        return values[is_there], indices[is_there], indptr

    def encoded(self, frame: Any) -> csr_array:
        """The rows of a table that has the columns, float32 (n, n_features); to predict for."""
        from scipy.sparse import csr_array, vstack

        source = source_of(frame, "X")
        self.check_columns(source, "X")
        blocks, first = [], 0
        for batch in source.batches(self.roles):
            blocks.append(self.rows(batch, first))
            first += blocks[-1].shape[0]
        # a table without rows may have no batch
        return vstack(blocks, format="csr") if blocks else csr_array((0, self.n_features), dtype=np.float32)

    def check_columns(self, source: Source, where: str) -> None:
        """Raise DataError unless ``source`` has the columns, of the right kinds."""
        for column in self.columns:
            if column.name not in source.columns:
                valid = f"in the table, as it was in the training rows; there are {source.listed}"
                raise DataError(f"{where}, column {column.name!r}", None, valid)
            source.check_column(where, column.name, *((NUMBERS,) if column.is_number else (TEXT, NUMBERS)))

    # -- stored with a model

    def to_array(self) -> NDArray[np.uint8]:
        """The coding as JSON, uint8 (m,)."""
        return np.frombuffer(json.dumps([column.to_json() for column in self.columns]).encode(), np.uint8)

    @classmethod
    def from_array(cls, letters: NDArray[Any]) -> TableCoding:
        """The coding that `to_array` wrote; ValueError if it is none."""
        if letters.dtype != np.uint8 or letters.ndim != 1:
            raise ValueError("the columns must be JSON, as bytes")
        try:
            listed = json.loads(letters.tobytes())
        except RecursionError:
            raise ValueError("the columns must be a list") from None
        if not isinstance(listed, list) or not 1 <= len(listed) <= MOST_COLUMNS:
            raise ValueError("the columns must be a list")
        coding = cls(tuple(map(Column.from_json, listed)))
        if coding.n_features > MOST_FEATURES or len({column.name for column in coding.columns}) < len(listed):
            raise ValueError("the columns must be different, and their features few enough")
        return coding


def n_rows(batch: Batch) -> int:
    """Number of rows of a batch."""
    values = next(iter(batch.values()))
    return len(values.codes if isinstance(values, Coded) else values)


def is_missing(values: Any) -> NDArray[np.bool_]:
    """Which rows of a column lack a value, (n,)."""
    found: NDArray[np.bool_] = values.codes < 0 if isinstance(values, Coded) else np.isnan(values)
    return found


def no_missing(name: str, values: Any, first: int, remedy: str, keep: Keep = True) -> None:
    """Raise DataError, which names the first row, if a value of a column is missing; see `TableCoding.check`."""
    is_gone = is_missing(values) & keep
    if is_gone.any():
        at = first + int(np.flatnonzero(is_gone)[0])
        raise DataError(f"column {name!r}, row {at}", None, f"a value; {remedy}")


def no_infinite(name: str, values: NDArray[np.float64], first: int, keep: Keep = True) -> None:
    """Raise DataError, which names the first row, if float32 cannot hold a number of a column."""
    is_bad = (np.abs(values) > np.finfo(np.float32).max) & keep
    if is_bad.any():
        at = int(np.flatnonzero(is_bad)[0])
        raise DataError(f"column {name!r}, row {first + at}", float(values[at]), "a finite number")


def taken(batch: Batch, keep: NDArray[np.bool_]) -> Iterator[tuple[str, Any]]:
    """The columns of a batch with the rows in ``keep`` only."""
    for name, values in batch.items():
        yield name, Coded(values.codes[keep], values.values) if isinstance(values, Coded) else values[keep]
