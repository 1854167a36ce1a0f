"""The update stage: one function for each worker's slot computes its update of the model and writes it as frames.

It has the arithmetic of a worker that goes on from the model after the step before, with its slot's optimiser state
from the object storage. So its frames are those of a worker under BSP, bit for bit.
"""

from __future__ import annotations

import dataclasses

from ..data.minibatches import Minibatch
from ..data.prepare import Manifest
from ..storage.checkpoint import Progress
from ..storage.objects import ObjectStore
from ..worker.evaluation import HeldOut
from ..worker.minibatch_loader import MinibatchFeed
from ..worker.minibatch_schedule import Shards
from ..worker.replica import Replica
from .keys import state_key, update_key
from .stage import Made, Stage, Stopwatch


def update(stage: Stage, n_reducers: int) -> Made:
    """Write the update of this slot, one frame for each reducer, and the slot's state of the optimiser."""
    call, job, objects = stage.call, stage.job, stage.objects
    manifest = Manifest.from_json(job.manifest)
    replica = Replica(job, manifest)
    replica.go_on_from(_before(stage, has_state=bool(replica.state)))
    replica.rate_factor = call.rate_factor
    sums = evaluated(stage, replica) if call.evaluates else (0.0, 0.0)
    minibatches = _minibatches(stage, manifest, objects, replica.n_updates_before)
    watch = Stopwatch()
    # Every step is the first one of a run that goes on from the step before.
    loss = replica.make(minibatches, 1, job.n_workers)
    stats = loss, float(sum(minibatch.n for minibatch in minibatches)), *sums
    frames = replica.encode_parts(call.step, stats, list(range(n_reducers)))
    seconds = watch.read()
    if replica.state:
        first, *others = replica.state
        blob = Progress(first, call.step, tuple(others)).encode()
        objects.put(state_key(job.job_id, call.step, call.index), blob)
    for reducer, frame in frames.items():
        objects.put(update_key(job.job_id, call.step, call.index, reducer), frame)
    return Made(stats, *seconds)


def evaluated(stage: Stage, replica: Replica) -> tuple[float, float]:
    """Loss sum and row count of this slot's share of the held-out rows."""
    held_out = HeldOut(stage.job, stage.objects, replica)
    try:
        return held_out.evaluate(list(range(stage.job.n_workers)))
    finally:
        held_out.close()


def evaluate(stage: Stage) -> Made:
    """The evaluation stage, after the last step: this slot's share of the held-out rows."""
    replica = Replica(stage.job, Manifest.from_json(stage.job.manifest))
    replica.go_on_from(Progress.decode(stage.objects.get(stage.call.model_key)))
    return Made((0.0, 0.0, *evaluated(stage, replica)))


def _before(stage: Stage, *, has_state: bool) -> Progress:
    """The model before the step, with this slot's state of the optimiser."""
    call, job, objects = stage.call, stage.job, stage.objects
    progress = Progress.decode(objects.get(call.model_key))
    if not has_state or call.step == 1:  # the model that a run begins with has the state of the run it goes on from
        return progress
    kept = Progress.decode(objects.get(state_key(job.job_id, call.step - 1, call.index)))
    return dataclasses.replace(progress, state=(kept.params, *kept.state))


def _minibatches(stage: Stage, manifest: Manifest, objects: ObjectStore, n_taken: int) -> list[Minibatch]:
    """The minibatches of this slot's step, one for each local step, after ``n_taken`` others."""
    job, n_steps = stage.job, stage.job.local_steps
    shares = Shards(manifest, job.slot, job.n_workers)
    shares.skip(n_taken)
    indices = [index for group in shares.take(n_steps) for index in group]
    feed = MinibatchFeed(objects, manifest)
    try:
        feed.expect(indices)
        return [feed.get(index) for index in indices]
    finally:
        feed.close()
