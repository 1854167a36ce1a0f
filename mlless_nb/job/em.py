"""Expectation maximisation, the algorithm of models without gradients, such as `KMeans`. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ..errors import JobError
from ..validation import specification
from .algorithm import Algorithm, refuse_given_steps, register_algorithm
from .optimizers import SGD
from .sync import BSP

#: Most passes of a run without stop rule or budget, and the evaluations in a row without a better loss that end it.
MOST_PASSES, PATIENCE = 300, 3


@register_algorithm
@specification
@dataclass(frozen=True)
class EM(Algorithm):
    """Each step is one pass: every worker publishes the statistics of its shard, and computes the model from all sums.

    For `KMeans` the statistics are the sum and the number of the rows of each cluster. There is neither a learning rate
    nor an optimiser. Sums must be complete, so the protocol is BSP and published values are not rounded. If the number
    of minibatches is not a multiple of the number of workers, a step leaves out fewer minibatches than there are
    workers, in turn; the default minibatch has no such rest. A worker has its whole shard in memory. ``schedule`` of
    the job has no effect.

    Without stop rule or budget a run ends after 3 evaluations in a row without a better validation loss, at the latest
    after 300 passes.

    References
    ----------
    LambdaML, section 3.1 (distributed EM for k-means).
    """

    kind: ClassVar[str] = "em"
    form: ClassVar[str] = "EM() for KMeans"
    n_work_tables: ClassVar[int] = 3  # the sums of all workers, and the own ones, in float64

    def given_steps(self, job: Any) -> int:
        """See `Algorithm`."""
        refuse_given_steps(job, "EM")
        return 1

    def local_steps(self, job: Any) -> int:
        """The minibatches of a worker's shard."""
        n: int = job.n_minibatches // job.workers
        return max(n, 1)

    def decided(self, job: Any, left_open: Collection[str]) -> dict[str, Any]:
        """Minibatches that every worker gets equally many of, an evaluation after every step, no learning rate."""
        chosen: dict[str, Any] = {"schedule": "constant"}
        if "optimizer" in left_open:
            chosen["optimizer"] = SGD(1.0)
        if "minibatch" in left_open:
            chosen["minibatch"] = _even_rows(job.n_train, job.workers, job.minibatch)
        if job.eval_every is None:
            chosen["eval_every"] = 1
        return chosen

    def default_stop(self, job: Any) -> Any:
        """Passes and patience."""
        return replace(job.stop, epochs=float(MOST_PASSES), patience=PATIENCE)

    def check(self, job: Any) -> None:
        """See `Algorithm`."""
        if job.model.algorithm != self.kind:
            raise JobError("algorithm", self, f"left out with {job.model}, or another one: EM is for KMeans")
        if type(job.sync) is not BSP:
            raise JobError("sync", job.sync, "BSP() with EM, whose sums must be complete")
        if job.codec != "float32":
            raise JobError("codec", job.codec, "'float32' with EM, whose sums must not be rounded")
        if job.aggregate != "mean":
            raise JobError("aggregate", job.aggregate, "left out with EM, which adds statistics and divides by counts")
        optimizer = job.optimizer or SGD(1.0)
        if not isinstance(optimizer, SGD) or (optimizer.learning_rate, optimizer.momentum) != (1.0, 0.0):
            raise JobError("optimizer", optimizer, "left out with EM, which has none")
        if job.scale_in.global_minibatch != "keep":
            raise JobError(
                "ScaleIn.global_minibatch", job.scale_in.global_minibatch, "'keep' with EM, whose steps take all rows"
            )
        if job.is_counted and job.n_train < job.model.k:
            raise JobError("KMeans.k", job.model.k, f"at most {job.n_train}, the number of training rows")

    def __str__(self) -> str:
        return "EM"


def _even_rows(n_train: int, n_workers: int, rows: int) -> int:
    """About ``rows`` rows to a minibatch, such that the number of minibatches is a multiple of the workers'."""
    for each in range(max(-(-n_train // (n_workers * rows)), 1), 0, -1):
        even = -(-n_train // (n_workers * each))
        if -(-n_train // even) == n_workers * each:
            return even
    return rows
