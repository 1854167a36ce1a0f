"""What the functions of an event-driven run do, by stage, and the counters that tell when a stage is complete.

A new model starts the launch function, which starts one update function for each worker's slot. The update function
that is counted last starts the reducers, and the reducer that is counted last starts the merger, which writes the next
model: no driver is needed between steps.

References
----------
slsML: WorkLauncher, Workers, a counter in DynamoDB, Reducers, Merger; messages by SNS.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from .launch import following, launch
from .merge import merge
from .reduce import reduce_part
from .stage import Made, Stage
from .update import evaluate, update


def update_and_count(stage: Stage) -> Made:
    """The update of one slot; the last one starts the reducers."""
    call, job = stage.call, stage.job
    made = update(stage, call.n_reducers)
    if _is_last(stage, job.n_workers):
        stage.invoke([following(call, job, "reduce", reducer) for reducer in range(call.n_reducers)])
    return made


def reduce_and_count(stage: Stage) -> Made:
    """One part of the next model; the last one starts the merger."""
    call = stage.call
    made = reduce_part(stage, call.n_reducers)
    if _is_last(stage, call.n_reducers):
        merging = following(call, stage.job, "merge", 0)
        stage.invoke([dataclasses.replace(merging, stats=list(made.stats))])
    return made


def _is_last(stage: Stage, n_all: int) -> bool:
    """Count this part of the step as done; whether all are, and the next stage is to be started from here.

    A part counts once, whichever function did it. A function that repeats the part of one that was lost starts the
    next stage also if the lost one was counted: it may have been lost before it did so.
    """
    call = stage.call
    is_new, count = stage.log.count(f"{call.step}-{call.stage}", call.index)
    return count == n_all and (is_new or call.attempt > 0)


EVENTS: dict[str, Callable[[Stage], Made]] = {
    "launch": launch,
    "update": update_and_count,
    "reduce": reduce_and_count,
    "merge": merge,
    "evaluate": evaluate,
}
