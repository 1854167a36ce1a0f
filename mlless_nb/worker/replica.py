"""A worker's replica: parameters, optimiser state and what is held back, and all the arithmetic of a step on them.

Nothing here waits or knows of other machines: an update becomes frames, frames become additions, in slot order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from ..bus.messages import Invocation
from ..data.minibatches import Minibatch
from ..data.prepare import Manifest
from ..exchange import Frame
from ..job.optimizers import SGD, optimizer_from_json
from ..job.sync import sync_from_json
from ..kernels import (
    SignificanceSplit,
    apply_frame,
    apply_rows,
    encode_sparse,
    encode_update,
    extract_delta,
    flush_residual,
    merge_frames,
    read_header,
    snapshot_rows,
    split_significant,
    subtract_sent,
)
from ..models import model_from_json
from ..storage.checkpoint import Progress
from .row_ownership import Ownership
from .table_layout import allocate_tables

Float32 = NDArray[np.float32]
Int32 = NDArray[np.int32]

#: What a frame's header tells of a step: training loss sum and count, validation loss sum and count.
Stats = tuple[float, float, float, float]
#: Groups of minibatches of which it is remembered which rows they touch together.
MOST_UNIONS = 256
NO_STATS: Stats = (0.0, 0.0, 0.0, 0.0)


@dataclass
class Snapshot:
    """What a replica had learnt at some step: parameters, and what was held back; float32 (n_rows, width)."""

    params: Float32
    residual: Float32 | None


def _told(frame: Frame) -> Stats:
    header = read_header(frame)
    return header.loss_sum, header.loss_count, header.val_sum, header.val_count


class Replica:
    """One worker's copy of the model.

    Parameters
    ----------
    invocation : Invocation
    manifest : Manifest
        Of the training minibatches.

    Attributes
    ----------
    params : float32 (n_rows, width)
    ownership : Ownership
        Which rows are its own until they are handed over.
    averages : bool
        Whether replicas of those who leave are averaged in.
    staleness : int
        Steps that this replica may be ahead of what it has applied of its peers.
    merges : bool
        Whether a step takes the minibatches of all shards that are held as one. Not under an adaptive optimiser: what
        it makes of one large minibatch is another, longer step than the mean of what it makes of several.
    n_made, n_sent : int
        Values of the last update, and how many of them are published.
    rate_factor : float
        Of the learning rate; whoever trains sets it, on all replicas alike.
    n_steps_before, n_updates_before : int
        Steps, and steps of the optimiser, of the runs that this one goes on from.
    """

    def __init__(self, invocation: Invocation, manifest: Manifest) -> None:
        self.model = model_from_json(invocation.model)
        self._sync = sync = sync_from_json(invocation.sync)
        self.averages, self.staleness = sync.averages and sync.threshold_at(1) > 0, sync.staleness
        self._optimizer = optimizer_from_json(invocation.optimizer)
        self._slot, self._codec = invocation.slot, invocation.codec
        self._is_mean = invocation.aggregate == "mean"
        self._manifest = manifest
        self._loss_unit = manifest.deviation**2  # losses are told in the ratings' own units
        shape = manifest.shape
        self.n_rows, self.width = self.model.table_shape(shape)
        self._l2, self._l2_rows = self.model.dense_l2, self.model.dense_l2_rows(shape)
        self._is_dense = self._optimizer.moves_untouched(self._l2)
        n_users = shape[0] if manifest.n_shards > 1 else 0
        self.ownership = Ownership(self._slot, n_users, invocation.n_workers)
        # What is not published stays in the split's residual; a lossy codec leaves its rounding errors there.
        self._filters = self._sync.filters or self._codec != "float32"
        holds = self._filters or n_users > 0
        tables = allocate_tables(self.n_rows, self.width, 1 + len(self._optimizer.state_names) + holds, self._is_dense)
        self.params = tables[0]
        self.params[...] = self.model.init(shape, manifest.mean, invocation.seed)
        self._state = dict(zip(self._optimizer.state_names, tables[1:], strict=False))
        self._split = SignificanceSplit(self.n_rows, self.width, tables[-1]) if holds else None
        self._per_sample = isinstance(self._optimizer, SGD) and self._optimizer.per_sample
        self._local_steps = invocation.local_steps
        self._takes_local_steps = self._local_steps > 1 or self._per_sample
        self._base = np.empty((self.n_rows if self._takes_local_steps else 0, self.width), np.float32)
        self._marks = np.zeros(self.n_rows if self._takes_local_steps else 0, np.uint32)
        self._grad = self._out = np.empty((0, self.width), np.float32)
        self._all_rows = np.arange(self.n_rows, dtype=np.int32)
        self._rows: Int32 | None = None
        self._update = self._out
        # Where replicas differ anyway, each may add its own update at once: in the pass that makes it.
        self._fuses = not (self._takes_local_steps or (n_users and self._is_dense))
        self._scatters = invocation.scatters
        self.rate_factor = 1.0
        self.n_steps_before = self.n_updates_before = 0
        self._divisor = float(manifest.size)
        self.merges = isinstance(self._optimizer, SGD) or self._takes_local_steps or n_users > 0
        self._rows_of: WeakKeyDictionary[Minibatch, Int32] = WeakKeyDictionary()
        self._unions: dict[tuple[int, ...], tuple[Sequence[Minibatch], Int32, list[Int32]]] = {}
        self._states = [self._state]  # of each shard that is held, where they are not merged
        self._n_held, self._n_shards = 1, manifest.n_shards
        # Of owned rows nothing is significant: what they move by is held back and added in one pass.
        fuses_owned = self._fuses and n_users > 0
        self._owned_residual = SignificanceSplit(self.n_rows, self.width, tables[-1]) if fuses_owned else None
        if self._owned_residual is not None:
            self._owned_residual.threshold, self._owned_residual.moves = np.inf, True
        # Of the update's rows the first so many are not published, and are in the parameters already.
        self.n_made = self.n_sent = self._n_kept = self._n_added = 0

    # -- from one run to the next

    def go_on_from(self, start: Progress) -> None:
        """Begin where another run ended; before the first step."""
        n_users = self.ownership.n_users
        if start.params.shape != self.params.shape or (
            n_users and (start.owners is None or len(start.owners) != n_users)
        ):
            raise ValueError(f"a start of shape {start.params.shape}: must be {self.params.shape}, with its owners")
        self.params[...] = start.params
        self.n_steps_before, self.n_updates_before = start.n_steps, start.n_updates
        if n_users and start.owners is not None:
            self.ownership.know(start.owners)
        for state, table in zip(self._state.values(), start.state, strict=False):
            state[...] = table
            if n_users:
                # One shard of many, its owner's minibatches have so many times as much of a user; the mean has not.
                state[self.ownership.own_rows()] *= np.float32(self._n_shards)
                state[self.ownership.others()] = 0.0

    @property
    def state(self) -> list[Float32]:
        """The optimiser's tables, float32 (n_rows, width); the mean of those of several shards."""
        if len(self._states) == 1:
            return list(self._state.values())
        return [np.mean([state[name] for state in self._states], axis=0) for name in self._state]

    def progress(self, step: int, state: Sequence[Float32]) -> Progress:
        """How far training is after ``step``, ``state`` being all workers' together."""
        n_updates = self.n_updates_before + step * self._local_steps
        return Progress(self.params, step, tuple(state), self.n_steps_before + step, n_updates, self.rate_factor)

    # -- making an update

    def make(
        self, minibatches: Sequence[Minibatch], step: int, n_active: int, n_shards: int = 1, n_all: int | None = None
    ) -> float:
        """Make the update of ``step`` (1-based) from this worker's minibatches; returns the sum of their losses.

        Of one minibatch it is what the optimiser says; of several (local steps) the way that they lead, each begun
        where the one before ended. The parameters are as they were until `apply`; where replicas differ anyway, the
        update may be in them already.

        Each minibatch has those of ``n_shards`` shards, of ``n_all`` (``n_active`` unless given) that all workers have
        together: the update is that of their mean gradient, and counts for as many. Where this replica does not merge
        shards, there is a minibatch of each instead, and the update is the sum of theirs.
        """
        scale = n_shards / (n_all or n_active) if self._is_mean else float(n_shards)
        is_apart = n_shards > 1 and not self.merges
        self._divisor = float(self._manifest.size * (1 if is_apart else n_shards))
        fuses = self._fuses and not is_apart
        is_alone = n_active == 1  # nobody reads what it would publish
        split = self._split if self._filters and not is_alone else None
        if is_alone and self._split is not None:
            self._split.moves = False
        if split is not None:
            split.threshold = threshold = self._sync.threshold_at(self.n_steps_before + step)
            split.moves = fuses and threshold > 0 and not self._scatters(n_active)
        if self._takes_local_steps:
            loss = self._walk(minibatches, step, scale)
        elif is_apart:
            loss = self._optimize_apart(minibatches, self.n_updates_before + step, scale / n_shards)
        else:
            state, number = self._state, self.n_updates_before + step
            loss = self._optimize(minibatches[0], state, number, scale, split if fuses else None)
        self.n_made = self._update.size
        if self._owned_residual is None:
            self._keep_owned()
        rows, update = self._part(self._n_kept)
        if split is not None and not fuses:
            split_significant(self.params, rows, update, split)
        self.n_sent = 0 if is_alone else split.count if split is not None else update.size
        return loss * self._loss_unit

    def _optimize(
        self, minibatch: Minibatch, state: dict[str, Float32], step: int, scale: float, split: SignificanceSplit | None
    ) -> float:
        """Gradient and optimiser of one minibatch."""
        rows = self._touched(minibatch)
        n_touched = len(rows)
        if n_touched > len(self._grad):
            self._grad = np.empty((n_touched + n_touched // 8, self.width), np.float32)
        self._rows = None if self._is_dense else rows
        grad = self._grad[:n_touched]
        out = self._update = self._room(self.n_rows) if self._is_dense else grad
        loss = self.model.gradient(self.params, minibatch, self._manifest.mean, self._divisor, grad)
        args, own = (state, step, scale * self.rate_factor, self._l2, self._l2_rows), 0
        if self._owned_residual is not None and (own := self.ownership.count_own(rows)):
            self._optimizer.update(self.params, rows[:own], grad[:own], *args, out[:own], self._owned_residual)
            rows, grad, out = rows[own:], grad[own:], out[own:]
        self._optimizer.update(self.params, rows, grad, *args, out, split)
        self._n_kept = self._n_added = own
        return loss

    def _touched(self, minibatch: Minibatch) -> Int32:
        """The rows of the table that ``minibatch`` touches; remembered as long as the minibatch is kept."""
        rows = self._rows_of.get(minibatch)
        if rows is None:
            rows = self._rows_of[minibatch] = self.model.rows(minibatch, self._manifest.shape)
        return rows

    def _optimize_apart(self, minibatches: Sequence[Minibatch], step: int, scale: float) -> float:
        """Gradient and optimiser of each shard's minibatch, with the shard's own state; the sum of their updates."""
        rows, places = (None, [None] * len(minibatches)) if self._is_dense else self._union(minibatches)
        total = np.zeros((self.n_rows if rows is None else len(rows), self.width), np.float32)
        loss = 0.0
        for minibatch, state, place in zip(minibatches, self._states, places, strict=True):
            loss += self._optimize(minibatch, state, step, scale, None)
            apply_rows(total, place, self._update)
        self._rows, self._update = rows, total
        return loss

    def _union(self, minibatches: Sequence[Minibatch]) -> tuple[Int32, list[Int32]]:
        """The rows that ``minibatches`` touch together, and where those of each are among them; remembered."""
        key = tuple(map(id, minibatches))
        found = self._unions.get(key)
        if found is None:
            if len(self._unions) >= MOST_UNIONS:
                self._unions.clear()
            each = [self._touched(minibatch) for minibatch in minibatches]
            rows = np.unique(np.concatenate(each))
            places = [np.searchsorted(rows, touched).astype(np.int32) for touched in each]
            found = self._unions[key] = (minibatches, rows, places)  # they live as long: no other has their id
        return found[1], found[2]

    def _room(self, n: int) -> Float32:
        if n > len(self._out):
            self._out = np.empty((min(n + n // 8, self.n_rows), self.width), np.float32)
        return self._out[:n]

    def _walk(self, minibatches: Sequence[Minibatch], step: int, scale: float) -> float:
        """Local steps: walk on this replica alone, note how far it came, and go back."""
        loss = 0.0
        for number, minibatch in enumerate(minibatches):
            local_step = self.n_updates_before + (step - 1) * self._local_steps + number + 1
            if self._per_sample:
                snapshot_rows(self.params, self._touched(minibatch), self._base, self._marks, step)
                loss += self._pass(minibatch, local_step)
            else:
                loss += self._optimize(minibatch, self._state, local_step, 1.0, None)
                snapshot_rows(self.params, self._rows, self._base, self._marks, step)
                apply_rows(self.params, self._rows, self._update)
        self._rows = None if self._is_dense else np.flatnonzero(self._marks == step).astype(np.int32)
        self._update = self._room(self.n_rows if self._rows is None else len(self._rows))
        extract_delta(self.params, self._rows, self._base, scale, self._update)
        return loss

    def _pass(self, minibatch: Any, local_step: int) -> float:
        """SGD over the minibatch's ratings one by one."""
        model: Any = self.model  # one that has such a pass, or the job would have been refused
        rate = self._optimizer.rate(local_step) * self.rate_factor
        return float(model.sgd_pass(self.params, minibatch, self._manifest.mean, rate))

    def _keep_owned(self) -> None:
        """Rows that nobody else touches are not published: they wait in the residual until they are handed over."""
        self._n_kept = 0
        if self.holds_owned and self._split is not None:
            rows = self._all_rows if self._rows is None else self._rows
            order, n_kept = self.ownership.own_first(rows)
            if order is not None:
                rows, self._update = rows[order], self._update[order]
            self._rows, self._n_kept = rows, n_kept
            apply_rows(self._split.residual, rows[:n_kept], self._update[:n_kept])

    def _part(self, first: int) -> tuple[Int32 | None, Float32]:
        """The rows of the update from the one numbered ``first`` on."""
        return self._rows[first:] if self._rows is not None else None, self._update[first:]

    # -- broadcast

    def encode(self, step: int, stats: Stats) -> bytes:
        """The frame of the update for everybody."""
        rows, update = self._part(self._n_kept)
        if self._split is None or not self._filters:
            return encode_update(rows, update, step, self._slot, self.n_rows, stats)
        return self._encode_sent(0, self.n_rows, step, stats)

    def _encode_sent(self, first: int, end: int, step: int, stats: Stats) -> bytes:
        """A frame of what was split off in the rows [first, end), as a table of their own."""
        split = self._split
        assert split is not None
        positions, values = self._between(split.sent_positions, split.sent_values, first, end)
        return encode_sparse(
            positions,
            values,
            step,
            self._slot,
            end - first,
            self.width,
            stats,
            codec=self._codec,
            residual=split.residual[first:end],
        )

    def _between(
        self, positions: NDArray[np.uint32], values: Float32, first: int, end: int
    ) -> tuple[NDArray[np.uint32], Float32]:
        """Those of the values that lie in the rows [first, end), and where they lie in a table of these."""
        if (first, end) == (0, self.n_rows):
            return positions, values
        low, high = np.searchsorted(positions, np.array((first * self.width, end * self.width), np.uint32))
        return positions[low:high] - np.uint32(first * self.width), values[low:high]

    def apply(self, active: list[int], frames: Sequence[Frame], stats: Stats) -> Stats:
        """Add the own update and the peers' in slot order; the sums of all their stats."""
        own, params, rest = self._slot, self.params, iter(frames)
        loss_sum = loss_count = val_sum = val_count = 0.0
        for slot in active:
            if slot == own:
                self.apply_own()
                theirs = stats
            else:
                theirs = apply_frame(next(rest), params)
            loss_sum += theirs[0]
            loss_count += theirs[1]
            val_sum += theirs[2]
            val_count += theirs[3]
        return loss_sum, loss_count, val_sum, val_count

    def apply_own(self) -> None:
        """Add the own update, unless that was done when it was made."""
        if self._split is None or not self._split.moves:
            self._add_kept()
            apply_rows(self.params, *self._part(self._n_kept))

    def _add_kept(self) -> None:
        """Add what is kept of the own update, unless that was done when it was made."""
        if self._n_kept > self._n_added and self._rows is not None:
            apply_rows(self.params, self._rows[: self._n_kept], self._update[: self._n_kept])

    def apply_late(self, frame: Frame) -> Stats:
        """Add a peer's update; its stats."""
        return apply_frame(frame, self.params)

    def apply_all(self, frames: Sequence[Frame]) -> None:
        """Add frames that nothing of this replica's own comes with."""
        for frame in frames:
            apply_frame(frame, self.params)

    # -- scatter-reduce: everybody merges one range of rows, a table of its own, and publishes the merged range

    def ranges(self, n_active: int) -> list[tuple[int, int]]:
        """The rows [first, end) that each rank merges."""
        return self.ownership.ranges(self.n_rows, n_active)

    def encode_parts(self, step: int, stats: Stats, active: list[int]) -> dict[int, bytes]:
        """Frames of the update by range, for the slot that merges it; this slot's own among them."""
        ranges = self.ranges(len(active))
        rows, update = self._part(self._n_kept)
        if not self._filters:
            frames = [self._encode_range(rows, update, first, end, step, stats) for first, end in ranges]
        else:
            frames = [self._encode_sent(first, end, step, stats) for first, end in ranges]
            if self._split is not None:
                # The merged ranges bring what was sent: here only the rest is added.
                subtract_sent(rows, update, self._split.sent_positions, self._split.sent_values)
        return dict(zip(active, frames, strict=True))

    def _encode_range(
        self, rows: Int32 | None, update: Float32, first: int, end: int, step: int, stats: Stats
    ) -> bytes:
        """A frame of the rows [first, end) as a table of their own."""
        if rows is None:
            return encode_update(None, update[first:end], step, self._slot, end - first, stats)
        low, high = np.searchsorted(rows, np.array((first, end), rows.dtype))  # of another type it casts all rows
        return encode_update(rows[low:high] - np.int32(first), update[low:high], step, self._slot, end - first, stats)

    def merge(self, active: list[int], own: bytes, frames: Sequence[Frame], step: int) -> tuple[bytes, Stats]:
        """The merged range of this slot as a frame, and the sums of all stats."""
        rest = iter(frames)
        parts = [own if slot == self._slot else next(rest) for slot in active]
        sums = [sum(column) for column in zip(*map(_told, parts), strict=True)]
        first, end = self.ranges(len(active))[active.index(self._slot)]
        return merge_frames(parts, 0, end - first, step, self._slot, NO_STATS), (sums[0], sums[1], sums[2], sums[3])

    def apply_merged(self, active: list[int], own: bytes, frames: Sequence[Frame]) -> None:
        """Add what was not sent of the own update, then the merged ranges in their order."""
        self._add_kept()
        if self._filters:
            apply_rows(self.params, *self._part(self._n_kept))
        rest = iter(frames)
        for slot, (first, end) in zip(active, self.ranges(len(active)), strict=True):
            apply_frame(own if slot == self._slot else next(rest), self.params[first:end])

    # -- handing over

    @property
    def holds_owned(self) -> bool:
        """Whether rows of this replica are its own until they are handed over."""
        return self.ownership.n_users > 0

    @property
    def differs(self) -> bool:
        """Whether replicas differ while they train, though each knows of all rows."""
        return not self.holds_owned and (self.holds_back or self.staleness > 0)

    @property
    def withholds(self) -> bool:
        """Whether something of any row may not have been published yet."""
        return self._codec != "float32" or self._sync.threshold_at(1) > 0

    @property
    def holds_back(self) -> bool:
        """Whether anything produced here may not have been published yet."""
        return self.holds_owned or self.withholds

    def reassign(self, owners: Sequence[int | None]) -> None:
        """Shards of users belong to ``owners`` now. What momentum is left of users that are another one's is lost.

        It would go on moving this replica's copy of them, and come to light when all is handed over, long out of date.
        """
        self.ownership.reassign(owners)
        if self._is_dense:
            for state in self._state.values():
                state[self.ownership.others()] = 0.0

    def hold(self, n_shards: int) -> None:
        """From now on minibatches have those of ``n_shards`` shards.

        A user's ratings are of one of them, so that its gradient becomes a smaller part of the mean: the velocity that
        it has been given follows. Common rows keep theirs, which stands for that of the leavers' too. Where shards are
        not merged, those that are taken over begin with a copy of this replica's own state.
        """
        self._unions.clear()
        while not self.merges and len(self._states) < n_shards:
            self._states.append({name: table.copy() for name, table in self._state.items()})
        ratio, self._n_held = np.float32(self._n_held / n_shards), n_shards
        if self.holds_owned and ratio != 1.0:
            own = self.ownership.own_rows()
            for state in self._state.values():
                state[own] *= ratio

    def snapshot(self, into: Snapshot | None = None) -> Snapshot:
        """A copy of what was learnt so far, in the memory of ``into`` if that is given."""
        residual = self._split.residual if self._split is not None else None
        if into is None:
            return Snapshot(self.params.copy(), None if residual is None else residual.copy())
        into.params[...] = self.params
        if into.residual is not None:
            into.residual[...] = residual
        return into

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to what a snapshot has; the optimiser's state stays."""
        self.params[...] = snapshot.params
        if self._split is not None:
            self._split.residual[...] = snapshot.residual

    def flush(self, step: int) -> bytes:
        """A frame of all that is held back, which is held back no more."""
        positions, values = self._flush()
        return encode_sparse(positions, values, step, self._slot, self.n_rows, self.width, NO_STATS)

    def _flush(self) -> tuple[NDArray[np.uint32], Float32]:
        residual = self._split.residual if self._split is not None else self._out[:0]
        positions, values = np.empty(residual.size, np.uint32), np.empty(residual.size, np.float32)
        count = flush_residual(residual, positions, values) if residual.size else 0
        return positions[:count], values[:count]

    def flush_parts(self, step: int, active: list[int]) -> dict[int, bytes]:
        """`flush` of all rows by range, for the slot that takes it in. The own range has the own values already."""
        held, parts = self._flush(), {}
        for slot, (first, end) in zip(active, self.ranges(len(active)), strict=True):
            positions, values = self._between(*held, first, end)
            parts[slot] = encode_sparse(positions, values, step, self._slot, end - first, self.width, NO_STATS)
        return parts

    def take_in(self, active: list[int], frames: Sequence[Frame], step: int) -> bytes:
        """Add what the peers held back of this slot's range to the parameters; a frame of these."""
        first, end = self.ranges(len(active))[active.index(self._slot)]
        for frame in frames:
            apply_frame(frame, self.params[first:end])
        return encode_update(
            None, np.ascontiguousarray(self.params[first:end]), step, self._slot, end - first, NO_STATS
        )

    def take_over(self, active: list[int], own: bytes, frames: Sequence[Frame]) -> None:
        """The parameters are those that each slot of ``active`` publishes of its range."""
        rest = iter(frames)
        for slot, (first, end) in zip(active, self.ranges(len(active)), strict=True):
            apply_frame(own if slot == self._slot else next(rest), self.params[first:end], add=False)

    def average(self) -> None:
        """Average in the replica of a worker that leaves: ``params <- (params + its params) / 2``.

        Its residual has been published and applied, so that its parameters are what all replicas have in common: this
        one's less what it holds back. Half of that is taken back, and published no more. Rows that this replica owns
        are not the other's to say.
        """
        if self.averages and self._split is not None:
            for rows in self.ownership.everybodys():
                half = self._split.residual[rows] * np.float32(0.5)
                self._split.residual[rows] = half
                self.params[rows] -= half

    # -- evaluation

    def encode_stats(self, step: int, stats: Stats) -> bytes:
        """A frame that only tells ``stats``."""
        rows, update = np.empty(0, np.int32), np.empty((0, self.width), np.float32)
        return encode_update(rows, update, step, self._slot, self.n_rows, stats)

    def sum_stats(self, active: list[int], frames: Sequence[Frame], stats: Stats) -> Stats:
        """The sums of the own ``stats`` and of those that the peers' frames tell, in slot order."""
        rest = iter(frames)
        told = [stats if slot == self._slot else _told(next(rest)) for slot in active]
        first, second, third, fourth = (sum(column) for column in zip(*told, strict=True))
        return first, second, third, fourth

    def evaluate(self, minibatch: Minibatch) -> float:
        """Sum of losses of held-out rows."""
        return self.model.evaluate(self.params, minibatch, self._manifest.mean) * self._loss_unit

    @property
    def has_emerged(self) -> bool:
        """See `models.base.Model`."""
        return self.model.has_emerged(self.params, self._manifest.shape)

    def interaction(self, minibatch: Minibatch) -> float:
        """How much of the predictions for held-out rows products of parameters make, see `models.base.Model`."""
        return self.model.interaction(self.params, minibatch) * self._loss_unit

    @property
    def is_finite(self) -> bool:
        """Whether every parameter is."""
        return bool(np.isfinite(self.params).all())
