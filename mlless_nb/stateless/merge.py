"""The merge stage of an event-driven run: puts the reducers' parts together as the next model, which starts a step."""

from __future__ import annotations

import dataclasses
import json

import numpy as np

from ..data.prepare import Manifest
from ..errors import DecodeError
from ..models import model_from_json
from ..storage.checkpoint import Progress
from .judge import Judge
from .keys import judge_key, model_key, part_key
from .launch import following
from .reduce import following as progress_after
from .stage import Made, Stage, Stopwatch


def merge(stage: Stage) -> Made:
    """Write the next model and the losses so far; invoke the next step's launch unless the losses end the run."""
    call, job, objects = stage.call, stage.job, stage.objects
    before = Progress.decode(objects.get(call.model_key))
    parts = [objects.get(part_key(job.job_id, call.step, reducer)) for reducer in range(call.n_reducers)]
    judge = _judge(stage)
    watch = Stopwatch()
    params = np.concatenate([Progress.decode(part).params for part in parts])
    after = progress_after(before, call.step, params, job.local_steps)
    model = model_from_json(job.model)
    first, second, third, fourth = call.stats
    has_emerged = not fourth or model.has_emerged(params, Manifest.from_json(job.manifest).shape)
    verdict = judge.observe((first, second, third, fourth), has_emerged=has_emerged)
    blob = after.encode()
    seconds = watch.read()
    objects.put(judge_key(job.job_id, call.step), json.dumps(judge.to_json()).encode())
    objects.put(model_key(job.job_id, call.step), blob)
    if verdict is None:
        next_step = following(call, job, "launch", 0)
        stage.invoke(
            [
                dataclasses.replace(
                    next_step,
                    step=call.step + 1,
                    model_key=model_key(job.job_id, call.step),
                    rate_factor=judge.rate_factor,
                    evaluates=judge.evaluates_next,
                    stats=[],
                )
            ]
        )
    return Made((first, second, third, fourth), *seconds, has_emerged=has_emerged, verdict=verdict)


def _judge(stage: Stage) -> Judge:
    """The losses before this step."""
    call, job = stage.call, stage.job
    if call.step == 1:
        return Judge(job, call.rate_factor)
    told = json.loads(stage.objects.get(judge_key(job.job_id, call.step - 1)))
    if not isinstance(told, dict) or set(told) != {"first_factor", "seen"}:
        raise DecodeError("the losses of the run are damaged")
    return Judge(job, told["first_factor"], told["seen"])
