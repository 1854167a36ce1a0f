"""Expectation maximisation: workers publish the statistics of their shards, and compute the model from the sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...data.minibatches import Minibatch
from ...job.em import EM
from .base import Contribution, Float32, Setting, Share, WorkerAlgorithm, implements


@implements(EM)
class SummedStatistics(WorkerAlgorithm):
    """The statistics of this worker's rows under the current parameters: the expectation step.

    The rows of a shard are summed in float64 and rounded once; the workers' sums are added in float32, in slot order.
    `finish` is the maximisation step. Between two steps the sums are 0, so the parameters are the whole state.
    """

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        shape = setting.params.shape
        self._sums = np.zeros(shape, np.float32)
        self._own = np.zeros(shape)
        self._is_touched = np.zeros(shape[0], bool)
        self._model: Any = setting.model  # it has statistics: the job's checks require it

    def contribute(self, minibatches: Sequence[Minibatch], share: Share) -> Contribution:
        """The sums over all ``minibatches``, in the rows of the table that these touch."""
        setting, own, is_touched = self.setting, self._own, self._is_touched
        own[...] = 0.0
        is_touched[...] = False
        loss = 0.0
        for minibatch in minibatches:
            loss += self._model.gather(setting.params, minibatch, own)
            is_touched[setting.rows(minibatch)] = True
        if is_touched.all():
            return Contribution(None, own.astype(np.float32), loss)
        rows = np.flatnonzero(is_touched).astype(np.int32)
        return Contribution(rows, own[rows].astype(np.float32), loss)

    @property
    def accumulator(self) -> Float32:
        """The sums of all workers."""
        return self._sums

    def finish(self, step: int, n_active: int) -> None:
        """Compute the parameters from the sums."""
        self._model.maximise(self.setting.params, self._sums)
        self._sums[...] = 0.0
