"""Names of the objects of a stateless run: each step has a folder of its own, so that a repeated call does no harm."""

from __future__ import annotations


def step_folder(job_id: str, step: int) -> str:
    """The folder of the objects that ``step`` writes; step 0 has what the run begins with."""
    return f"runs/{job_id}/step-{step:09d}/"


def model_key(job_id: str, step: int) -> str:
    """The model after ``step``, a `mlless_nb.storage.checkpoint.Progress` without the optimiser's state."""
    return step_folder(job_id, step) + "model"


def update_key(job_id: str, step: int, slot: int, reducer: int = 0) -> str:
    """The frame of worker ``slot``'s update in ``step``, the rows of ``reducer``."""
    return step_folder(job_id, step) + f"update-{reducer:05d}-{slot:05d}"


def state_key(job_id: str, step: int, slot: int) -> str:
    """The optimiser's state of worker ``slot`` after ``step``: a `Progress` of its tables."""
    return step_folder(job_id, step) + f"state-{slot:05d}"


def part_key(job_id: str, step: int, reducer: int) -> str:
    """The rows of the model after ``step`` that ``reducer`` computed."""
    return step_folder(job_id, step) + f"part-{reducer:05d}"


def judge_key(job_id: str, step: int) -> str:
    """The losses up to ``step``, from which the stop rules and the learning rate follow."""
    return step_folder(job_id, step) + "judge"


def written(job_id: str, step: int, n_workers: int, n_reducers: int) -> list[str]:
    """All objects that ``step`` may have written, except the model."""
    keys = [judge_key(job_id, step)]
    for slot in range(n_workers):
        keys += [state_key(job_id, step, slot)]
        keys += [update_key(job_id, step, slot, reducer) for reducer in range(n_reducers)]
    return keys + [part_key(job_id, step, reducer) for reducer in range(n_reducers)]
