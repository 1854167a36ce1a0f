"""What the models of time and cost need to know of a job."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """What the model needs to know of a job.

    Attributes
    ----------
    epochs : float
        Passes over the training rows.
    n_minibatches, local_steps : int
        Minibatches of an epoch, and how many of them a worker takes in a step.
    minibatch_s : float
        Seconds of one core for one minibatch: gradient, update, encoding, and adding the own update.
    apply_s : float
        Seconds of one core to read and add one peer's update.
    update_bytes, table_bytes, data_bytes : float
        Size of a published update, of the table that is exchanged, of the packed training rows.
    params_bytes : float, optional
        Size of all parameters, where users are sharded and theirs are not exchanged; None: `table_bytes`.
    alone_minibatch_s : float, optional
        `minibatch_s` of a worker without peers, which encodes nothing; None: not measured.
    crowded_minibatch_s, crowded_apply_s : float, optional
        `minibatch_s` and `apply_s` where several replicas share the caches of all cores; None: not measured.
    planned_bytes : float, optional
        The estimate of `update_bytes` by which a run chooses how updates are exchanged; None: `update_bytes` itself.
    growth : float
        Power of the number of updates with which their sum grows, see `mlless_nb.job.partitioning.growth`.
    loaded_s : float, optional
        Seconds until an interpreter of functions of this machine has all imports; None: not measured.
    loop_s : float, optional
        Processor seconds of a worker's loop here, see `mlless_nb.adviser.pace`; None: not measured.
    is_lazy : bool
        Whether a run's optimiser skips the rows that a minibatch does not touch, where the job leaves that open.
    """

    epochs: float
    n_minibatches: int
    local_steps: int
    minibatch_s: float
    apply_s: float
    update_bytes: float
    table_bytes: float
    data_bytes: float
    params_bytes: float | None = None
    alone_minibatch_s: float | None = None
    crowded_minibatch_s: float | None = None
    crowded_apply_s: float | None = None
    planned_bytes: float | None = None
    growth: float = 1.0
    loaded_s: float | None = None
    loop_s: float | None = None
    is_lazy: bool = False

    def n_rounds(self, n_workers: int) -> int:
        """Steps of a run of ``n_workers`` with the job's number of epochs."""
        return max(math.ceil(self.epochs * self.n_minibatches / (n_workers * self.local_steps)), 1)

    @property
    def stored_bytes(self) -> float:
        """Size of the parameters that a worker has, and that its part of a checkpoint is a multiple of."""
        return self.params_bytes or self.table_bytes

    @property
    def single_minibatch_s(self) -> float:
        """Seconds of one core for one minibatch where nothing is exchanged."""
        return self.alone_minibatch_s or self.minibatch_s

    @property
    def crowded_making_s(self) -> float:
        """Seconds of one core in which a worker that shares it makes the update of a step."""
        return self.local_steps * (self.crowded_minibatch_s or self.minibatch_s)

    def making_s(self, n_workers: int) -> float:
        """Seconds in which one of ``n_workers``, each with a core of its own, makes the update of a step."""
        return self.local_steps * (self.single_minibatch_s if n_workers == 1 else self.minibatch_s)
