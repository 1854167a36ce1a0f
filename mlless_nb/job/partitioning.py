"""How data is sharded across workers, rows at random or users with all of their ratings, and what they then exchange.

A user's parameters need no exchange while one worker has all of its ratings. It is the same descent as with rows: an
owner takes P times the ratings of its users, and a mean over P workers a P-th of what it makes of them. That is so
where steps are linear in the gradient: adaptive optimisers' are not, and steps of a worker's own would be P times as
long.
"""

from __future__ import annotations

import math

from ..data.prepare import Manifest
from ..data.ratings import Ratings
from .job import TrainingJob
from .optimizers import SGD

#: Users are sharded where an epoch then takes at most so many times the steps that it takes with rows,
MOST_STEPS = 1.2
#: and no worker's share of the ratings is further from an even one.
MOST_UNEVEN = 0.1
#: Values of an update that ISP publishes, a guess for what they weigh.
SIGNIFICANT = 0.1


def is_by_user(job: TrainingJob) -> bool:
    """Whether users are sharded across workers: as the job says; under "auto" where the descent is the same.

    Parameters
    ----------
    job : TrainingJob
        Under "auto" its data must be ratings and its optimiser `SGD` with one minibatch a step; its workers must be at
        the same step, have about as much to do, and have the memory.
    """
    data, workers = job.data, job.workers
    if workers == 1 or job.partition != "auto":
        return workers > 1 and job.partition == "user"
    if (
        not isinstance(data, Ratings)
        or not isinstance(job.optimizer, SGD)
        or job.takes_local_steps
        or job.sync.staleness
    ):
        return False
    if workers > data.n_raters or job.needed_mb(is_by_user=True) > job.memory_mb:
        return False
    shares = data.shard_sizes(workers) / data.n
    if abs(shares * workers - 1.0).max() > MOST_UNEVEN:
        return False
    n_steps = math.ceil(float(shares.max()) * job.n_train / job.minibatch)
    return n_steps <= MOST_STEPS * math.ceil(job.n_minibatches / workers)


def exchanged_bytes(job: TrainingJob, manifest: Manifest) -> tuple[int, int]:
    """About what a worker's update takes on its way, and what all parameters that are exchanged would take."""
    n_rows, width = job.model.table_shape(manifest.shape)
    if manifest.n_shards > 1:
        n_rows -= manifest.shape[0]  # users stay with their owners
    is_dense = job.optimizer.moves_untouched(job.model.dense_l2)
    n_touched = n_rows if is_dense else min(job.model.n_touched(manifest.n_touched) * job.local_steps, n_rows)
    # By the threshold and not by the class: ISP(0) publishes what BSP does, and has to go round the same way, since
    # scatter-reduce adds in another order.
    share = SIGNIFICANT if job.sync.threshold_at(1) > 0 else 1.0
    return int(4 * n_touched * width * share), 4 * n_rows * width
