"""The newest model of a run among its objects: damaged, incomplete and diverged ones are passed over."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from mlless_nb.errors import ServiceError
from mlless_nb.storage import checkpoint, run_objects
from mlless_nb.storage.objects import MemoryObjects
from mlless_nb.storage.run_objects import Checkpoint, interrupted_key, model_key, newest_whole, part_key
from mlless_nb.storage.worker_state import WorkerState

FACTS = {"n_steps": 7, "n_updates": 14, "rate_factor": 0.3, "weight": 1.0, "state": []}


def part(step: int, slot: int, value: float = 1.0, *, common: bool = False, **tables: NDArray[np.float32]) -> bytes:
    """The part of one of two workers, as a blob."""
    params = np.full((4, 2), value, np.float32)
    if common:
        rows = {"params": params[2 * slot : 2 * slot + 2]}
        return WorkerState(step, slot, [0, 1], FACTS, tables, rows).encode()
    return WorkerState(step, slot, [0, 1], FACTS, {"params": params, **tables}).encode()


def stored(objects: MemoryObjects, *steps: int) -> None:
    """Store the checkpoints of these steps; their parameters tell the step."""
    for step in steps:
        for slot in (0, 1):
            objects.put(part_key("run", Checkpoint(0, step), slot), part(step, slot, float(step), common=True))


def found_step(objects: MemoryObjects) -> int | None:
    """The step of the newest model; its parameters must be those of that step."""
    found = run_objects.newest(objects, "run")
    if found is None:
        return None
    np.testing.assert_array_equal(found.progress.params, np.full((4, 2), found.progress.step, np.float32))
    return found.progress.step


def test_the_newest_whole_checkpoint_is_found_and_the_model_is_newer_than_all() -> None:
    objects = MemoryObjects()
    assert found_step(objects) is None
    stored(objects, 90, 100, 110)
    objects.put("runs/run/something-else", b"")
    objects.put("runs/run-2/checkpoint-000000500-0/0", part(500, 0))
    assert found_step(objects) == 110
    objects.delete([part_key("run", Checkpoint(0, 110), 1)])
    assert found_step(objects) == 100
    objects.put(model_key("run"), checkpoint.encode(np.full((4, 2), 113, np.float32), 113))
    assert found_step(objects) == 113


def test_the_model_is_that_of_the_newest_restart_and_not_of_one_that_was_abandoned() -> None:
    objects = MemoryObjects()
    stored(objects, 10, 40)
    for slot in (0, 1):
        objects.put(part_key("run", Checkpoint(1, 20), slot), part(20, slot, 20.0, common=True))
    assert found_step(objects) == 20


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "nan", "inf"])
def test_damaged_ones_are_passed_over(damage: str) -> None:
    objects = MemoryObjects()
    stored(objects, 10, 20, 30)
    for step, expected in ((30, 20), (20, 10), (10, None)):
        key = part_key("run", Checkpoint(0, step), 1)
        blob = bytearray(objects.blobs[key])
        blob[-5] ^= 64
        objects.blobs[key] = {
            "cut": objects.blobs[key][:-1],
            "flipped": bytes(blob),
            "empty": b"",
            "nan": part(step, 1, np.nan, common=True),
            "inf": part(step, 1, np.inf, common=True),
        }[damage]
        assert found_step(objects) == expected


def test_what_a_worker_kept_when_the_run_was_aborted_counts_if_it_is_newer() -> None:
    objects = MemoryObjects()
    stored(objects, 10, 20)
    objects.put(interrupted_key("run", 1), part(25, 1, 25.0))
    assert found_step(objects) == 25
    objects.put(interrupted_key("run", 1), part(15, 1, 15.0))
    assert found_step(objects) == 20
    # A range of rows is no model, nor are the rows of one owner.
    objects.put(interrupted_key("run", 1), part(25, 1, 25.0, common=True))
    assert found_step(objects) == 20
    objects.put(interrupted_key("run", 0), part(25, 0, 25.0, common=True))
    assert found_step(objects) == 25


def test_residuals_are_published_and_owned_rows_are_their_owners() -> None:
    objects = MemoryObjects()
    residual = np.full((4, 2), 0.25, np.float32)
    for slot in (0, 1):
        own = np.array([slot], np.int32)
        tables = {"residual": residual, "own rows": own}
        objects.put(part_key("run", Checkpoint(0, 5), slot), part(5, slot, 5.0 + slot, **tables))
    found = run_objects.newest(objects, "run")
    assert found is not None
    # Rows 0 and 1 are those of workers 0 and 1; the others are worker 0's with the residual of worker 1.
    np.testing.assert_array_equal(found.progress.params[:, 0], [5.0, 6.0, 5.25, 5.25])
    assert (found.progress.n_updates, found.progress.rate_factor) == (14, 0.3)


def test_all_objects_of_a_run_are_removed() -> None:
    objects = MemoryObjects()
    stored(objects, 10)
    objects.put(model_key("run"), b"model")
    objects.put(model_key("run-2"), b"other")
    run_objects.remove(objects, "run", is_known=False)
    assert list(objects.blobs) == [model_key("run-2")]


def test_only_a_checkpoint_of_which_all_parts_are_whole_is_gone_on_from() -> None:
    objects = MemoryObjects()
    for step in (10, 20, 30):
        for slot in (0, 1):
            objects.put(part_key("run", Checkpoint(0, step), slot), WorkerState(step, slot, [0, 1], {}).encode())
    assert newest_whole(objects, "run").checkpoint == (0, 30)
    objects.put(part_key("run", Checkpoint(0, 30), 1), objects.blobs[part_key("run", Checkpoint(0, 30), 1)][:-1])
    assert newest_whole(objects, "run").checkpoint == (0, 20)
    objects.delete([part_key("run", Checkpoint(0, 20), 0)])
    assert newest_whole(objects, "run").checkpoint == (0, 10)
    objects.delete([part_key("run", Checkpoint(0, 10), 1)])
    assert newest_whole(objects, "run").checkpoint == (0, 0)


def test_a_storage_that_refuses_a_part_is_asked_again_and_no_older_checkpoint_is_taken() -> None:
    class Throttled(MemoryObjects):
        def get(self, key: str, first: int = 0, end: int | None = None) -> bytes:
            raise ServiceError("please reduce your request rate")

    objects = Throttled()
    for step in (10, 20):
        objects.put(part_key("run", Checkpoint(0, step), 0), WorkerState(step, 0, [0], {}).encode())
    with pytest.raises(ServiceError):
        newest_whole(objects, "run")


def test_a_part_that_is_written_after_a_restart_is_not_taken_for_a_newer_one() -> None:
    objects = MemoryObjects()

    def store(number: int, step: int, *active: int) -> None:
        for slot in active:
            key = part_key("run", Checkpoint(number, step), slot)
            objects.put(key, WorkerState(step, slot, list(active), {"number": number}).encode())

    store(0, 10, 0, 1)
    store(1, 20, 0)  # worker 1 has left by then
    store(0, 20, 0, 1)  # from before, when it had not: late
    store(0, 30, 0, 1)
    restarts = [(1, 10)]
    assert newest_whole(objects, "run", restarts=restarts).checkpoint == (1, 20)
    own = WorkerState.decode(objects.get(part_key("run", Checkpoint(1, 20), 0)))
    assert (own.active, own.facts) == ([0], {"number": 1})
    objects.delete([part_key("run", Checkpoint(1, 20), 0)])
    assert newest_whole(objects, "run", restarts=restarts).checkpoint == (
        0,
        10,
    )  # what restart 1 has abandoned stays so
