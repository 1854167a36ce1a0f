"""Which of the stored models a run is said to return, and which is its last one."""

from __future__ import annotations

import numpy as np
import pytest
from engine.threads import Job

from mlless_nb import BSP, PMF, SGD
from mlless_nb.bus.messages import Failed, Left
from mlless_nb.exchange import MemoryCoordinator, MemoryHub
from mlless_nb.exchange.plan import NO_PLAN
from mlless_nb.models import model_from_json
from mlless_nb.storage.checkpoint import Progress, encode
from mlless_nb.storage.objects import MemoryObjects
from mlless_nb.storage.run_objects import last_key, model_key
from mlless_nb.supervisor.ending import LOST, UNHEARD, Ending, KeptModel, judged
from mlless_nb.supervisor.worker_watch import WorkerWatch


@pytest.mark.parametrize("has_last", [True, False])
@pytest.mark.parametrize("is_heard", [True, False])
def test_the_last_model_is_told_of_whatever_of_the_end_was_heard(is_heard: bool, has_last: bool) -> None:
    """Neither rows of the last steps nor the workers' last messages are needed for it."""
    invocation = Job(PMF(rank=2), SGD(0.2), BSP(), 2, 5, "mean", {}).invocation(0)
    objects, job_id = MemoryObjects(), invocation.job_id
    objects.put(model_key(job_id), encode(np.ones((3, 2), np.float32), 40))
    if has_last:
        objects.put(last_key(job_id), encode(np.zeros((3, 2), np.float32), 50))
    workers = WorkerWatch(invocation, MemoryCoordinator(MemoryHub()), lambda: 0.0)
    kept_step = 40 if has_last else 50
    for slot in range(2):
        heard = Left(slot, 50, 0, 0, 1.0, 2.0, "finished", "all 50 steps are done", 0, kept_step, 1.0, 2.0)
        unheard = Left(slot, 0, 0, 0, 0.0, 0.0, "left", UNHEARD)
        workers.ended[slot] = heard if is_heard else unheard
    ending = Ending(
        invocation, model_from_json(invocation.model), objects, workers, lambda: ("finished", "by its plan")
    )
    kept = ending.kept_model()
    expected = KeptModel(model_key(job_id), last_key(job_id) if has_last else None, kept_step, kept.loss)
    assert kept == (expected if is_heard else expected._replace(step=None, last_step=50 if has_last else 40))


def test_a_run_that_has_lost_its_plan_ended_as_its_model_says() -> None:
    """A Redis that lost its data as a run was at its cap had it end as if every worker had been lost."""
    objects = MemoryObjects()
    assert judged("job", NO_PLAN, 3, objects) == ("failed", LOST)
    table = np.ones((3, 2), np.float32)
    objects.put(model_key("job"), encode(table, 3))
    assert judged("job", NO_PLAN, 3, objects) == ("failed", LOST)
    ended = "capped", "the budget does not pay for another step"
    objects.put(model_key("job"), Progress(table, 3, verdict=ended).encode())
    assert judged("job", NO_PLAN, 3, objects) == ended


@pytest.mark.parametrize("is_stored", [True, False])
@pytest.mark.parametrize("other", ["unheard", "failed", "gone"])
def test_a_run_is_not_finished_whose_model_nobody_could_store(is_stored: bool, other: str) -> None:
    """Worker 0 was killed between its last step and the model; worker 1 had said that all steps were done."""
    invocation = Job(PMF(rank=2), SGD(0.2), BSP(), 2, 5, "mean", {}).invocation(0)
    objects, workers = MemoryObjects(), WorkerWatch(invocation, MemoryCoordinator(MemoryHub()), lambda: 0.0)
    workers.ended[1] = Left(1, 5, 0, 0, 1.0, 2.0, "finished", "all 5 steps are done", 0, 5, 1.0, 2.0)
    if other == "unheard":
        workers.ended[0] = Left(0, 0, 0, 0, 0.0, 0.0, "left", UNHEARD)
    elif other == "failed":
        workers.ended[0] = Failed(0, 4, 0, 0, "lost")
    if is_stored:
        objects.put(model_key(invocation.job_id), encode(np.ones((3, 2), np.float32), 5))
    ending = Ending(invocation, model_from_json(invocation.model), objects, workers, lambda: ("failed", LOST))
    expected = ("finished", "all 5 steps are done") if is_stored else ("failed", LOST)
    assert (ending.status, ending.reason) == expected
    assert (ending.kept_model().model_key is not None) == is_stored
