"""Signs that a dataset is not what the user meant: one sentence for each, with what would be valid. Pure."""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import DataError
from ..plurals import count
from .minibatches import Float32, Int32

#: Ids above the first number and above the second times the number of ratings are refused if their number is not given.
MOST_IDS_UNASKED, MOST_IDS_A_RATING = 10**7, 100
#: From this number of ids on, it is a sign if less than half of them are used.
FEW_IDS = 1000
#: Repeated pairs are counted among so many ratings, the first ones: to sort more would slow the reading of large files.
MOST_COMPARED = 1 << 20
#: A column of at least so many texts is taken for ids if at least this share of them are different.
FEW_TEXTS, IDS_SHARE = 1000, 0.9
#: A column is taken for dates if so many of its first values are, or all if there are fewer.
MOST_LOOKED_AT = 100
_TIME_OF_DAY = r"\d{1,2}:\d\d(:\d\d([.,]\d+)?)?( ?[AaPp][Mm])?( ?(Z|UTC|[+-]\d\d(:?\d\d)?))?"
#: Dates in numbers, such as 2024-12-31 or 31.12.2024, and perhaps a time of the day. Years have two digits only after
#: "/": with other marks such texts are versions or numbers of parts as well, as 10.12.14 is.
_YEAR_FIRST, _YEAR_LAST = (
    re.compile(f"{date}((T|,? ){_TIME_OF_DAY})?", re.ASCII)
    for date in (r"(\d{4})([./-])(\d\d?)\2(\d\d?)", r"(\d\d?)([./-])(\d\d?)\2(\d{4}|(?<=/)\d\d)")
)


def check_id_range(field: str, count_field: str, n_ids: int, n_ratings: int) -> None:
    """Raise DataError if the number of ids was not given, and is far too large for the number of ratings."""
    if n_ids > MOST_IDS_UNASKED and n_ids > MOST_IDS_A_RATING * n_ratings:
        raise DataError(
            field,
            f"ids up to {n_ids - 1} of {count(n_ratings, 'rating')}",
            f"numbered from 0 without gaps, as by np.unique({field}, return_inverse=True)[1]; "
            f"{count_field}={n_ids} where there are so many",
        )


def doubts_of_ids(field: str, ids: Int32, n_ids: int) -> list[str]:
    """Signs that ids, whose number was not given, do not begin at 0 or leave out most numbers."""
    noun = field.removesuffix("s")
    first = int(ids.min())
    n_used = _n_different(ids, n_ids)
    if n_ids >= FEW_IDS and 2 * n_used < n_ids:
        used = f"{count(n_used, 'id')} {'is' if n_used == 1 else 'are'} used"
        return [
            f"{field}: {used} of 0 to {n_ids - 1}, the others take memory too; number them without "
            f"gaps, as by np.unique({field}, return_inverse=True)[1], or hand in n_{field}= where that is meant"
        ]
    if first == 1:
        return [
            f"{field}: ids begin at 1 and are taken for 0-based ones, so {noun} 0 has no ratings; hand in {field} - 1, "
            f"or n_{field}= where that is meant"
        ]
    return []


def _n_different(ids: Int32, n_ids: int) -> int:
    """Number of different ids; needs about as much memory as the ids."""
    if n_ids > 8 * len(ids):
        return len(np.unique(ids))
    is_used = np.zeros(n_ids, bool)
    is_used[ids] = True
    return int(np.count_nonzero(is_used))


def doubts_of_ratings(users: Int32, items: Int32, ratings: Float32) -> list[str]:
    """Signs that nothing, or little, can be learnt from the ratings, or that users have rated items repeatedly."""
    doubts = [
        f"{field}: all {len(ids):,} ratings are of {field.removesuffix('s')} {ids[0]}; factors are learnt where "
        "several users have rated several items"
        for field, ids in (("users", users), ("items", items))
        if len(ids) > 1 and bool((ids == ids[0]).all())
    ]
    if len(ratings) > 1 and bool((ratings == ratings[0]).all()):
        doubts.append(
            f"ratings: all {len(ratings):,} are {ratings[0]:g}, so there is nothing to learn; ratings that differ "
            "were expected"
        )
    n_compared = min(len(ratings), MOST_COMPARED)
    if n_again := _n_repeated(users[:n_compared], items[:n_compared]):
        first = "the first " if n_compared < len(ratings) else ""
        doubts.append(
            f"users, items: {n_again:,} of {first}{count(n_compared, 'rating')} "
            f"{'is' if n_again == 1 else 'are'} of a user and an item that an earlier one is of, and all count; keep "
            "one of each pair, or their mean, unless that is meant: held-out rows repeat training rows otherwise"
        )
    return doubts


def _n_repeated(users: Int32, items: Int32) -> int:
    """Number of pairs that come after an equal one."""
    pairs = users.astype(np.int64) << 32 | items
    pairs.sort()
    return int(np.count_nonzero(pairs[1:] == pairs[:-1]))


def doubts_of_features(X: Any, y: Float32) -> list[str]:
    """Signs that nothing can be learnt from columns or labels.

    Parameters
    ----------
    X : scipy.sparse CSR, float32 (n, n_features)
    y : float32 (n,)
    """
    doubts = []
    is_used = np.zeros(X.shape[1], bool)
    is_used[X.indices[X.data != 0]] = True
    unused = np.flatnonzero(~is_used)
    if len(unused) == X.shape[1]:
        doubts.append("X: every value is 0, so there is nothing to learn; features that differ were expected")
    elif len(unused):
        doubts.append(
            f"X: {len(unused):,} of {X.shape[1]:,} columns are 0 in every row, the first of them {unused[0]}; nothing"
            " is learnt of them, leave them out unless other rows have them"
        )
    if len(y) > 1 and bool((y == y[0]).all()):
        doubts.append(
            f"y: all {len(y):,} labels are {y[0]:g}, so there is nothing to learn; labels that differ were expected"
        )
    return doubts


def looks_like_ids(n_different: int, n: int) -> bool:
    """Whether ``n`` texts of a column, of which so many are different, name rows and tell nothing of them."""
    return n >= FEW_TEXTS and n_different >= IDS_SHARE * n


def look_like_dates(values: Sequence[Any]) -> bool:
    """Whether all ``values``, the first ones of a column, are texts of dates, or of points in time."""
    return all(isinstance(value, str) and _is_date(value) for value in values)


def _is_date(text: str) -> bool:
    if found := _YEAR_FIRST.fullmatch(text):
        return _is_day(found[1], found[3], found[4])
    if found := _YEAR_LAST.fullmatch(text):
        year = found[4] if len(found[4]) == 4 else f"20{found[4]}"
        return _is_day(year, found[1], found[3]) or _is_day(year, found[3], found[1])
    return False


def _is_day(year: str, month: str, day: str) -> bool:
    try:
        return bool(datetime.date(int(year), int(month), int(day)))
    except ValueError:  # such as 2024-13-01
        return False


def dates_refused(column: str, *, is_text: bool) -> DataError:
    """What is said of a feature that holds dates: as categories, nothing would be learnt of them for other dates.

    ``is_text``: as texts, which may be categories if that is meant.
    """
    meant = f"; categorical=[{column!r}] where each date is a category" if is_text else ""
    valid = (
        f"numbers or categories; drop=[{column!r}] leaves it out, and the days since a date, or the day of the week, "
        f"are numbers (pandas.to_datetime){meant}"
    )
    return DataError(f"features, column {column!r}", "dates", valid)


def doubt_of_ids_column(column: str) -> str:
    """A feature of a table `looks_like_ids`."""
    return (
        f"column {column!r}: nearly every row has another text, as ids have, and nothing can be learnt from it for "
        f"other rows; leave it out by drop=[{column!r}], or hand in hashed=[{column!r}] where it is meant"
    )
