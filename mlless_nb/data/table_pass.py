"""The first pass over a table: which columns are features, their facts; labels, times and groups of the rows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from ..frames.coding import RULES, Column, TableCoding, is_missing, n_rows, no_infinite, no_missing, taken
from ..frames.ids import Coded, Ids, IdsBuilder, are_numbers, array_of, coded
from ..frames.names import TableNames
from ..frames.sources import CODED, NUMBER, NUMBERS, TEXT, TIME, TIMES, Batch, Source
from ..plurals import count
from .minibatches import Float32
from .plausibility import MOST_LOOKED_AT, dates_refused, look_like_dates, looks_like_ids

if TYPE_CHECKING:
    from scipy.sparse import csr_array

#: Columns with more categories than these are hashed, unless it is said which are.
MOST_CATEGORIES = 1000


@dataclass
class Found:
    """What the first pass over the rows has found."""

    n: int = 0
    coding: TableCoding = field(default_factory=lambda: TableCoding(()))
    labels: Float32 | None = None
    classes: Ids | None = None
    times: NDArray[np.float64] | None = None
    groups: NDArray[np.int32] | None = None
    digest: str = ""
    ids: tuple[str, ...] = ()  # features that have another value in (nearly) each row


class _Facts:
    """Of a column: the sum of its numbers, or its categories, whether values are missing, dates, or differ in all rows.

    ``is_meant``: the user has said that it is a column of categories.
    """

    def __init__(self, name: str, *, is_number: bool, is_hashed: bool | None, is_meant: bool) -> None:
        self.name, self.is_number, self.is_hashed = name, is_number, is_hashed
        self.total, self.n, self.has_missing, self.is_id = 0.0, 0, False, False
        self.is_date: bool | None = False if is_number or is_meant else None  # None: no value was seen yet
        self._seen = IdsBuilder(f"column {name!r}")
        self._values: set[Any] = set()

    def note(self, values: Any) -> None:
        """Take the rows of a batch into account."""
        is_gone = is_missing(values)
        self.has_missing |= bool(is_gone.any())
        if self.is_number:
            self.total += float(values[~is_gone].sum())
            self.n += int(np.count_nonzero(~is_gone))
            return
        if self.is_date is None and not is_gone.all():
            first, listed = values.codes[~is_gone][:MOST_LOOKED_AT], _listed(values)
            self.is_date = look_like_dates([listed[place] for place in first.tolist()])
        if not self.is_hashed:
            used, listed = np.unique(values.codes[~is_gone]), _listed(values)
            self.n += int(np.count_nonzero(~is_gone))
            new = sorted({listed[place] for place in used.tolist()} - self._values, key=str)
            if new:
                self._values |= set(new)
                self._seen.add(coded(self.name, np.array([*new, None], object)[:-1]))
            if self.is_hashed is None and len(self._values) > MOST_CATEGORIES:
                self.is_id = looks_like_ids(len(self._values), self.n)
                self.is_hashed, self._values = True, set()

    def column(self, missing: str, buckets: int, *, parse_integers: bool) -> Column:
        """How the column becomes features."""
        mark = missing == "indicator" and self.has_missing
        rule: dict[str, Any] = {"is_filled": missing in ("mean", "indicator"), "has_mark": mark}
        if self.is_number:
            return Column(self.name, fill=self.total / max(self.n, 1), **rule)
        if self.is_hashed:
            return Column(self.name, buckets=buckets, **rule)
        return Column(self.name, self._seen.built(parse_integers=parse_integers)[0], **rule)


class TablePass:
    """The columns of a table that are read, and what for."""

    def __init__(
        self, source: Source, label: Any, time: str | None, group: str | None, missing: str, known: TableNames | None
    ) -> None:
        self.source, self._missing, self._known = source, missing, known
        self._facts: list[_Facts] = []
        self._given: Any = None
        if label is not None and (np.ndim(label) or hasattr(label, "__len__")) and not isinstance(label, str):
            self._given, label = _given_labels(label, source), None
        self._label = source.check_column("label", label, NUMBERS, TEXT) if label is not None else None
        self._time = source.check_column("time", time, NUMBERS, TIMES) if time is not None else None
        self._group = source.check_column("group", group, NUMBERS, TEXT) if group is not None else None
        extra = [name for name in (self._label, self._time, self._group) if name is not None]
        self._extra = set(extra)
        if len(self._extra) < len(extra):
            raise DataError("label, time, group", (label, time, group), "different columns")

    def choose(
        self,
        features: Sequence[str] | None,
        drop: Sequence[str],
        categorical: Sequence[str],
        hashed: Sequence[str] | None,
    ) -> None:
        """Decide which columns are features, and which of them are categories."""
        columns = self.source.columns
        left_out = {self.source.check_column("drop", name, *columns.values()) for name in _list("drop", drop)}
        if used := [name for name in left_out if name in self._extra]:
            raise DataError("drop", used[0], "columns other than label, time and group")
        if left_out and features is not None:
            raise DataError("drop", list(drop), "used without features=, which lists all columns that are used")
        listed = [name for name in columns if name not in self._extra | left_out]
        if features is not None:
            listed = _list("features", features)
        is_text = self.source.is_text_file
        for name in listed:
            if columns.get(name) == TIMES and not (is_text and (name in categorical or name in (hashed or ()))):
                raise dates_refused(name, is_text=is_text)
        names = [self.source.check_column("features", name, NUMBERS, TEXT) for name in listed]
        if twice := [name for name in names if name in self._extra or names.count(name) > 1]:
            raise DataError("features", twice[0], "columns that differ from each other and from label, time and group")
        if not names:
            raise DataError("features", listed, "at least one column")
        for field_name, given in (("categorical", categorical), ("hashed", hashed or ())):
            for name in _list(field_name, given):
                if name not in names:
                    raise DataError(field_name, name, f"one of the features: {', '.join(names[:20])}")
        for name in names:
            is_number = columns[name] == NUMBERS and name not in categorical and name not in (hashed or ())
            is_hashed = None if hashed is None else name in hashed
            is_meant = name in categorical or name in (hashed or ())
            self._facts.append(_Facts(name, is_number=is_number, is_hashed=is_hashed, is_meant=is_meant))

    @property
    def _roles(self) -> dict[str, str]:
        roles = {facts.name: NUMBER if facts.is_number else CODED for facts in self._facts}
        if self._known is not None:
            roles = dict(self._known.coding.roles)
        if self._label is not None:
            roles[self._label] = NUMBER if self.source.columns[self._label] == NUMBERS else CODED
        if self._time is not None:
            roles[self._time] = TIME
        if self._group is not None:
            roles[self._group] = CODED
        return roles

    def batches(self) -> Iterator[tuple[Batch, int, NDArray[np.bool_]]]:
        """The rows in batches, with the number of the first row, and which rows are kept."""
        first, roles = 0, self._roles
        for batch in self.source.batches(roles):
            n = n_rows(batch)
            keep = np.ones(n, bool)
            if self._missing == "drop":
                label = self._labels(batch, first, n)
                for values in (*batch.values(), *([label] if label is not None else [])):
                    keep &= ~is_missing(values)
            yield batch, first, keep
            first += n

    def first_pass(self, buckets: int) -> Found:
        """Read all rows once: their number, the facts of the columns, labels, times and groups."""
        found, sha = Found(), hashlib.sha256(b"table 1")
        numbers: list[Float32] = []
        times: list[NDArray[np.float64]] = []
        classes, groups = IdsBuilder("label"), IdsBuilder("group")
        known = self._known.classes if self._known is not None else None
        for batch, first, keep in self.batches():
            found.n += int(np.count_nonzero(keep))
            kept = batch if keep.all() else dict(taken(batch, keep))
            if self._known is not None:
                self._known.coding.check(batch, first, keep)
            for facts in self._facts:
                if self._missing == "error":
                    no_missing(facts.name, batch[facts.name], first, RULES)
                if facts.is_number:
                    no_infinite(facts.name, batch[facts.name], first)
                facts.note(kept[facts.name])
                if facts.is_date:
                    raise dates_refused(facts.name, is_text=True)
            if (label := self._labels(batch, first, len(keep))) is not None:
                self._check_kept(self._label or "label", label, first, keep)
                if isinstance(label, Coded) and known is None:
                    if self._known is not None:
                        raise DataError("label", "text", "numbers, as the labels of `like`")
                    classes.add(label, keep)
                else:
                    numbers.append(_numbered(label, known, first, keep))
            if self._time is not None:
                self._check_kept(self._time, batch[self._time], first, keep)
                times.append(batch[self._time][keep])
            if self._group is not None:
                self._check_kept(self._group, batch[self._group], first, keep)
                groups.add(batch[self._group], keep)
            if not self.source.is_in_memory:
                for name, values in kept.items():
                    sha.update(f"{name} {_listed(values)}".encode(errors="surrogatepass"))
                    sha.update(np.ascontiguousarray(values.codes if isinstance(values, Coded) else values).data)
        if not found.n:
            why = ", in which no value is missing" if self._missing == "drop" else ""
            raise DataError("frame", self.source.name, f"a table with at least one row{why}")
        is_text = self.source.is_text_file
        found.coding = self._known.coding if self._known is not None else TableCoding(
            tuple(facts.column(self._missing, buckets, parse_integers=is_text) for facts in self._facts)
        )  # fmt: skip
        found.digest = sha.hexdigest()
        found.ids = tuple(facts.name for facts in self._facts if facts.is_id)
        if numbers:
            found.labels, found.classes = np.concatenate(numbers), known
        elif self._label is not None or self._given is not None:
            found.classes, codes = classes.built()
            found.labels = codes.astype(np.float32)
        else:
            found.classes = known
        found.times = np.concatenate(times) if times else None
        found.groups = groups.built()[1] if self._group is not None else None
        return found

    def _labels(self, batch: Batch, first: int, n: int) -> Any:
        if self._label is not None:
            return batch[self._label]
        if isinstance(self._given, Coded):
            return Coded(self._given.codes[first : first + n], self._given.values)
        return None if self._given is None else self._given[first : first + n]

    @staticmethod
    def _check_kept(column: str, values: Any, first: int, keep: NDArray[np.bool_]) -> None:
        if (is_missing(values) & keep).any():
            no_missing(column, values, first, "missing='drop' leaves such rows out")

    def rows(self, coding: TableCoding) -> Iterator[csr_array]:
        """The feature rows, batch by batch."""
        for batch, first, keep in self.batches():
            if keep.all():
                yield coding.rows(batch, first)
            else:
                yield coding.rows(dict(taken(batch, keep)), first)


def _given_labels(label: Any, source: Source) -> Any:
    """Labels that were handed in beside the table: float64 (n,) or `Coded`."""
    if source.n_rows is None:
        raise DataError("label", count(len(label), "label"), "the name of a column of the files")
    array = array_of("label", label)
    if array.ndim != 1:
        raise DataError("label", f"shape {array.shape}", "the name of a column, or one-dimensional")
    if source.n_rows != len(array):
        raise DataError("label", count(len(array), "label"), f"as many as the table has rows, {source.n_rows}")
    is_number = array.dtype.kind in "biuf" or (array.dtype.kind == "O" and are_numbers(array))
    return array.astype(np.float64) if is_number else coded("label", array)


def _numbered(label: Any, known: Ids | None, first: int, keep: NDArray[np.bool_]) -> Float32:
    """Labels of the rows in ``keep`` as float32 (n,): numbers, or the numbers of ``known`` labels."""
    if isinstance(label, Coded) and known is not None:
        places = np.append(known.places(label.values), -1)[label.codes]
        if bool(((places < 0) & keep).any()):
            at = int(np.flatnonzero((places < 0) & keep)[0])
            raise DataError(f"label, row {first + at}", label.values[label.codes[at]], f"one of {known.example}, ...")
        numbers: Float32 = places[keep].astype(np.float32)
        return numbers
    if known is not None:
        raise DataError("label", "numbers", f"labels as in the training rows: {known.example}")
    with np.errstate(over="ignore"):
        found: Float32 = label.astype(np.float32)
    if bool((np.isinf(found) & keep).any()):
        at = int(np.flatnonzero(np.isinf(found) & keep)[0])
        raise DataError(f"label, row {first + at}", float(label[at]), "a finite number")
    return found[keep]


def _listed(values: Any) -> list[Any] | str:
    """The different values of a column of categories; "" for numbers."""
    if not isinstance(values, Coded):
        return ""
    return values.values.tolist() if isinstance(values.values, np.ndarray) else values.values


def _list(field_name: str, names: Any) -> list[str]:
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise DataError(field_name, names, f"a list of columns, e.g. [{names!r}]")
    return list(names)
