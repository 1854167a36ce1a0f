"""How data is sharded across workers, rows at random or users with all of their ratings, and what they then exchange.

A user's parameters need no exchange while one worker has all of the user's ratings. The descent is the same as with
rows sharded: the owner takes P times as many ratings of its users in a step, and averaging over P workers would divide
their update by P. This holds where steps are linear in the gradient. It does not hold for adaptive optimisers, and
local steps would be P times as long.
"""

from __future__ import annotations

import math

from ..data.prepare import Manifest
from ..data.ratings import Ratings
from ..exchange.stores import REDIS
from .execution import WORKERS
from .job import TrainingJob
from .optimizers import SGD

#: Users are sharded if an epoch then takes at most so many times the steps that it takes with rows sharded,
MOST_STEPS = 1.2
#: and no worker's share of the ratings deviates from an equal share by more than this, relatively.
MOST_UNEVEN = 0.1
#: Bytes on Redis beside frames: of the run, and of one worker's reports in the 10,000 newest steps.
STATE_BYTES, REPORTS_BYTES = 1 << 20, 10_000 * 320
#: Share of an update that ISP publishes: a guess, to estimate bytes.
SIGNIFICANT = 0.1


def is_by_user(job: TrainingJob) -> bool:
    """Whether users are sharded across workers: as the job says; under "auto" if the descent is the same.

    Parameters
    ----------
    job : TrainingJob
        Under "auto" its data must be ratings, its optimiser `SGD` with one minibatch per step, and its protocol one
        whose steps apply the updates of all workers; the workers' shards must be of about the same size and fit into
        memory.
    """
    data, workers = job.data, job.workers
    if workers == 1 or job.partition != "auto":
        return workers > 1 and job.partition == "user"
    if job.sync.averages == "paper":
        return False  # whole replicas are averaged, and an owner's users are in its own only
    if (
        not isinstance(data, Ratings)
        or not isinstance(job.optimizer, SGD)
        or job.takes_local_steps
        or not job.sync.is_complete
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
    """Estimated bytes of one worker's published update, and bytes of all parameters that are exchanged."""
    n_rows, width = job.model.table_shape(manifest.shape)
    if manifest.n_shards > 1:
        n_rows -= manifest.shape[0]  # users stay with their owners
    is_dense = job.optimizer.moves_untouched(job.model.dense_l2)
    n_touched = n_rows if is_dense else min(job.model.n_touched(manifest.n_touched) * job.local_steps, n_rows)
    # Decided by the threshold, not by the class: ISP(0) publishes what BSP does and must use the same pattern, since
    # scatter-reduce adds in another order.
    share = SIGNIFICANT if job.sync.threshold_at(1) > 0 else 1.0
    return int(4 * n_touched * width * share), 4 * n_rows * width


def growth(job: TrainingJob, manifest: Manifest) -> float:
    """Power of the number of updates with which the rows of the table that they touch grow, at most.

    From one row of data to a minibatch the ids grow by a power of the rows. It falls with their number, as popular ids
    come again: so the updates of several workers together have fewer rows than this one, taken further, says.
    """
    if manifest.size == 1:
        return 1.0
    grown = max(manifest.n_touched / max(job.data.ids_per_row, 1.0), 1.0)
    return min(math.log(grown) / math.log(manifest.size), 1.0)


def held_bytes(job: TrainingJob, manifest: Manifest) -> int:
    """Most bytes that a run keeps on its Redis servers, all together: reports, and frames if no other store has them.

    Frames are kept for as many steps as `mlless_nb.exchange.protocol.RoundRequest` says, and one is under way. At the
    end each worker hands over residuals and parameters, at most two tables at a time.
    """
    others = STATE_BYTES + REPORTS_BYTES * job.workers
    if job.store != REDIS or job.execution != WORKERS or job.workers == 1:
        return others
    update_bytes, table_bytes = exchanged_bytes(job, manifest)
    if job.sync.filters:
        update_bytes = min(int(update_bytes / SIGNIFICANT), table_bytes)  # at first, all of it may be significant
    n_kept = 3 + 2 * job.sync.staleness
    return others + job.workers * (n_kept * update_bytes + 2 * table_bytes)
