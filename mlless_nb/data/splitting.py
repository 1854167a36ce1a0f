"""Training and held-out rows other than by chance row by row: ``datasets.split``."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from ..frames.sources import described
from ..validation import check_choice
from .checks import checked_count
from .dataset import Dataset
from .ratings import Ratings
from .sampling import SPLIT, check_split

Rows = TypeVar("Rows", bound=Dataset)
WAYS = ("random", "time", "last", "group")


def split(
    data: Rows, by: str = "random", fraction: float = 0.1, *, seed: int = 0, n_last: int = 1
) -> tuple[Rows, Rows]:
    """(training rows, held-out rows) of a dataset; hand the second in as ``validation=``.

    Parameters
    ----------
    data : Dataset
        With ``time=`` or ``group=`` where that is needed, see `datasets.table` and `datasets.ratings`.
    by : {"random", "time", "last", "group"}
        "random": rows are drawn. "time": the newest rows are held out; rows of the same time stay together. "last": the
        ``n_last`` newest ratings of each user that has more than these; without times, the last ones in the data.
        "group": whole groups are drawn, so that no group has rows on both sides.
    fraction : float
        Share of the rows to hold out, between 0 and 1; about, where rows stay together. Not used by "last".
    seed : int
        Of "random" and "group".
    n_last : int
        Of "last".

    Raises
    ------
    DataError
        When the data has no times or groups, or one side would be empty.
    """
    if not isinstance(data, Dataset):
        raise DataError("data", described(data), "a dataset of mlless_nb.datasets")
    check_choice("by", by, WAYS)
    if by == "random":
        return data.split(fraction, seed)
    if by == "last":
        held = _last(data, checked_count("n_last", n_last))
    else:
        n_held = check_split(data.n, fraction, seed)
        held = _newest(data, n_held) if by == "time" else _groups(data, n_held, seed)
    return data.taken(~held), data.taken(held)


def _newest(data: Dataset, n_held: int) -> NDArray[np.bool_]:
    if data.times is None:
        raise DataError(
            "by", "time", "used with data that has times, as by time= of datasets.table or datasets.ratings"
        )
    since = np.partition(data.times, data.n - n_held)[data.n - n_held]
    if since == data.times.min():  # the rows of this time are too many, and all before would be none
        since = np.min(data.times[data.times > since], initial=np.inf)
    held: NDArray[np.bool_] = data.times >= since
    if not held.any():
        raise DataError("by", "time", "used with rows of different times; all have the same")
    return held


def _last(data: Dataset, n_last: int) -> NDArray[np.bool_]:
    if not isinstance(data, Ratings):
        raise DataError("by", "last", "used with ratings, whose users each have a last one")
    order = np.argsort(data.users, kind="stable") if data.times is None else np.lexsort((data.times, data.users))
    users = data.users[order]
    counts = np.bincount(users, minlength=data.shape[0])
    ends = np.cumsum(counts)
    is_last = ends[users] - np.arange(data.n) <= n_last
    held = np.zeros(data.n, bool)
    held[order] = is_last & (counts[users] > n_last)
    if not held.any():
        raise DataError("n_last", n_last, f"below the ratings of some user; none has more than {int(counts.max())}")
    return held


def _groups(data: Dataset, n_held: int, seed: int) -> NDArray[np.bool_]:
    if data.groups is None:
        raise DataError("by", "group", "used with data that has groups, as by group= of datasets.table")
    sizes = np.bincount(data.groups)
    if len(sizes) < 2:
        raise DataError("by", "group", "used with two or more groups; there is one")
    order = np.random.default_rng([seed, SPLIT]).permutation(len(sizes))
    # The number of groups whose rows come closest to those wanted: at least one, and never all.
    n_groups = int(np.abs(np.cumsum(sizes[order])[:-1] - n_held).argmin()) + 1
    is_held = np.zeros(len(sizes), bool)
    is_held[order[:n_groups]] = True
    return is_held[data.groups]
