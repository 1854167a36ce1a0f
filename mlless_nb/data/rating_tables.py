"""Ratings from tables with the user's own ids, see ``datasets.ratings``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from ..frames.coding import is_missing, n_rows, no_missing
from ..frames.ids import Coded, Ids, IdsBuilder
from ..frames.names import RatingNames
from ..frames.sources import CODED, NUMBER, NUMBERS, TEXT, TIME, TIMES, Batch
from ..validation import check_choice
from .minibatches import Float32
from .openings import opened_table
from .ratings import Ratings

#: What is done about rows with a missing value, or an unknown id.
MISSING = ("error", "drop")
_LEFT_OUT = "missing='drop' leaves such rows out"


def ratings_of_table(
    frame: Any, user: Any, item: Any, rating: Any = None, time: Any = None, missing: str = "error", like: Any = None
) -> Ratings:
    """Ratings from the columns of a table; see ``datasets.ratings`` for the arguments."""
    check_choice("missing", missing, MISSING)
    known = _names_of(like)
    source = opened_table(frame)
    columns = {"user": user, "item": item}
    for field, column in columns.items():
        if column is None:
            raise DataError(field, None, f"the name of a column; there are {', '.join(list(source.columns)[:20])}")
    names = {field: source.check_column(field, column, TEXT, NUMBERS) for field, column in columns.items()}
    roles = dict.fromkeys(names.values(), CODED)
    for field, column, role, kinds in (
        ("rating", rating, NUMBER, (NUMBERS,)),
        ("time", time, TIME, (NUMBERS, TIMES)),
    ):
        if column is not None:
            names[field] = source.check_column(field, column, *kinds)
            roles[names[field]] = role
    if len(roles) < len(names):
        raise DataError("user, item, rating, time", tuple(names.values()), "different columns")
    users_known, items_known = (known.users, known.items) if known is not None else (None, None)
    sides = [_Side("user", names["user"], users_known), _Side("item", names["item"], items_known)]
    values: list[Float32] = []
    times: list[NDArray[np.float64]] = []
    for batch, first, keep in _kept(source.batches(roles), sides, is_dropping=missing == "drop"):
        for side in sides:
            side.add(batch[side.column], first, keep)
        if rating is not None:
            values.append(_finite(names["rating"], batch[names["rating"]], first, keep))
        if time is not None:
            column = batch[names["time"]]
            _check(names["time"], column, first, keep)
            times.append(column[keep])
    (users, user_numbers), (items, item_numbers) = (side.built(is_text=source.is_text_file) for side in sides)
    if not len(user_numbers):
        why = ", in which no value is missing" if missing == "drop" else ""
        raise DataError("frame", source.name, f"a table with at least one row{why}")
    ratings = _joined(values) if rating is not None else np.ones(len(user_numbers), np.float32)
    made = Ratings(user_numbers, item_numbers, ratings, (len(users), len(items)), source.name)
    made.names = RatingNames(users, items)
    made.times = np.concatenate(times) if times else None
    return made


class _Side:
    """The ids of users or of items."""

    def __init__(self, field: str, column: str, known: Ids | None) -> None:
        self.field, self.column, self._known = field, column, known
        self._builder = IdsBuilder(f"column {column!r}")
        self._numbers: list[NDArray[np.int32]] = []

    def unknown(self, values: Coded) -> NDArray[np.bool_]:
        """Which rows have an id that is not known, (n,)."""
        if self._known is None:
            return np.zeros(len(values.codes), bool)
        is_new: NDArray[np.bool_] = np.append(self._known.places(values.values), 0)[values.codes] < 0
        return is_new

    def add(self, values: Coded, first: int, keep: NDArray[np.bool_]) -> None:
        """Append the rows in ``keep`` of a batch."""
        _check(self.column, values, first, keep)
        if self._known is None:
            self._builder.add(values, keep)
            return
        if (wrong := self.unknown(values) & keep).any():
            at = int(np.flatnonzero(wrong)[0])
            value = values.values[values.codes[at]]
            valid = f"one of the {len(self._known):,} ids of `like` ({self._known.example}); {_LEFT_OUT}"
            raise DataError(f"column {self.column!r}, row {first + at}", value, valid)
        self._numbers.append(self._known.places(values.values)[values.codes[keep]].astype(np.int32))

    def built(self, *, is_text: bool) -> tuple[Ids, NDArray[np.int32]]:
        """The ids, and the number of each row."""
        if self._known is not None:
            return self._known, np.concatenate([*self._numbers, np.empty(0, np.int32)])
        return self._builder.built(parse_integers=is_text)


def _kept(
    batches: Iterator[Batch], sides: list[_Side], *, is_dropping: bool
) -> Iterator[tuple[Batch, int, NDArray[np.bool_]]]:
    """Batches with the number of their first row, and which rows are kept."""
    first = 0
    for batch in batches:
        keep = np.ones(n_rows(batch), bool)
        if is_dropping:
            for values in batch.values():
                keep &= ~is_missing(values)
            for side in sides:
                keep &= ~side.unknown(batch[side.column])
        yield batch, first, keep
        first += len(keep)


def _check(column: str, values: Any, first: int, keep: NDArray[np.bool_]) -> None:
    if (is_missing(values) & keep).any():
        no_missing(column, values, first, _LEFT_OUT)


def _finite(column: str, values: NDArray[np.float64], first: int, keep: NDArray[np.bool_]) -> Float32:
    _check(column, values, first, keep)
    with np.errstate(over="ignore"):
        found: Float32 = values.astype(np.float32)
    if (np.isinf(found) & keep).any():
        at = int(np.flatnonzero(np.isinf(found) & keep)[0])
        raise DataError(f"column {column!r}, row {first + at}", float(values[at]), "a finite number")
    return found[keep]


def _joined(parts: list[Float32]) -> Float32:
    """The parts one after the other; each is freed at its turn."""
    joined = np.empty(sum(map(len, parts)), np.float32)
    end = len(joined)
    while parts:
        part = parts.pop()
        joined[end - len(part) : end] = part
        end -= len(part)
    return joined


def _names_of(like: Any) -> RatingNames | None:
    if like is None:
        return None
    names = getattr(like, "names", None)
    if not isinstance(names, RatingNames):
        raise DataError("like", like, "a dataset of datasets.ratings(frame, ...), or a model that was trained on one")
    return names
