"""Measures a job on this machine: what a minibatch costs, how large an update is, and how many epochs a target needs.

Nothing is launched or billed: one replica trains in this process, without peers.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from dataclasses import dataclass

from ..data.minibatches import Minibatch
from ..data.prepare import Manifest
from ..driver.data_preparation import JobData
from ..driver.invocations import DETACHED, invocations_of
from ..errors import JobError
from ..exchange.stats import NO_STATS
from ..exchange.stores import REDIS
from ..job.execution import WORKERS
from ..job.job import TrainingJob
from ..job.limits import Stop
from ..job.partitioning import exchanged_bytes, is_by_user
from ..job.scale_in import ScaleIn
from ..job.sync import BSP, Sync
from ..money import Rates, price_profile
from ..money.start import StartingMoney
from ..storage.objects import MemoryObjects
from ..worker.minibatch_loader import MinibatchFeed
from ..worker.replica import Replica
from .analytic import Sizes
from .timing import LEAST_TIMED, crowded, timed

#: Share of the training rows on which the epochs to a target are estimated: LambdaML, section 5.3.
SAMPLE = 0.1
#: Seconds that each of the two measurements may take.
STEPS_S, SAMPLE_S = 1.0, 10.0
#: Most minibatches of the sample that are timed.
MOST_TIMED = 64
#: Evaluations of the held-out rows in an epoch of the sample.
LOOKS = 4
#: The error if the sample does not reach the target.
NOT_REACHED = "a loss that {1} reach within {0:g} s here; or give the epochs: advise(job, epochs=20)"


@dataclass(frozen=True)
class Probe:
    """What was measured.

    Attributes
    ----------
    sizes : Sizes
    epochs_from : str
        Where the number of epochs comes from, for the reader.
    """

    sizes: Sizes
    epochs_from: str


def probe(job: TrainingJob, epochs: float | None = None) -> Probe:
    """Measure ``job`` on this machine, for about a second; a target takes up to ten seconds more.

    Parameters
    ----------
    job : TrainingJob
    epochs : float, optional
        Passes over the training rows, e.g. of an earlier run; None: from the stop rules, or estimated for a target.

    Raises
    ------
    JobError
        The job cannot be trained on its data.
    """
    n_train = job.n_train  # refuses files whose rows are not here
    share = min(max(SAMPLE, 2.0 * job.minibatch * max(LEAST_TIMED, job.local_steps) / n_train), 1.0)
    timed = _part(job, share)
    objects = MemoryObjects()
    sizes = _sizes(job, *_packed(timed, objects), objects, share)
    why = "as given"
    if epochs is None:
        epochs, why = _epochs(job, sizes.n_minibatches)
    return Probe(dataclasses.replace(sizes, epochs=epochs), why)


def _part(job: TrainingJob, share: float) -> TrainingJob:
    """``job`` on about ``share`` of its rows, for one replica alone."""
    alone = dataclasses.replace(
        job,
        workers=1,
        sync=BSP(),
        scale_in=ScaleIn.off(),
        budget=None,
        stop=Stop(epochs=1),
        partition="rows",
        pattern="broadcast",
        execution=WORKERS,
        reducers=None,
        store=REDIS,
        backend="embedded",
        redis=None,
        bus=None,
        name=None,
    )
    if share >= 1.0:
        return alone
    return dataclasses.replace(alone, data=job.data.split(share, job.seed)[1])


def _packed(job: TrainingJob, objects: MemoryObjects) -> tuple[TrainingJob, Manifest, Manifest | None]:
    """``job`` with its defaults chosen, and its packed rows."""
    data = JobData(job)
    packed = data.pack(objects, lambda: False)
    assert packed is not None  # it was not told to stop
    return data.job, *packed


def _replica(job: TrainingJob, manifest: Manifest, n_workers: int, sync: Sync | None = None) -> Replica:
    """A replica as worker 0 of ``n_workers`` has it."""
    rates = Rates(price_profile(job.prices), job.memory_mb)
    _, worker, *_ = invocations_of(
        dataclasses.replace(job, sync=sync) if sync is not None else job,
        manifest,
        None,
        StartingMoney(rates, n_workers, is_local=True),
        seed=job.seed,
        **DETACHED,
    )
    return Replica(worker, manifest)


def _sizes(
    job: TrainingJob, part: TrainingJob, manifest: Manifest, _: Manifest | None, objects: MemoryObjects, share: float
) -> Sizes:
    """Time minibatches of ``part``, a share of ``job``; the epochs are left open."""
    feed = MinibatchFeed(objects, manifest)
    minibatches = [feed.get(index) for index in range(min(manifest.n_minibatches, MOST_TIMED))]
    feed.close()
    sync, h = job.sync if job.sync.filters else BSP(), job.local_steps
    replica = _replica(part, manifest, 2, sync)
    alone = timed([replica], minibatches, h, STEPS_S / 2)
    crowd = crowded(lambda: _replica(part, manifest, 2, sync), minibatches, h, STEPS_S / 2)
    shared = _shared(job, replica, minibatches)
    own_bytes = 4 * job.data.shape[0] * replica.width if job.workers > 1 and is_by_user(job) else 0
    n_packed = sum(len(blob) for blob in objects.blobs.values())
    return Sizes(
        epochs=0.0,
        n_minibatches=job.n_minibatches,
        local_steps=h,
        minibatch_s=alone.make_s / h,
        apply_s=shared * alone.apply_s,
        update_bytes=shared * alone.n_bytes,
        table_bytes=exchanged_bytes(part, manifest)[1] - own_bytes,
        data_bytes=n_packed / share,
        crowded_minibatch_s=crowd.make_s / h,
        crowded_apply_s=shared * crowd.apply_s,
    )


def _shared(job: TrainingJob, replica: Replica, minibatches: list[Minibatch]) -> float:
    """The share of an update's rows that other workers read: without those of users, if users are sharded."""
    if job.workers == 1 or not is_by_user(job):
        return 1.0
    n_users = job.data.shape[0]
    return statistics.mean(float((replica.algorithm.setting.rows(one) >= n_users).mean()) for one in minibatches)


def _epochs(job: TrainingJob, n_minibatches: int) -> tuple[float, str]:
    """The epochs that the stop rules of ``job`` mean, and how they were found."""
    stop = job.stop_rules
    if stop.target is not None:
        found = epochs_to_target(job, stop.epochs)
        share = f"{SAMPLE:.0%} of the rows"
        if found is not None:
            return found, f"estimated: the target {stop.target:g} was reached on {share}"
        if stop.epochs is None:
            raise JobError("stop.target", stop.target, NOT_REACHED.format(SAMPLE_S, share))
    if stop.epochs is not None:
        return stop.epochs, "the stop rule"
    if stop.steps is not None:
        return stop.steps * job.workers * job.local_steps / n_minibatches, "the stop rule"
    return dataclasses.replace(job, stop=Stop(), budget=None).stop_rules.epochs or 1.0, "the default's most"


def _all(objects: MemoryObjects, manifest: Manifest) -> list[Minibatch]:
    """Every minibatch of ``manifest``."""
    feed = MinibatchFeed(objects, manifest)
    found = [feed.get(index) for index in range(manifest.n_minibatches)]
    feed.close()
    return found


def epochs_to_target(job: TrainingJob, most: float | None = None) -> float | None:
    """Epochs until a sample of the rows reaches the target of ``job``; None if it does not within the time.

    An epoch of the sample has as many steps as one of the whole: its minibatches are smaller by the sample's share.
    """
    size = max(round(SAMPLE * job.minibatch * job.workers), 1)
    objects = MemoryObjects()
    part, manifest, validation = _packed(dataclasses.replace(_part(job, SAMPLE), minibatch=size), objects)
    replica, feed = _replica(part, manifest, 1), MinibatchFeed(objects, manifest)
    held_out = _all(objects, validation) if validation is not None else []
    n, h, position = manifest.n_minibatches, part.local_steps, 0
    look_every = max(n // (LOOKS * h), 1)
    until = time.monotonic() + SAMPLE_S
    step = 0
    try:
        while time.monotonic() < until and (most is None or position < most * n):
            step += 1
            taken = [feed.get((position + i) % n) for i in range(h)]
            loss = replica.make(taken, step, 1)
            replica.apply([0], [], NO_STATS)
            replica.finish(step, 1)
            position += h
            if step % look_every:
                continue
            judged = held_out or taken
            value = sum(map(replica.evaluate, held_out)) if held_out else loss
            count = sum(minibatch.n for minibatch in judged)
            if replica.model.metric_value(value, count) <= (job.stop.target or 0.0):
                return position / n
    finally:
        feed.close()
    return None
