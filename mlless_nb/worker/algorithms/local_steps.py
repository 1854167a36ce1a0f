"""Local steps: several steps of the optimiser on one replica, whose total is published as one update."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...data.minibatches import Minibatch
from ...job.optimizers import SGD
from ...kernels import apply_rows, extract_delta, snapshot_rows
from .base import Contribution, Float32, Setting, Share


class LocalWalk:
    """Runs several steps on the own replica, computes the total change, and restores the parameters.

    Parameters
    ----------
    setting : Setting
    optimize : callable
        One step of the optimiser, see `AveragedGradients`.
    """

    def __init__(self, setting: Setting, optimize: Callable[..., Contribution]) -> None:
        self._setting, self._optimize = setting, optimize
        self._per_sample = isinstance(setting.optimizer, SGD) and setting.optimizer.per_sample
        self._is_dense = setting.optimizer.moves_untouched(setting.model.dense_l2)
        n_rows, width = setting.params.shape
        self._base = np.empty((n_rows, width), np.float32)
        self._marks = np.zeros(n_rows, np.uint32)
        self._out = np.empty((0, width), np.float32)

    def contribute(self, minibatches: Sequence[Minibatch], share: Share, divisor: float) -> Contribution:
        """The total of one step for each of ``minibatches``, each starting from the parameters of the one before."""
        params, loss = self._setting.params, 0.0
        first = share.n_updates_before + (share.step - 1) * self._setting.local_steps + 1
        for local_step, minibatch in enumerate(minibatches, first):
            if self._per_sample:
                snapshot_rows(params, self._setting.rows(minibatch), self._base, self._marks, share.step)
                loss += self._pass(minibatch, self._setting.optimizer.rate(local_step) * share.rate_factor)
            else:
                one = self._optimize(minibatch, self._setting.state, local_step, share.rate_factor, divisor)
                loss += one.loss
                snapshot_rows(params, one.rows, self._base, self._marks, share.step)
                apply_rows(params, one.rows, one.values)
        rows = None if self._is_dense else np.flatnonzero(self._marks == share.step).astype(np.int32)
        values = self._room(len(params) if rows is None else len(rows))
        extract_delta(params, rows, self._base, share.weight, values)
        return Contribution(rows, values, loss)

    def _pass(self, minibatch: Any, rate: float) -> float:
        """SGD over the minibatch's ratings, one step for each rating; returns the sum of their losses."""
        model: Any = self._setting.model  # it has such a pass: the job's checks require it
        return float(model.sgd_pass(self._setting.params, minibatch, self._setting.manifest.mean, rate))

    def _room(self, n: int) -> Float32:
        if n > len(self._out):
            n_rows, width = self._setting.params.shape
            self._out = np.empty((min(n + n // 8, n_rows), width), np.float32)
        return self._out[:n]
