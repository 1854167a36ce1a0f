"""The split of a worker's contribution: the part that is published now, and the part that stays in the residual.

The significance filter, a lossy codec and the ownership of rows each keep a part back. That part is added to the
residual, one table, until it is published by `flush`, so that no part of an update is lost.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..exchange.stats import NO_STATS, Stats
from ..kernels import (
    SignificanceSplit,
    apply_rows,
    encode_sparse,
    encode_update,
    flush_residual,
    split_significant,
    subtract_sent,
)
from .algorithms.base import Contribution, Fusion
from .row_ownership import Ownership

Float32 = NDArray[np.float32]
Int32 = NDArray[np.int32]
#: Rows [first, end) of a table.
Range = tuple[int, int]


@dataclass(frozen=True)
class Divergence:
    """How a worker's replica may differ from its peers' replicas between two steps.

    Attributes
    ----------
    owned_rows : bool
        In the rows of its own users: the peers get these rows when they are handed over.
    residual : bool
        In any row, by what the significance filter or a lossy codec has not published yet.
    staleness : int
        Number of last steps of which some peer updates may not be applied yet.
    """

    owned_rows: bool
    residual: bool
    staleness: int

    @property
    def is_unpublished(self) -> bool:
        """Whether a part of this worker's updates may not have been published yet."""
        return self.owned_rows or self.residual

    @property
    def is_comparable(self) -> bool:
        """Whether replicas differ in rows that all of them have, so that their losses can be compared."""
        return self.residual or self.staleness > 0


class OutgoingUpdate:
    """The newest contribution of one worker, and its residual.

    Parameters
    ----------
    params : float32 (n_rows, width)
        The replica's parameters.
    residual : float32 (n_rows, width) or None
        The table of the residual; None if nothing is ever kept back.
    ownership : Ownership
    slot : int
    codec : {"float32", "bf16", "int8"}
    filters : bool
        Whether values of rows that are not owned may be kept back, too.

    Attributes
    ----------
    n_made, n_sent : int
        Number of values in the contribution, and how many of them are published.
    """

    def __init__(
        self, params: Float32, residual: Float32 | None, ownership: Ownership, slot: int, codec: str, *, filters: bool
    ) -> None:
        self._params, self._ownership = params, ownership
        self.n_rows, self.width = params.shape
        self._slot, self._codec, self._filters = slot, codec, filters
        self.residual = residual
        self._split = SignificanceSplit(self.n_rows, self.width, residual) if residual is not None else None
        self._owned: SignificanceSplit | None = None
        if residual is not None and ownership.n_users:
            # The update of owned rows is never published: one pass adds it to the residual and to the parameters.
            self._owned = SignificanceSplit(self.n_rows, self.width, residual)
            self._owned.threshold, self._owned.moves = np.inf, True
        self._all_rows = np.arange(self.n_rows, dtype=np.int32)
        self._rows: Int32 | None = None
        self._values = np.empty((0, self.width), np.float32)
        # The first n_kept rows are not published; the first n_added of them are in the parameters already.
        self._n_kept = self.n_added = 0
        self.n_made = self.n_sent = 0

    # -- taking a contribution

    def begin(self, threshold: float, *, fuses: bool, is_alone: bool, moves: bool) -> Fusion | None:
        """Prepare for the next contribution.

        Parameters
        ----------
        threshold : float
            An update is significant above this size, relative to the parameter.
        fuses : bool
            Whether the algorithm uses the fusion that is returned.
        is_alone : bool
            Whether there are no peers, so that nothing is published.
        moves : bool
            Whether the part that is kept back may be added to the parameters as soon as it is made.
        """
        self._is_alone = is_alone
        self._publishes = self._split if self._filters and not is_alone else None
        if is_alone and self._split is not None:
            self._split.moves = False
        if self._publishes is not None:
            self._publishes.threshold = threshold
            self._publishes.moves = fuses and threshold > 0 and moves
        self._fuses = fuses
        return Fusion(self._publishes, self._owned, self._ownership) if fuses else None

    def take(self, made: Contribution) -> None:
        """Take the contribution ``made`` of the step, and split it."""
        self._rows, self._values = made.rows, made.values
        self._n_kept = self.n_added = made.n_owned
        self.n_made = made.values.size
        if not self._fuses:
            self._keep_owned()
        rows, values = self.part(self._n_kept)
        split = self._publishes
        if split is not None and not self._fuses:
            split_significant(self._params, rows, values, split)
        self.n_sent = 0 if self._is_alone else split.count if split is not None else values.size

    def _keep_owned(self) -> None:
        """Add the rows that no other worker touches to the residual: they are not published until handed over."""
        if self._ownership.n_users and self.residual is not None:
            rows = self._all_rows if self._rows is None else self._rows
            order, n_kept = self._ownership.own_first(rows)
            if order is not None:
                rows, self._values = rows[order], self._values[order]
            self._rows, self._n_kept = rows, n_kept
            apply_rows(self.residual, rows[:n_kept], self._values[:n_kept])

    @property
    def is_added(self) -> bool:
        """Whether the whole contribution is in the parameters already."""
        return self._split is not None and self._split.moves

    def part(self, first: int) -> tuple[Int32 | None, Float32]:
        """The rows of the contribution from position ``first`` on, and their values."""
        if not first:
            return self._rows, self._values
        return self._rows[first:] if self._rows is not None else None, self._values[first:]

    def add_to(self, table: Float32) -> None:
        """Add the contribution, unless it was added when it was made."""
        if not self.is_added:
            self._add_kept(table)
            apply_rows(table, *self.part(self._n_kept))

    def add_unsent_to(self, table: Float32) -> None:
        """Add the unsent part of the contribution, once `encode_ranges` has split it."""
        self._add_kept(table)
        if self._filters:
            apply_rows(table, *self.part(self._n_kept))

    def _add_kept(self, table: Float32) -> None:
        """Add the rows that are kept back, unless they were added when the contribution was made."""
        if self._n_kept > self.n_added and self._rows is not None:
            apply_rows(table, self._rows[: self._n_kept], self._values[: self._n_kept])

    # -- frames of it

    def encode(self, step: int, stats: Stats) -> bytes:
        """The frame that all peers read."""
        if self._split is None or not self._filters:
            return encode_update(*self.part(self._n_kept), step, self._slot, self.n_rows, stats)
        return self._encode_sent(self._split, (0, self.n_rows), step, stats)

    def encode_ranges(self, step: int, stats: Stats, ranges: list[Range]) -> list[bytes]:
        """A frame of each range of rows, as a table of its own."""
        rows, values = self.part(self._n_kept)
        if self._split is None or not self._filters:
            return [self._encode_range(rows, values, bounds, step, stats) for bounds in ranges]
        frames = [self._encode_sent(self._split, bounds, step, stats) for bounds in ranges]
        # The merged ranges contain what was sent, so only the rest is added here.
        subtract_sent(rows, values, self._split.sent_positions, self._split.sent_values)
        return frames

    def _encode_sent(self, split: SignificanceSplit, bounds: Range, step: int, stats: Stats) -> bytes:
        """A frame of the significant values in a range of rows."""
        first, end = bounds
        positions, values = self._between(split.sent_positions, split.sent_values, bounds)
        rest = split.residual[first:end]
        shape = (end - first, self.width)
        return encode_sparse(positions, values, step, self._slot, *shape, stats, codec=self._codec, residual=rest)

    def _encode_range(self, rows: Int32 | None, values: Float32, bounds: Range, step: int, stats: Stats) -> bytes:
        """A frame of those of ``rows`` that lie in a range."""
        first, end = bounds
        if rows is None:
            return encode_update(None, values[first:end], step, self._slot, end - first, stats)
        low, high = np.searchsorted(rows, np.array(bounds, rows.dtype))  # another dtype would cast all rows
        return encode_update(rows[low:high] - np.int32(first), values[low:high], step, self._slot, end - first, stats)

    def _between(
        self, positions: NDArray[np.uint32], values: Float32, bounds: Range
    ) -> tuple[NDArray[np.uint32], Float32]:
        """The positions and values inside a range of rows; the positions count from the range's begin."""
        first, end = bounds
        if (first, end) == (0, self.n_rows):
            return positions, values
        low, high = np.searchsorted(positions, np.array((first * self.width, end * self.width), np.uint32))
        return positions[low:high] - np.uint32(first * self.width), values[low:high]

    # -- the residual

    def flush(self, step: int, ranges: list[Range]) -> list[bytes]:
        """Frames of the residual, one for each range of rows; the residual is zero afterwards."""
        size = self.residual.size if self.residual is not None else 0
        positions, values = np.empty(size, np.uint32), np.empty(size, np.float32)
        count = flush_residual(self.residual, positions, values) if self.residual is not None else 0
        frames = []
        for bounds in ranges:
            part = self._between(positions[:count], values[:count], bounds)
            shape = (bounds[1] - bounds[0], self.width)
            frames.append(encode_sparse(*part, step, self._slot, *shape, NO_STATS))
        return frames

    def halve(self, rows: NDArray[np.int64] | slice) -> Float32:
        """Halve the residual of ``rows``, and return that half."""
        assert self.residual is not None
        half: Float32 = self.residual[rows] * np.float32(0.5)
        self.residual[rows] = half
        return half
