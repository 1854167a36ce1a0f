"""Specification of model averaging. Its arithmetic is in ``worker/algorithms/model_averaging.py``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ..errors import JobError
from ..validation import is_integer, specification
from .algorithm import Algorithm, refuse_given_steps, register_algorithm

#: An epoch of local steps: as many minibatches as each worker has in its shard.
EPOCH = "epoch"


@register_algorithm
@specification
@dataclass(frozen=True)
class ModelAveraging(Algorithm):
    """Every worker trains by itself on its shard, then the models are averaged: ``x <- mean of the workers' x_i``.

    A step is one averaging. Each worker starts it from the same model and takes ``every`` steps of the optimiser, whose
    state stays with the worker. All workers take equally many minibatches, so the mean is unweighted; a worker that has
    taken over the shard of one that left counts for both. Under `ISP` a worker publishes the significant part of what
    it contributes to the mean.

    Parameters
    ----------
    every : "epoch" or int
        Local steps, one minibatch each, between two averagings; "epoch": one pass over the worker's shard.

    References
    ----------
    LambdaML, section 3.2.1 (MA-SGD). There, model averaging is unstable on neural networks.
    """

    every: str | int = EPOCH
    kind: ClassVar[str] = "model-averaging"
    is_state_local: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.every != EPOCH and (not is_integer(self.every) or self.every < 1):  # type: ignore[operator]
            raise JobError("ModelAveraging.every", self.every, "'epoch' or an integer >= 1")

    def state_names(self, optimizer: Any) -> tuple[str, ...]:
        """The names of the optimiser's state."""
        names: tuple[str, ...] = optimizer.state_names
        return names

    def given_steps(self, job: Any) -> int:
        """``every``, where it is a number; see `Algorithm`."""
        refuse_given_steps(job, "ModelAveraging")
        return 1 if self.every == EPOCH else int(self.every)

    def local_steps(self, job: Any) -> int:
        """Minibatches between two averagings."""
        return max(job.n_minibatches // job.workers, 1) if self.every == EPOCH else int(self.every)

    def check(self, job: Any) -> None:
        """See `Algorithm`."""
        if job.sync.kind not in ("bsp", "isp") or job.sync.staleness:
            valid = "BSP() or ISP(threshold) with ModelAveraging, which averages models of the same step"
            raise JobError("sync", job.sync, valid)
        if job.aggregate != "mean":
            raise JobError("aggregate", job.aggregate, "'mean' with ModelAveraging")

    def __str__(self) -> str:
        if self.every == EPOCH:
            return "model averaging"
        return "model averaging every " + ("minibatch" if self.every == 1 else f"{self.every} minibatches")
