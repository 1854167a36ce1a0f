"""Gradient averaging: the optimiser turns a minibatch's gradient into an update, which every worker adds.

With local steps, the update is the sum of several steps of the optimiser; `local_steps.LocalWalk` computes it.
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
    """The optimiser's update of one minibatch, or the total of several local steps.

    Minibatches of several shards are merged into one, except with an adaptive optimiser: its step for one large
    minibatch is longer than the mean of its steps for several small ones. Then each shard has its own state, and the
    update is the sum over the shards.
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
        # Where replicas may differ, each may add its own update at once, in the pass that computes it.
        self._fuses = not (walks or (owns and self._is_dense))
        self._states = [setting.state]  # one for each held shard if they are not merged
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

    # -- the optimiser's state when a run is continued or shards change their owner

    def state(self) -> dict[str, Float32]:
        """The optimiser's tables; with one state for each shard, their mean."""
        if len(self._states) == 1:
            return self.setting.state
        return {name: np.mean([state[name] for state in self._states], axis=0) for name in self.setting.state}

    def tables(self) -> dict[str, Float32]:
        """See `WorkerAlgorithm`: the state of each held shard."""
        return {f"{name}.{k}": table for k, state in enumerate(self._states) for name, table in state.items()}

    def resume(self, state: Sequence[Float32]) -> None:
        """See `WorkerAlgorithm`."""
        super().resume(state)
        ownership = self.setting.ownership
        if ownership.n_users:
            for table in self.setting.state.values():
                # A user is in its owner's minibatches only, so there its gradient is n_shards times that in the mean.
                table[ownership.own_rows()] *= np.float32(self.setting.manifest.n_shards)
                table[ownership.others()] = 0.0

    def hold(self, n_shards: int) -> None:
        """From now on each step takes the minibatches of ``n_shards`` shards.

        All ratings of a user are in one shard, so the user's gradient has a smaller weight in the mean over more
        shards: the velocity of own users is scaled likewise. Common rows keep their velocity, which also stands for
        that of the workers that left. If shards are not merged, each shard that is taken over starts with a copy of
        this replica's state.
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
        """Set the momentum of users that now belong to other workers to zero.

        Otherwise it would keep moving this replica's copy of these rows, and the stale sum would be handed over later.
        """
        if self._is_dense:
            others = self.setting.ownership.others()
            for table in self.setting.state.values():
                table[others] = 0.0
