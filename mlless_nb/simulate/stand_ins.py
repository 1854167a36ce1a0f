"""Stand-ins for minibatches and frames in a simulation without data: their sizes."""

from __future__ import annotations

from collections.abc import Sequence

from ..exchange.stats import NO_STATS, Stats
from ..worker.minibatch_merging import merge


class Rows:
    """One or several minibatches without data: only the number of rows."""

    __slots__ = ("n",)

    def __init__(self, n: int) -> None:
        self.n = n


@merge.register
def _(first: Rows, parts: Sequence[Rows]) -> Rows:
    return Rows(sum(part.n for part in parts))


class Sized:
    """One frame, or ``count`` frames together, without data: its size and the stats of its header.

    ``worth`` is the progress that it gives to a replica that applies updates one by one.
    """

    __slots__ = ("count", "n_bytes", "stats", "worth")

    def __init__(self, n_bytes: int, stats: Stats = NO_STATS, count: int = 1, worth: float = 0.0) -> None:
        self.n_bytes, self.stats, self.count, self.worth = n_bytes, stats, count, worth

    def __len__(self) -> int:
        return self.n_bytes
