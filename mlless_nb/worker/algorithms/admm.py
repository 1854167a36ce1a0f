"""ADMM: each worker minimises its own loss near the common parameters; the exchange averages what they found."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...data.minibatches import Minibatch
from ...job.admm import ADMM
from ...kernels import apply_rows
from .base import Contribution, Setting, Share, WorkerAlgorithm, implements


@implements(ADMM)
class ConsensusADMM(WorkerAlgorithm):
    """One worker's part of consensus ADMM in scaled form, see `mlless_nb.ADMM`.

    The replica's parameters are z. The contribution is ``(w_i + u_i - z) / P``, so the sum of z and all contributions
    is ``mean(w_i + u_i)``. A worker that holds the shards of others counts as often as it holds shards.
    """

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        spec, model = setting.spec, setting.model
        assert isinstance(spec, ADMM)
        self._rho, self._scans = spec.rho, spec.scans
        shape = setting.params.shape
        self._l2, self._l1 = model.dense_l2, spec.l1
        self._n_penalised = model.dense_l2_rows(setting.manifest.shape)
        self._rows = np.arange(shape[0], dtype=np.int32)
        self._z, self._w, self._grad, self._out = (np.empty(shape, np.float32) for _ in range(4))
        self._touched = np.empty((0, shape[1]), np.float32)
        self._n_held, self._n_shards = 1, 1.0

    def contribute(self, minibatches: Sequence[Minibatch], share: Share) -> Contribution:
        """See `WorkerAlgorithm`; ``minibatches`` are those of all shards that this worker holds."""
        setting, dual = self.setting, self.setting.state["dual"]
        params, z, w = setting.params, self._z, self._w
        z[...] = params
        anchor = z - dual
        # The mean over a worker's minibatches becomes the gradient of its share of the mean loss, times the shards of
        # all per shard that it holds, whatever the sizes of shards and minibatches.
        divisor = setting.manifest.n * share.weight / len(minibatches)
        self._n_held, self._n_shards = share.n_shards, share.n_shards / share.weight
        loss = 0.0
        step = (share.n_updates_before + (share.step - 1) * setting.local_steps) * self._scans
        for _ in range(self._scans):
            for minibatch in minibatches:
                step += 1
                loss += self._local_step(minibatch, step, share.rate_factor, divisor, anchor)
        w[...] = params
        params[...] = z
        values = (w + dual - z) * np.float32(share.weight)
        return Contribution(None, values, loss / self._scans)

    def _local_step(
        self, minibatch: Minibatch, step: int, rate_factor: float, divisor: float, anchor: np.ndarray
    ) -> float:
        """One step of the optimiser on a minibatch's loss plus ``rho/2 |w - anchor|^2``; returns the loss sum."""
        setting, grad = self.setting, self._grad
        params, rows = setting.params, setting.rows(minibatch)
        if len(rows) > len(self._touched):
            self._touched = np.empty((len(rows), params.shape[1]), np.float32)
        touched = self._touched[: len(rows)]
        loss = setting.model.gradient(params, minibatch, setting.manifest.mean, divisor, touched)
        np.subtract(params, anchor, out=grad)
        grad *= np.float32(self._rho)
        grad[rows] += touched  # rows are unique
        setting.optimizer.update(params, self._rows, grad, setting.state, step, rate_factor, 0.0, 0, self._out)
        apply_rows(params, None, self._out)
        return loss

    def finish(self, step: int, n_active: int) -> None:
        """Shrink the mean to the new z, and move the dual variables by ``w_i - z``."""
        params, gap = self.setting.params, self._w
        penalised = params[: self._n_penalised]
        if self._l1:
            size = np.maximum(np.abs(penalised) - np.float32(self._l1 / self._rho), np.float32(0))
            penalised[...] = np.copysign(size, penalised)
        if self._l2:
            penalised *= np.float32(self._rho / (self._l2 + self._rho))
        np.subtract(self._w, params, out=gap)
        self.setting.state["dual"] += gap
        np.subtract(params, self._z, out=self._z)
        primal, moved = (float(np.square(table, dtype=np.float64).sum()) for table in (gap, self._z))
        self.residuals = self._n_held * primal, self._rho * math.sqrt(self._n_shards * moved)

    def hold(self, n_shards: int) -> None:
        """The shards of workers change, so the dual variables, which belong to them, start again at 0."""
        self.setting.state["dual"][...] = 0.0
