"""The reduce stage: adds all updates to the model, in slot order as a worker does, and writes the next model.

In a map-reduce run one function merges the whole table. In an event-driven run each reducer adds the updates of its
rows, and the merger puts the parts together (`merge.py`).
"""

from __future__ import annotations

import dataclasses

from ..data.prepare import Manifest
from ..exchange.stats import Stats, sum_of
from ..kernels import apply_frame
from ..models import model_from_json
from ..storage.checkpoint import Progress, read_rows
from .keys import model_key, part_key, update_key
from .stage import Made, Stage, Stopwatch
from .table import Float32, ranges


def reduce_all(stage: Stage) -> Made:
    """Write the model after the step."""
    call, job, objects = stage.call, stage.job, stage.objects
    before = Progress.decode(objects.get(call.model_key))
    frames = _frames(stage, 0)
    watch = Stopwatch()
    stats = add(before.params, frames)
    after = following(before, call.step, before.params, job.local_steps)
    blob = after.encode()
    model = model_from_json(job.model)
    has_emerged = not stats[3] or model.has_emerged(after.params, Manifest.from_json(job.manifest).shape)
    seconds = watch.read()
    objects.put(model_key(job.job_id, call.step), blob)
    return Made(stats, *seconds, has_emerged=has_emerged)


def reduce_part(stage: Stage, n_reducers: int) -> Made:
    """Write this reducer's rows of the model after the step."""
    call, job, objects = stage.call, stage.job, stage.objects
    shape = model_from_json(job.model).table_shape(Manifest.from_json(job.manifest).shape)
    first, end = ranges(shape[0], n_reducers)[call.index]
    rows = read_rows(objects, call.model_key, shape[1], first, end)
    frames = _frames(stage, call.index)
    watch = Stopwatch()
    stats = add(rows, frames)
    blob = Progress(rows, call.step).encode()
    seconds = watch.read()
    objects.put(part_key(job.job_id, call.step, call.index), blob)
    return Made(stats, *seconds)


def _frames(stage: Stage, reducer: int) -> list[bytes]:
    """The frames of all workers for ``reducer``, in slot order."""
    job, step = stage.job, stage.call.step
    return [stage.objects.get(update_key(job.job_id, step, slot, reducer)) for slot in range(job.n_workers)]


def add(table: Float32, frames: list[bytes]) -> Stats:
    """Add the frames to ``table`` in their order; returns the sums of their stats."""
    return sum_of([apply_frame(frame, table) for frame in frames])


def following(before: Progress, step: int, params: Float32, local_steps: int) -> Progress:
    """The progress after ``step`` with these parameters."""
    return dataclasses.replace(
        before,
        params=params,
        step=step,
        state=(),
        n_steps=before.n_steps + 1,
        n_updates=before.n_updates + local_steps,
    )
