"""The objects that a run stores: their keys, the newest model among them, and how they are removed."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..errors import DecodeError, ServiceError
from .checkpoint import Progress
from .objects import ObjectStore
from .worker_state import REPORTS, Table, WorkerState, assembled

#: Number of checkpoints of a run that are kept.
KEPT = 3


def model_key(job_id: str) -> str:
    """The key of the model that the run returns: the best one by validation loss, else the last one."""
    return f"runs/{job_id}/model"


def last_key(job_id: str) -> str:
    """The key of the last model, if it is not the one that is returned."""
    return f"runs/{job_id}/last"


def start_key(job_id: str) -> str:
    """The key of the progress that a run continues from."""
    return f"runs/{job_id}/start"


def tally_key(job_id: str) -> str:
    """The key of what functions of this machine have requested: a temporary file, which no listing has."""
    return f"runs/{job_id}/.requests"


class Checkpoint(NamedTuple):
    """Which checkpoint of a run: the number of the restart after which its steps were taken, and its step.

    In this order the later one of two is the newer one: workers never go on from an abandoned checkpoint. A part that
    was on its way for longer than a restart took has the number from before: it cannot be taken for a later one.
    """

    number: int = 0
    step: int = 0


def part_key(job_id: str, checkpoint: Checkpoint, slot: int) -> str:
    """The key of the part of ``slot`` in a checkpoint."""
    return f"runs/{job_id}/checkpoint-{checkpoint.step:09d}-{checkpoint.number}/{slot}"


def interrupted_key(job_id: str, slot: int) -> str:
    """The key of the state that ``slot`` stored when the run was aborted."""
    return f"runs/{job_id}/interrupted/{slot}"


def parts_of(keys: Sequence[str]) -> dict[Checkpoint, set[int]]:
    """The slots whose parts are among ``keys``, by their checkpoint."""
    found: dict[Checkpoint, set[int]] = {}
    for key in keys:
        folder, _, slot = key.rpartition("/")
        step, _, number = folder.rpartition("/checkpoint-")[2].partition("-")
        if "/checkpoint-" in folder and step.isdigit() and number.isdigit() and slot.isdigit():
            found.setdefault(Checkpoint(int(number), int(step)), set()).add(int(slot))
    return found


def is_model_stored(objects: ObjectStore, job_id: str) -> bool:
    """Whether the run's model is stored: its workers have nothing more to do."""
    return model_key(job_id) in objects.list(f"runs/{job_id}/")


class Whole(NamedTuple):
    """A checkpoint that has all its parts undamaged, and their tables of `REPORTS` by slot."""

    checkpoint: Checkpoint
    reports: dict[int, Table]


def newest_whole(objects: ObjectStore, job_id: str, restarts: Sequence[tuple[int, int]] = ()) -> Whole:
    """The newest checkpoint that has all its parts undamaged, that of step 0 if there is none.

    Parameters
    ----------
    objects : ObjectStore
    job_id : str
    restarts : sequence of (int, int)
        Number and step of the run's restarts so far: what was stored before one of them for a later step was abandoned
        by it, though it may have become whole since.

    Raises
    ------
    ServiceError
        The storage refuses a request: a newer checkpoint may be whole.
    """
    parts = parts_of(objects.list(f"runs/{job_id}/checkpoint-"))
    for found in sorted(parts, reverse=True):
        if any(found.step > step for number, step in restarts if number > found.number):
            continue
        with contextlib.suppress(DecodeError, KeyError):
            reports: dict[int, Table] = {}
            for slot in parts[found]:
                state = WorkerState.decode(objects.get(part_key(job_id, found, slot)))
                if not parts[found].issuperset(state.active):
                    break
                if REPORTS in state.tables:
                    reports[slot] = state.tables[REPORTS].copy()  # without the rest of the part
            else:
                return Whole(found, reports)
    return Whole(Checkpoint(), {})


class Found(NamedTuple):
    """The newest model of a run: the key of its object, or of the folder of its parts, and the progress.

    ``last_key`` is that of the last model if the run has ended with another one, and ``last_step`` the latest step of
    which there is a model.
    """

    key: str
    progress: Progress
    last_key: str | None = None
    last_step: int = 0


def newest(objects: ObjectStore, job_id: str) -> Found | None:
    """The newest intact and finite model, or checkpoint of which all parts are there; None when there is none.

    What workers stored when the run was aborted counts if all of them did, or if their parameters differ only by
    residuals: then any of them has the model.
    """
    keys = objects.list(f"runs/{job_id}/")
    if model_key(job_id) in keys:
        progress = _progress(objects, model_key(job_id))
        if progress is not None:
            key = last_key(job_id)  # stored before the model
            last: Progress | None = None
            if has_last := key in keys:
                with contextlib.suppress(ServiceError):
                    last = _progress(objects, key)
            step = progress.step if last is None else last.step
            return Found(model_key(job_id), progress, key if has_last else None, step)
    interrupted = sorted(key for key in keys if "/interrupted/" in key)
    found = [_interrupted(objects, interrupted)] if interrupted else []
    for checkpoint, slots in sorted(parts_of(keys).items(), reverse=True):
        if found and found[0] is not None and found[0].progress.step >= checkpoint.step:
            break
        parts = _parts(objects, [part_key(job_id, checkpoint, slot) for slot in sorted(slots)])
        if parts is not None and set(parts) >= set(parts[min(parts)].active):
            found.append(_finite(part_key(job_id, checkpoint, min(slots)), parts))
            if found[-1] is not None:
                break
    whole = [one for one in found if one is not None]
    return max(whole, key=lambda one: one.progress.step, default=None)


def _interrupted(objects: ObjectStore, keys: Sequence[str]) -> Found | None:
    """The model in what workers stored when the run was aborted; None if it is not in there."""
    parts = _parts(objects, keys)
    if parts is None:
        return None
    step = max(part.step for part in parts.values())
    parts = {slot: part for slot, part in parts.items() if part.step == step}
    first = parts[min(parts)]
    if set(parts) < set(first.active) and (first.common or "own rows" in first.tables):
        return None
    return _finite(keys[0], parts)


def _parts(objects: ObjectStore, keys: Sequence[str]) -> dict[int, WorkerState] | None:
    """The parts under ``keys`` by slot; None if one cannot be read."""
    try:
        parts = [WorkerState.decode(objects.get(key)) for key in keys]
    except (DecodeError, KeyError, ServiceError):
        return None
    return {part.slot: part for part in parts} or None


def _finite(key: str, parts: dict[int, WorkerState]) -> Found | None:
    progress = assembled(parts)
    return Found(key, progress, last_step=progress.step) if np.isfinite(progress.params).all() else None


def _progress(objects: ObjectStore, key: str) -> Progress | None:
    try:
        progress = Progress.decode(objects.get(key))
    except (DecodeError, KeyError):
        return None
    return progress if np.isfinite(progress.params).all() else None


def remove(objects: ObjectStore, job_id: str, *, is_known: bool) -> None:
    """Remove all objects of a run.

    ``is_known``: it ended regularly and stored no checkpoint, so that its keys are known. Else they are listed, and a
    listing costs as much as storing an object.
    """
    known = [make_key(job_id) for make_key in (model_key, last_key, start_key)]
    objects.delete(known if is_known else objects.list(f"runs/{job_id}/"))
