"""The user's own ids (integers, texts, UUIDs), and the numbers from 0 that stand for them in training."""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]

#: How a text of a whole number is written; "007" and "+7" stay texts.
WHOLE = re.compile(r"-?[1-9][0-9]{0,17}|0")
INTEGERS, TEXTS, UUIDS = "integers", "text", "uuid"
_NUMBERS = (int, float, np.number, np.bool_, Decimal)


@dataclass(frozen=True)
class Coded:
    """A column of ids: ``values[codes[i]]`` is that of row i.

    Attributes
    ----------
    codes : integer (n,)
        -1 where the value is missing.
    values : int64 (m,) or list of str or list of UUID
        Different values, in any order.
    """

    codes: NDArray[Any]
    values: Int64 | list[Any]


class Ids:
    """Different ids in ascending order: the i-th has the number i.

    Parameters
    ----------
    values : int64 (n,) or sequence of str
        Strictly ascending.
    kind : {"integers", "text", "uuid"}
        UUIDs are kept as texts, and handed out as `uuid.UUID`.
    """

    def __init__(self, values: Int64 | Sequence[str], kind: str) -> None:
        self.kind = kind
        self._integers = np.asarray(values, np.int64) if kind == INTEGERS else np.empty(0, np.int64)
        self._texts: list[str] = [] if kind == INTEGERS else list(values)
        self._integers.setflags(write=False)

    def __len__(self) -> int:
        return len(self._integers) if self.kind == INTEGERS else len(self._texts)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ids):
            return NotImplemented
        is_alike = self.kind == other.kind and self._texts == other._texts
        return is_alike and np.array_equal(self._integers, other._integers)

    __hash__ = None  # type: ignore[assignment]

    @cached_property
    def _number_of(self) -> dict[str, int]:
        return {text: number for number, text in enumerate(self._texts)}

    def __getitem__(self, numbers: Any) -> Any:
        """The ids with these numbers: an int, a str or a UUID; for an array, an array int64 or object (n,)."""
        if np.ndim(numbers) == 0:
            number = int(numbers)
            return int(self._integers[number]) if self.kind == INTEGERS else self._handed_out(self._texts[number])
        if self.kind == INTEGERS:
            return self._integers[numbers]
        found = np.empty(len(numbers), object)
        found[:] = [self._handed_out(self._texts[number]) for number in np.asarray(numbers).tolist()]
        return found

    def _handed_out(self, text: str) -> Any:
        return uuid.UUID(text) if self.kind == UUIDS else text

    @property
    def example(self) -> str:
        """Some of the ids, for errors."""
        return ", ".join(repr(self[number]) for number in range(min(len(self), 2)))

    def find(self, values: Any) -> Int64:
        """The number of each of ``values`` (n,), an int64 array or a list; -1 for those that are not among the ids."""
        if self.kind == INTEGERS:
            array = _integers(values)
            at = np.searchsorted(self._integers, array)
            at[at == len(self)] = 0
            return np.where(self._integers[at] == array, at, -1) if len(self) else np.full(len(array), -1)
        texts = values.tolist() if isinstance(values, np.ndarray) else values
        number_of = self._number_of
        return np.fromiter((number_of.get(_text(each), -1) for each in texts), np.int64, len(texts))

    def places(self, values: Int64 | list[Any]) -> Int64:
        """`find` for the values of `Coded`, of whatever kind; texts are integers here if the ids are."""
        if isinstance(values, np.ndarray) != (self.kind == INTEGERS):
            if isinstance(values, np.ndarray):
                return np.full(len(values), -1)
            is_whole = [isinstance(text, str) and bool(WHOLE.fullmatch(text)) for text in values]
            found = np.full(len(values), -1)
            found[is_whole] = self.find([int(text) for text, whole in zip(values, is_whole, strict=True) if whole])
            return found
        return self.find(values) if len(values) else np.empty(0, np.int64)

    def numbers(self, field: str, values: Any) -> Int32:
        """The number of each of ``values`` (n,); DataError that names the first that is not among the ids."""
        listed = np.atleast_1d(np.asarray(values, None if self.kind == INTEGERS else object))
        if listed.ndim != 1:
            raise DataError(field, f"shape {listed.shape}", "one-dimensional")
        found = self.find_any(listed)
        if (found < 0).any():
            value = listed.tolist()[int(np.flatnonzero(found < 0)[0])]
            raise DataError(
                field, value, f"one of the {len(self):,} ids that the model was trained on ({self.example})"
            )
        return found.astype(np.int32)

    def find_any(self, values: Any) -> Int64:
        """`find` for values of any kind, (n,)."""
        try:
            return self.find(values)
        except (TypeError, ValueError, OverflowError):
            listed = values.tolist() if isinstance(values, np.ndarray) else list(values)
            return np.array([self._find_one(each) for each in listed], np.int64)

    def _find_one(self, value: Any) -> int:
        try:
            return int(self.find([value])[0])
        except (TypeError, ValueError, OverflowError):
            return -1

    # -- stored with a model

    def to_arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """The ids as arrays whose names begin with ``name``: int64 (n,), or UTF-8 as uint8 (m,) and its ends (n,)."""
        if self.kind == INTEGERS:
            return {f"{name}.{INTEGERS}": self._integers}
        encoded = [text.encode("utf-8", "surrogatepass") for text in self._texts]
        ends = np.cumsum([len(each) for each in encoded], dtype=np.int64)
        return {f"{name}.{self.kind}": np.frombuffer(b"".join(encoded), np.uint8), f"{name}.ends": ends}

    @classmethod
    def from_arrays(cls, name: str, arrays: dict[str, NDArray[Any]]) -> Ids | None:
        """The ids that `to_arrays` wrote under ``name``; None if there are none. ValueError if they are invalid."""
        if (integers := arrays.get(f"{name}.{INTEGERS}")) is not None:
            is_valid = integers.dtype == np.int64 and integers.ndim == 1
            if not is_valid or bool((integers[1:] <= integers[:-1]).any()):  # a difference may be too large
                raise ValueError(f"{name} must be ascending whole numbers")
            return cls(integers, INTEGERS)
        for kind in (TEXTS, UUIDS):
            if (letters := arrays.get(f"{name}.{kind}")) is not None:
                ends = arrays.get(f"{name}.ends", np.empty(0))
                is_valid = letters.dtype == np.uint8 and ends.dtype == np.int64 and letters.ndim == ends.ndim == 1
                last = int(ends[-1]) if len(ends) else 0
                if not is_valid or last != len(letters) or bool((ends < np.append(0, ends[:-1])).any()):
                    raise ValueError(f"{name} must be texts and their ends")
                blob, begins = letters.tobytes(), [0, *ends.tolist()]
                texts = [blob[i:k].decode("utf-8", "surrogatepass") for i, k in pairwise(begins)]
                if any(one >= other for one, other in pairwise(texts)):
                    raise ValueError(f"{name} must be ascending texts")
                if kind == UUIDS and any(str(uuid.UUID(text)) != text for text in texts):
                    raise ValueError(f"{name} must be UUIDs")
                return cls(texts, kind)
        return None

    def __repr__(self) -> str:
        return f"<Ids {len(self):,} {self.kind}: {self.example}>"


class IdsBuilder:
    """Numbers the ids of a column that comes in parts.

    A part's rows are kept as int32 codes only; values are kept once, however many parts have them.
    """

    def __init__(self, field: str) -> None:
        self.field = field
        self._parts: list[NDArray[np.int32]] = []
        self._of_part: list[NDArray[np.int64]] = []  # integers of a part; or places among the texts
        self._places: dict[Any, int] = {}
        self._kinds: set[str] = set()

    def add(self, coded: Coded, keep: NDArray[np.bool_] | slice = slice(None)) -> None:
        """Append the rows of a part that are in ``keep``; they have no missing value."""
        codes = np.asarray(coded.codes[keep])
        used, codes = np.unique(codes, return_inverse=True)  # a category may have no rows
        values = coded.values
        if isinstance(values, np.ndarray):
            self._kinds.add(INTEGERS)
            self._of_part.append(values[used])
        elif len(used):
            taken = [values[place] for place in used.tolist()]
            kinds = {UUIDS if kind is uuid.UUID else TEXTS for kind in set(map(type, taken))}
            self._kinds |= kinds
            places = self._places
            at = (places.setdefault(each, len(places)) for each in (taken if kinds == {TEXTS} else map(_text, taken)))
            self._of_part.append(np.fromiter(at, np.int64, len(taken)))
        else:
            self._of_part.append(np.empty(0, np.int64))
        self._parts.append(codes.astype(np.int32))
        if len(self._kinds) > 1:
            raise DataError(self.field, " and ".join(sorted(self._kinds)), "ids of one kind: integers, text or UUIDs")

    def built(self, *, parse_integers: bool = False) -> tuple[Ids, Int32]:
        """All ids, and the number of each row, int32 (n,).

        Parameters
        ----------
        parse_integers : bool
            Whether texts become integers if all of them are whole numbers, as those of a text file.
        """
        kind = next(iter(self._kinds), INTEGERS)
        if kind == INTEGERS:
            every = np.unique(np.concatenate([*self._of_part, np.empty(0, np.int64)]))
            return Ids(every, INTEGERS), self._numbered([np.searchsorted(every, part) for part in self._of_part])
        texts = list(self._places)
        if parse_integers and all(map(WHOLE.fullmatch, texts)):
            integers = np.fromiter(map(int, texts), np.int64, len(texts))
            order = np.argsort(integers)
            ids = Ids(integers[order], INTEGERS)
        else:
            order = np.array(sorted(range(len(texts)), key=texts.__getitem__), np.int64)
            ids = Ids([texts[place] for place in order.tolist()], kind)
        self._places = {}
        number_of = np.empty(len(order), np.int64)
        number_of[order] = np.arange(len(order))
        return ids, self._numbered([number_of[part] for part in self._of_part])

    def _numbered(self, of_part: list[NDArray[np.int64]]) -> Int32:
        """The parts' codes as numbers, one after the other; each part is freed at its turn."""
        numbers = np.empty(sum(map(len, self._parts)), np.int32)
        end = len(numbers)
        while self._parts:
            codes, values = self._parts.pop(), of_part.pop()
            begin = end - len(codes)
            if len(codes):
                numbers[begin:end] = values[codes]
            end = begin
        return numbers


def coded(field: str, values: NDArray[Any]) -> Coded:
    """A NumPy array of ids or categories (n,): integers, whole floats, texts, UUIDs; None and NaN are missing."""
    if values.dtype.kind in "iub":
        different, codes = np.unique(values, return_inverse=True)
        return Coded(codes, plain_values(field, different))
    if values.dtype.kind == "f":
        is_there = ~np.isnan(values)
        different, inverse = np.unique(values[is_there], return_inverse=True)
        codes = np.full(len(values), -1, np.int64)
        codes[is_there] = inverse
        return Coded(codes, plain_values(field, different))
    if values.dtype.kind not in "OUS":
        raise DataError(field, f"array of type {values.dtype}", "integers, text or UUIDs")
    places: dict[Any, int] = {}
    codes = np.fromiter(
        (-1 if is_missing(each) else places.setdefault(each, len(places)) for each in values.tolist()),
        np.int64,
        len(values),
    )
    return Coded(codes, plain_values(field, list(places)))


def is_missing(value: Any) -> bool:
    """Whether ``value`` stands for no value: None, NaN, or what differs from itself."""
    return value is None or (isinstance(value, float) and value != value)


def array_of(field: str, values: Any) -> NDArray[Any]:
    """``values`` as an array; of objects where NumPy would make texts of numbers or of missing values."""
    if isinstance(values, np.ma.MaskedArray):
        objects = np.array(values, object)
        objects[np.ma.getmaskarray(values)] = None
        return objects
    try:
        array = np.asarray(values)
    except (TypeError, ValueError) as error:
        raise DataError(field, values, f"an array ({error})") from None
    is_listed = array.ndim == 1 and isinstance(values, (list, tuple))
    if is_listed and array.dtype.kind in "US" and set(map(type, values)) != {str}:
        array = np.empty(len(values), object)
        array[:] = values
    return array


def are_numbers(values: NDArray[Any]) -> bool:
    """Whether an array of objects (n,) holds numbers, and maybe missing values, and nothing else."""
    first = next((each for each in values if not is_missing(each)), None)
    if first is None:
        return len(values) > 0  # all are missing, as numbers may be
    if not isinstance(first, _NUMBERS):  # by far the most frequent: texts
        return False
    return all(issubclass(kind, _NUMBERS) for kind in set(map(type, values)) - {type(None)})


def plain_values(field: str, values: Any) -> Int64 | list[Any]:
    """Different values as `Coded` has them; DataError that names the first that can be no id."""
    array = values if isinstance(values, np.ndarray) else None
    if array is not None and array.dtype.kind in "iub":
        if array.dtype.kind == "u" and len(array) and int(array.max()) > 2**63 - 1:
            raise DataError(field, int(array.max()), "an integer below 2**63, or text")
        return array.astype(np.int64)
    listed = list(values.tolist() if array is not None else values)
    if set(map(type, listed)) == {str}:  # by far the most frequent, and the longest
        return listed
    if all(isinstance(each, (int, float, np.integer, np.floating)) for each in listed):
        for each in listed:
            if not float(each).is_integer() or not -(2**63) <= each < 2**63:
                raise DataError(field, each, "a whole number, text or a UUID")
        return np.array([int(each) for each in listed], np.int64)
    kinds = {str if isinstance(each, str) else type(each) for each in listed}
    if kinds <= {str} or kinds <= {uuid.UUID}:
        return [str(each) if isinstance(each, str) else each for each in listed]
    wrong = next((each for each in listed if not isinstance(each, (str, uuid.UUID))), listed[-1])
    valid = "integers, text or UUIDs, all of one kind"
    raise DataError(field, wrong, f"{valid}; .astype(str) makes text of other values")


def _text(value: Any) -> str:
    if isinstance(value, (str, uuid.UUID)):
        return str(value)
    raise TypeError(f"{value!r} is neither text nor a UUID")


def _integers(values: Any) -> Int64:
    array = np.asarray(values)
    if array.dtype.kind == "O":
        array = np.array([int(each) if float(each).is_integer() else None for each in array.tolist()])
    if array.dtype.kind == "f" and bool(((array == np.floor(array)) & (np.abs(array) < 2.0**63)).all()):
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise TypeError("not whole numbers")
    if array.dtype.kind == "u" and len(array) and int(array.max()) >= 2**63:
        raise OverflowError("no int64")
    return array.astype(np.int64)
