"""Measures a job on this machine: what a minibatch costs, and how large an update is.

Nothing is launched or billed: one replica trains in this process, without peers.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
import subprocess

from ..data.csr import Csr
from ..data.dataset import Dataset
from ..data.minibatches import Minibatch
from ..data.prepare import Manifest
from ..data.ratings import Ratings
from ..data.stream import CsrStream
from ..driver.backends.launcher import is_local
from ..errors import ServiceError
from ..job import defaults
from ..job.job import TrainingJob
from ..job.partitioning import exchanged_bytes, growth, is_by_user
from ..job.sync import BSP
from ..storage.objects import MemoryObjects
from ..worker.minibatch_loader import MinibatchFeed
from .alone import packed, part_of, replica_of
from .pace import loop_s
from .sizes import Sizes
from .timing import LEAST_TIMED, crowded, loaded_s, timed

#: Least share of the training rows that minibatches are timed on.
SAMPLE = 0.1
#: Rows in memory with at most so many values are all packed, which takes some tenths of a second: then what a run
#: decides by how much its minibatches touch is known.
WHOLE_VALUES = 4_000_000
#: Seconds that the measurement may take.
STEPS_S = 1.0
#: Most minibatches of the sample that are timed.
MOST_TIMED = 64
#: Most blocks of a file that `probe_head` reads: of 16 MiB of text together, as the first ones are small.
MOST_BLOCKS = 6


def probe(job: TrainingJob, steps_s: float | None = None, sample: float | None = None) -> Sizes:
    """Measure ``job`` on this machine, for about ``steps_s`` seconds; its epochs are left open.

    Without ``steps_s`` steps are timed for a second, and how long functions of this machine take to start; without
    ``sample``, a share of the rows, `SAMPLE` of them is packed, or all if these are few.

    Raises
    ------
    JobError
        The job cannot be trained on its data.
    """
    n_train = job.n_train  # refuses files whose rows are not here
    if sample is None:
        sample = 1.0 if _n_values(job.data) <= WHOLE_VALUES else SAMPLE
    share = min(max(sample, 2.0 * job.minibatch * max(LEAST_TIMED, job.local_steps) / n_train), 1.0)
    objects = MemoryObjects()
    part, manifest, _ = packed(part_of(job, share), objects)
    sizes = _sizes(job, part, manifest, objects, share, STEPS_S if steps_s is None else steps_s)
    if steps_s is not None or not is_local(job.backend):
        return sizes
    try:
        return dataclasses.replace(sizes, loaded_s=loaded_s(job.model.modules))
    except (OSError, subprocess.SubprocessError, ServiceError):  # the run will say why; a constant stands for it here
        return sizes


def _n_values(data: Dataset) -> float:
    """Values of rows in memory; infinite if they are elsewhere."""
    if isinstance(data, Csr):
        return float(data.X.nnz)
    return data.n if isinstance(data, Ratings) else math.inf


def probe_head(job: TrainingJob, rows: CsrStream, steps_s: float) -> Sizes | None:
    """`probe` on the first ``rows`` of a file, which is read no further; None if they are too few for a step.

    Rows that come first may be unlike later ones, so the figures are rougher than those of a sample.
    """
    n_wanted = min(job.minibatch * max(LEAST_TIMED, job.local_steps), rows.n)
    head = rows.head(n_wanted, MOST_BLOCKS)
    if head.n < min(job.minibatch * job.local_steps, rows.n):
        return None
    objects, share = MemoryObjects(), min(head.n / job.n_train, 1.0)
    part, manifest, _ = packed(part_of(job, share, head), objects)
    return _sizes(job, part, manifest, objects, share, steps_s)


def _sizes(
    job: TrainingJob, part: TrainingJob, manifest: Manifest, objects: MemoryObjects, share: float, steps_s: float
) -> Sizes:
    """Time minibatches of ``part``, a share of ``job``; the epochs are left open."""
    feed = MinibatchFeed(objects, manifest)
    minibatches = [feed.get(index) for index in range(min(manifest.n_minibatches, MOST_TIMED))]
    feed.close()
    shards = _shards(job, manifest, minibatches)
    part = defaults.adapted(part, shards)
    sync, h = job.sync if job.sync.filters else BSP(), job.local_steps
    single = timed([replica_of(part, manifest, 1, sync)], minibatches, h, steps_s / 3, n_workers=1)
    paired = timed([replica_of(part, shards, 2, sync)], minibatches, h, steps_s / 3)
    crowd = crowded(lambda: replica_of(part, shards, 2, sync), minibatches, h, steps_s / 3)
    planned_bytes, table_bytes = exchanged_bytes(part, shards)
    _, params_bytes = exchanged_bytes(part, manifest)
    n_packed = sum(len(blob) for blob in objects.blobs.values())
    return Sizes(
        epochs=0.0,
        n_minibatches=job.n_minibatches,
        local_steps=h,
        minibatch_s=paired.make_s / h,
        apply_s=paired.apply_s,
        update_bytes=paired.n_bytes,
        table_bytes=table_bytes,
        data_bytes=n_packed / share,
        params_bytes=params_bytes,
        alone_minibatch_s=single.make_s / h,
        crowded_minibatch_s=crowd.make_s / h,
        crowded_apply_s=crowd.apply_s,
        planned_bytes=planned_bytes,
        growth=growth(part, shards),
        loop_s=loop_s() if is_local(job.backend) else None,
        is_lazy=getattr(part.optimizer, "lazy", False) is True,
    )


def _shards(job: TrainingJob, manifest: Manifest, minibatches: list[Minibatch]) -> Manifest:
    """``manifest`` as a worker of ``job`` has it: if users are sharded, those of its minibatches are few, and its own.

    All minibatches are then in the first of two shards.
    """
    if job.workers == 1 or not is_by_user(job):
        return manifest
    n_users = job.data.shape[0]
    users = statistics.mean(float((minibatch.ids < n_users).sum()) for minibatch in minibatches)
    n_fewer = max(round(users - n_users / job.workers), 0)
    n_touched = max(manifest.n_touched - n_fewer, 1)
    return dataclasses.replace(
        manifest, n_touched=n_touched, shards=(0, manifest.n_minibatches, manifest.n_minibatches)
    )
