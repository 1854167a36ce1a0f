"""A worker's replica: the parameters, and all the arithmetic of a step on them.

An algorithm's contribution is encoded into frames, and the peers' frames are added to the parameters in slot order.
Nothing here waits or communicates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..bus.messages import Invocation
from ..data.minibatches import Minibatch
from ..data.prepare import Manifest
from ..exchange.protocol import Frame, with_own
from ..exchange.stats import NO_STATS, Stats, sum_of, told
from ..job.optimizers import optimizer_from_json
from ..job.sync import sync_from_json
from ..kernels import apply_frame, encode_update, merge_frames
from ..models import model_from_json
from ..storage.checkpoint import Progress
from .algorithms import Setting, Share, implementation
from .outgoing_update import Divergence, OutgoingUpdate, Range
from .row_ownership import Ownership
from .table_layout import Snapshot, allocate_tables

Float32 = NDArray[np.float32]


class Replica:
    """One worker's copy of the model.

    Parameters
    ----------
    invocation : Invocation
    manifest : Manifest
        That of the training minibatches.

    Attributes
    ----------
    params : float32 (n_rows, width)
    ownership : Ownership
        Which rows only this worker updates until they are handed over.
    algorithm : WorkerAlgorithm
    divergence : Divergence
        How this replica may differ from its peers' replicas.
    averages, averages_whole : bool
        Whether the replica of a leaving worker is averaged into those that stay; and without publishing its residual.
    staleness : int
        Steps by which this replica may be ahead of the newest peer updates that it has applied.
    rate_factor : float
        Factor of the learning rate. The training loop sets it to the same value on all replicas.
    n_state_tables : int
        Number of tables in `state`.
    is_state_local : bool
        See `mlless_nb.job.algorithm.Algorithm`.
    can_resume : bool
        Whether another replica can go on from this one's state, see `mlless_nb.worker.resuming`.
    n_steps_before, n_updates_before : int
        Steps, and steps of the optimiser, of the earlier runs that this run continues.
    """

    can_resume: ClassVar[bool] = True

    def __init__(self, invocation: Invocation, manifest: Manifest) -> None:
        self.model = model_from_json(invocation.model)
        self._sync = sync = sync_from_json(invocation.sync)
        self.averages, self.staleness = bool(sync.averages) and sync.threshold_at(1) > 0, sync.staleness
        self.averages_whole = self.averages and sync.averages == "paper"
        self._optimizer = optimizer = optimizer_from_json(invocation.optimizer)
        self._slot, self._local_steps, self._is_merged = invocation.slot, invocation.local_steps, invocation.merges
        self._is_mean, self._manifest = invocation.aggregate == "mean", manifest
        self._loss_unit = manifest.deviation**2  # losses are reported in the ratings' original units
        shape = manifest.shape
        self.n_rows, self.width = self.model.table_shape(shape)
        n_users = shape[0] if manifest.n_shards > 1 else 0
        self.ownership = Ownership(self._slot, n_users, invocation.n_workers)
        # What is not published stays in the residual; a lossy codec leaves its rounding errors there.
        is_lossy = invocation.codec != "float32"
        self.divergence = Divergence(n_users > 0, is_lossy or sync.threshold_at(1) > 0, sync.staleness)
        filters = sync.filters or is_lossy
        keeps = filters or n_users > 0
        spec, algorithm = implementation(invocation.algorithm)
        names = spec.state_names(optimizer)
        is_dense = optimizer.moves_untouched(self.model.dense_l2)
        tables = allocate_tables(self.n_rows, self.width, 1 + len(names) + keeps, is_dense)
        self.params = tables[0]
        self.params[...] = self.model.first(shape, manifest.mean, invocation.seed)
        state, own = dict(zip(names, tables[1:], strict=False)), self.ownership
        setting = Setting(self.params, state, spec, self.model, optimizer, manifest, own, self._local_steps)
        self.algorithm = algorithm(setting)
        self.n_state_tables, self.is_state_local = len(names), spec.is_state_local
        residual = tables[-1] if keeps else None
        self._outgoing = OutgoingUpdate(self.params, residual, own, self._slot, invocation.codec, filters=filters)
        self.rate_factor = 1.0
        self.n_steps_before = self.n_updates_before = 0

    # -- from one run to the next

    def go_on_from(self, start: Progress) -> None:
        """Continue from where another run ended; to be called before the first step."""
        n_users = self.ownership.n_users
        if start.params.shape != self.params.shape or (
            n_users and (start.owners is None or len(start.owners) != n_users)
        ):
            raise ValueError(f"a start of shape {start.params.shape}: must be {self.params.shape}, with its owners")
        self.params[...] = start.params
        self.n_steps_before, self.n_updates_before = start.n_steps, start.n_updates
        self.rate_factor = start.rate_factor
        if n_users and start.owners is not None:
            self.ownership.know(start.owners)
        if start.state:
            n_own = len(self.state)
            first = self._slot * n_own if self.is_state_local else 0
            self.algorithm.resume(start.state[first : first + n_own])

    @property
    def state(self) -> list[Float32]:
        """The algorithm's tables, float32 (n_rows, width), in the order of its `state_names`."""
        return list(self.algorithm.state().values())

    def progress(self, step: int, state: Sequence[Float32]) -> Progress:
        """The progress of training after ``step``. ``state`` is the state of all workers, see `Reintegration.state`."""
        n_updates = self.n_updates_before + step * self._local_steps
        return Progress(self.params, step, tuple(state), self.n_steps_before + step, n_updates, self.rate_factor)

    # -- making an update

    @property
    def residuals(self) -> tuple[float, float]:
        """See `WorkerAlgorithm`."""
        return self.algorithm.residuals

    @property
    def merges(self) -> bool:
        """Whether a step merges the minibatches of all shards that this worker holds into one."""
        return self.algorithm.merges

    def learning_rate(self, step: int) -> float:
        """The learning rate of the last local step of ``step`` (1-based)."""
        return self._optimizer.rate(self.n_updates_before + step * self._local_steps) * self.rate_factor

    @property
    def n_made(self) -> int:
        """Number of values in the last update."""
        return self._outgoing.n_made

    @property
    def n_sent(self) -> int:
        """Number of values of the last update that are published."""
        return self._outgoing.n_sent

    def make(
        self, minibatches: Sequence[Minibatch], step: int, n_active: int, n_shards: int = 1, n_all: float | None = None
    ) -> float:
        """Make the update of ``step`` (1-based) from this worker's minibatches; returns the sum of their losses.

        The parameters stay unchanged until `apply`. Where replicas may differ, the update may be added to them here.

        Each minibatch is merged from those of ``n_shards`` shards, out of ``n_all`` (default ``n_active``) shards of
        all workers. The update is computed from their mean gradient and weighted by ``n_shards``. If the algorithm does
        not merge shards, there is one minibatch for each shard, and the update is the sum of theirs.
        """
        weight = n_shards / (n_all or n_active) if self._is_mean else float(n_shards)
        fusion = self._outgoing.begin(
            self._sync.threshold_at(self.n_steps_before + step),
            fuses=self.algorithm.fuses(n_shards),
            is_alone=n_active == 1,
            moves=not self._is_merged(n_active),
        )
        share = Share(step, self.n_updates_before, weight, n_shards, self.rate_factor, fusion)
        made = self.algorithm.contribute(minibatches, share)
        self._outgoing.take(made)
        return made.loss * self._loss_unit

    def finish(self, step: int, n_active: int) -> None:
        """Finish ``step``: all contributions that this worker waited for are applied."""
        self.algorithm.finish(step, n_active)

    # -- broadcast

    def encode(self, step: int, stats: Stats) -> bytes:
        """The frame of the update that all peers read."""
        return self._outgoing.encode(step, stats)

    def apply(self, active: Sequence[int], frames: Sequence[Frame], stats: Stats) -> Stats:
        """Add the updates of ``active`` in slot order: the own one (if its slot is in it) and the peers' ``frames``.

        Returns the sums of their stats.
        """
        own, table, rest = self._slot, self.algorithm.accumulator, iter(frames)
        loss_sum = loss_count = val_sum = val_count = 0.0
        for slot in active:
            if slot == own:
                self._outgoing.add_to(table)
                theirs = stats
            else:
                theirs = apply_frame(next(rest), table)
            losses, n_losses, val_losses, n_val_losses = theirs
            loss_sum += losses
            loss_count += n_losses
            val_sum += val_losses
            val_count += n_val_losses
        return loss_sum, loss_count, val_sum, val_count

    def apply_own(self) -> None:
        """Add the own update, unless it was added when it was made."""
        self._outgoing.add_to(self.algorithm.accumulator)

    def apply_late(self, frame: Frame) -> Stats:
        """Add a peer's late update; returns its stats."""
        return apply_frame(frame, self.algorithm.accumulator)

    def apply_all(self, frames: Sequence[Frame]) -> None:
        """Add ``frames`` to the parameters, without an update of this replica."""
        for frame in frames:
            apply_frame(frame, self.params)

    # -- scatter-reduce: each worker merges one range of rows (a table of its own) and publishes the merged range.
    # With a leader (AllReduce) there is one range.

    def ranges(self, n_active: int) -> list[Range]:
        """The rows [first, end) that each rank merges."""
        return self.ownership.ranges(self.n_rows, n_active)

    def _own_range(self, active: list[int]) -> Range:
        return self.ranges(len(active))[active.index(self._slot)]

    def encode_parts(self, step: int, stats: Stats, active: list[int]) -> dict[int, bytes]:
        """One frame of the update for each range, by the slot that merges the range; this slot's is included."""
        frames = self._outgoing.encode_ranges(step, stats, self.ranges(len(active)))
        return dict(zip(active, frames, strict=True))

    def merge(self, active: list[int], own: bytes, frames: Sequence[Frame], step: int) -> tuple[bytes, Stats]:
        """The merged range of this slot as a frame, and the sums of all stats."""
        parts, (first, end) = with_own(active, self._slot, own, frames), self._own_range(active)
        return merge_frames(parts, 0, end - first, step, self._slot, NO_STATS), sum_of([told(part) for part in parts])

    def merge_all(self, active: list[int], own: bytes, frames: Sequence[Frame], step: int) -> tuple[bytes, Stats]:
        """The sum of all updates as a frame whose stats are the sums of all stats, and these."""
        parts, (first, end) = with_own(active, self._slot, own, frames), self.ranges(1)[0]
        sums = sum_of([told(part) for part in parts])
        return merge_frames(parts, 0, end - first, step, self._slot, sums), sums

    def apply_merged(self, active: list[int], own: bytes, frames: Sequence[Frame]) -> None:
        """Add the unsent part of the own update, then the merged ranges in slot order."""
        table = self.algorithm.accumulator
        self._outgoing.add_unsent_to(table)
        self._put(active, own, frames, table, adds=True)

    def _put(self, active: list[int], own: bytes, frames: Sequence[Frame], table: Float32, *, adds: bool) -> None:
        """Add each slot's range to ``table``, or overwrite the range in it."""
        parts = with_own(active, self._slot, own, frames)
        for part, (first, end) in zip(parts, self.ranges(len(active)), strict=True):
            apply_frame(part, table[first:end], add=adds)

    # -- handing over

    def reassign(self, owners: Sequence[int | None]) -> None:
        """From now on the shards of users belong to ``owners``."""
        self.ownership.reassign(owners)
        self.algorithm.lose_rows()

    def hold(self, n_shards: int) -> None:
        """From now on each step takes the minibatches of ``n_shards`` shards."""
        self.algorithm.hold(n_shards)

    def snapshot(self, into: Snapshot | None = None) -> Snapshot:
        """A copy of the parameters and the residual, in the memory of ``into`` if that is given."""
        return Snapshot.of(self.params, self.residual, into)

    @property
    def residual(self) -> Float32 | None:
        """What was not published yet, float32 (n_rows, width); None if nothing is ever kept back."""
        return self._outgoing.residual

    def restore(self, snapshot: Snapshot) -> None:
        """Set parameters and residual to those of a snapshot; the algorithm's state stays."""
        snapshot.copy_to(self.params, self.residual)

    def flush(self, step: int) -> bytes:
        """A frame of the whole residual, which is zero afterwards."""
        return self._outgoing.flush(step, [(0, self.n_rows)])[0]

    def flush_parts(self, step: int, active: list[int]) -> dict[int, bytes]:
        """`flush` in one frame for each range, by the slot that owns the range. The own range is applied already."""
        return dict(zip(active, self._outgoing.flush(step, self.ranges(len(active))), strict=True))

    def take_in(self, active: list[int], frames: Sequence[Frame], step: int) -> bytes:
        """Add the peers' residuals of this slot's range to the parameters; returns a frame of these parameters."""
        first, end = self._own_range(active)
        for frame in frames:
            apply_frame(frame, self.params[first:end])
        values = np.ascontiguousarray(self.params[first:end])
        return encode_update(None, values, step, self._slot, end - first, NO_STATS)

    def take_over(self, active: list[int], own: bytes, frames: Sequence[Frame]) -> None:
        """Overwrite each range of the parameters with those that its slot published."""
        self._put(active, own, frames, self.params, adds=False)

    def average(self) -> None:
        """Average the replica of a leaving worker into this one: ``params <- (params + its params) / 2``.

        The leaving worker's residual has been published and applied, so its parameters are the common ones, and this
        replica equals them plus its own residual. The average is therefore reached by subtracting half of the residual
        from the parameters; the other half stays in the residual. Rows that have an owner are left as they are.
        """
        if self.averages:
            for rows in self.ownership.everybodys():
                self.params[rows] -= self._outgoing.halve(rows)

    # -- evaluation

    def encode_stats(self, step: int, stats: Stats) -> bytes:
        """A frame without values, to send ``stats`` in its header."""
        rows, update = np.empty(0, np.int32), np.empty((0, self.width), np.float32)
        return encode_update(rows, update, step, self._slot, self.n_rows, stats)

    def sum_stats(self, active: list[int], frames: Sequence[Frame], stats: Stats) -> Stats:
        """The sums of the own ``stats`` and those in the headers of the peers' frames, added in slot order."""
        rest = iter(frames)
        return sum_of([stats if slot == self._slot else told(next(rest)) for slot in active])

    def evaluate(self, minibatch: Minibatch) -> float:
        """Sum of the losses of the held-out rows in ``minibatch``."""
        return self.model.evaluate(self.params, minibatch, self._manifest.mean) * self._loss_unit

    def compare(self, minibatch: Minibatch) -> tuple[float, float]:
        """Loss sum and count on rows of ``minibatch``, by the parameters that all replicas have, but may differ in."""
        if not self.divergence.owned_rows:
            return self.evaluate(minibatch), float(minibatch.n)
        total, count = self.model.evaluate_common(self.params, minibatch, self._manifest.mean)
        return total * self._loss_unit, count

    @property
    def has_emerged(self) -> bool:
        """See `models.base.Model`."""
        return self.model.has_emerged(self.params, self._manifest.shape)

    def interaction(self, minibatch: Minibatch) -> float:
        """Share of the predictions for held-out rows that is due to products of parameters, see `models.base.Model`."""
        return self.model.interaction(self.params, minibatch) * self._loss_unit

    @property
    def is_finite(self) -> bool:
        """Whether every parameter is finite."""
        return bool(np.isfinite(self.params).all())
