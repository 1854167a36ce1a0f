"""Gradient averaging: a minibatch's gradient becomes the optimiser's update, which every worker adds.

Local steps are the same with a walk of several steps in between; `local_steps.LocalWalk` takes it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...data.minibatches import Minibatch
from ...job.algorithm import GradientAveraging
from ...job.optimizers import SGD
from ...kernels import apply_rows
from .base import Contribution, Float32, Fusion, Int32, Setting, Share, WorkerAlgorithm, implements
from .local_steps import LocalWalk
from .row_unions import RowUnions


@implements(GradientAveraging)
class AveragedGradients(WorkerAlgorithm):
    """The optimiser's update of one minibatch, or how far several local steps lead.

    Minibatches of several shards are merged into one, but not under an adaptive optimiser: what it makes of one large
    minibatch is another, longer step than the mean of what it makes of several. There each shard has a state of its
    own, and the update is the sum of theirs.
    """

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        model, shape = setting.model, setting.manifest.shape
        self._l2, self._l2_rows = model.dense_l2, model.dense_l2_rows(shape)
        self._is_dense = setting.optimizer.moves_untouched(self._l2)
        is_plain = isinstance(setting.optimizer, SGD)
        walks = setting.local_steps > 1 or (isinstance(setting.optimizer, SGD) and setting.optimizer.per_sample)
        self._walk = LocalWalk(setting, self._optimize) if walks else None
        owns = setting.ownership.n_users > 0
        self.merges = is_plain or walks or owns
        # Where replicas differ anyway, each may add its own update at once: in the pass that makes it.
        self._fuses = not (walks or (owns and self._is_dense))
        self._states = [setting.state]  # of each shard that is held, where they are not merged
        self._n_held = 1
        self._unions = RowUnions(setting.rows)
        self._grad = self._out = np.empty((0, setting.params.shape[1]), np.float32)

    def fuses(self, n_shards: int) -> bool:
        """See `WorkerAlgorithm`."""
        return self._fuses and (self.merges or n_shards == 1)

    def contribute(self, minibatches: Sequence[Minibatch], share: Share) -> Contribution:
        """See `WorkerAlgorithm`."""
        divisor = float(self.setting.manifest.size * (share.n_shards if self.merges else 1))
        if self._walk is not None:
            return self._walk.contribute(minibatches, share, divisor)
        step = share.n_updates_before + share.step
        if share.n_shards > 1 and not self.merges:
            return self._optimize_apart(minibatches, step, share, divisor)
        scale = share.weight * share.rate_factor
        return self._optimize(minibatches[0], self.setting.state, step, scale, divisor, share.fusion)

    def _optimize(
        self,
        minibatch: Minibatch,
        state: dict[str, Float32],
        step: int,
        scale: float,
        divisor: float,
        fusion: Fusion | None = None,
    ) -> Contribution:
        """Gradient and optimiser of one minibatch."""
        setting = self.setting
        params, optimizer = setting.params, setting.optimizer
        touched = rows = setting.rows(minibatch)
        n_touched = len(rows)
        if n_touched > len(self._grad):
            self._grad = np.empty((n_touched + n_touched // 8, params.shape[1]), np.float32)
        grad = self._grad[:n_touched]
        values = out = self._room() if self._is_dense else grad
        loss = setting.model.gradient(params, minibatch, setting.manifest.mean, divisor, grad)
        args, published, n_owned = (state, step, scale, self._l2, self._l2_rows), None, 0
        if fusion is not None:
            published = fusion.published
            if n_owned := fusion.count_owned(rows):
                first = slice(n_owned)
                optimizer.update(params, rows[first], grad[first], *args, out[first], fusion.owned)
                rows, grad, out = rows[n_owned:], grad[n_owned:], out[n_owned:]
        optimizer.update(params, rows, grad, *args, out, published)
        return Contribution(None if self._is_dense else touched, values, loss, n_owned)

    def _room(self) -> Float32:
        if not len(self._out):
            self._out = np.empty(self.setting.params.shape, np.float32)
        return self._out

    def _optimize_apart(
        self, minibatches: Sequence[Minibatch], step: int, share: Share, divisor: float
    ) -> Contribution:
        """Gradient and optimiser of each shard's minibatch, with the shard's own state; the sum of their updates."""
        n_rows, width = self.setting.params.shape
        rows: Int32 | None = None
        places: Sequence[Int32 | None] = [None] * len(minibatches)
        if not self._is_dense:
            rows, places = self._unions.of(minibatches)
        total = np.zeros((n_rows if rows is None else len(rows), width), np.float32)
        loss, scale = 0.0, share.weight / share.n_shards * share.rate_factor
        for minibatch, state, place in zip(minibatches, self._states, places, strict=True):
            one = self._optimize(minibatch, state, step, scale, divisor)
            loss += one.loss
            apply_rows(total, place, one.values)
        return Contribution(rows, total, loss)

    # -- the optimiser's state, from one holder to the next

    def state(self) -> dict[str, Float32]:
        """The optimiser's tables; the mean of those of several shards."""
        if len(self._states) == 1:
            return self.setting.state
        return {name: np.mean([state[name] for state in self._states], axis=0) for name in self.setting.state}

    def resume(self, state: Sequence[Float32]) -> None:
        """See `WorkerAlgorithm`."""
        super().resume(state)
        ownership = self.setting.ownership
        if ownership.n_users:
            for table in self.setting.state.values():
                # One shard of many, its owner's minibatches have so many times as much of a user; the mean has not.
                table[ownership.own_rows()] *= np.float32(self.setting.manifest.n_shards)
                table[ownership.others()] = 0.0

    def hold(self, n_shards: int) -> None:
        """From now on minibatches have those of ``n_shards`` shards.

        A user's ratings are of one of them, so that its gradient becomes a smaller part of the mean: the velocity that
        it has been given follows. Common rows keep theirs, which stands for that of the leavers' too. Where shards are
        not merged, those that are taken over begin with a copy of this replica's own state.
        """
        self._unions.clear()
        while not self.merges and len(self._states) < n_shards:
            self._states.append({name: table.copy() for name, table in self.setting.state.items()})
        ratio, self._n_held = np.float32(self._n_held / n_shards), n_shards
        ownership = self.setting.ownership
        if ownership.n_users and ratio != 1.0:
            own = ownership.own_rows()
            for table in self.setting.state.values():
                table[own] *= ratio

    def lose_rows(self) -> None:
        """What momentum is left of users that are another worker's own now is lost.

        It would go on moving this replica's copy of them, and come to light when all is handed over, long out of date.
        """
        if self._is_dense:
            others = self.setting.ownership.others()
            for table in self.setting.state.values():
                table[others] = 0.0
