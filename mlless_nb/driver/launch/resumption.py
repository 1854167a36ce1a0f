"""Resuming from an ended run: reads its record, checks that the new job fits, and makes the new run's start.

The new run starts from the last parameters, so that no training is lost. If the same rows are held out, the earlier
best model is kept, and returned if the new run finds no better one.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import CommandError, DecodeError, JobError
from ...frames.names import digest_of
from ...job.algorithm import GradientAveraging, algorithm_from_json
from ...job.optimizers import Optimizer, optimizer_from_json
from ...models import FittedModel, Model, load_model, model_from_json
from ...plurals import count
from ...storage.checkpoint import Progress
from ...telemetry import record
from ...telemetry.live import LIVE
from ..run import TrainingRun
from .data_preparation import JobData

if TYPE_CHECKING:
    from ...job.job import TrainingJob

#: Fields of models that the shape of the table depends on.
SHAPING = ("rank", "biases", "k", "n_classes", "definition")
#: Most tables of a worker in a stored progress: the parameters, and the algorithm's state.
MOST_TABLES = 5


@dataclass(frozen=True)
class Earlier:
    """An ended run that another one resumes from, as read from its record.

    Attributes
    ----------
    name, status : str
    folder : Path
        Its record.
    n_steps : int
    model, optimizer, algorithm, n_workers
        Of its job; the algorithm as JSON.
    shape : tuple of int
        Of its data.
    units, held_out : str or None
        See `JobData`.
    kept_loss : float or None
        Validation loss of its returned model.
    names : str or None
        Digest of the ids or columns of its data; None if it had none.
    """

    name: str
    status: str
    folder: Path
    n_steps: int
    model: Model
    optimizer: Optimizer
    algorithm: dict[str, Any]
    n_workers: int
    shape: tuple[int, ...]
    units: str
    held_out: str | None
    kept_loss: float | None
    names: str | None = None

    def check(self, job: TrainingJob) -> None:
        """Raise JobError unless ``job`` has the same model and table shape."""
        run = f"run {self.name!r}"
        if type(job.model) is not type(self.model):
            raise JobError("model", job.model, f"{type(self.model).__name__}(...), which {run} trained")
        if job.data.shape != self.shape:
            raise JobError("data", job.data, f"of shape {self.shape}, as that of {run}; it is {job.data.shape}")
        if digest_of(job.data.names) != self.names:
            valid = f"with the ids or columns of {run}, as by datasets.ratings or table(..., like=model)"
            raise JobError("data", job.data, valid)
        table = self.model.table_shape(self.shape)
        if job.model.table_shape(job.data.shape) != table:
            ours, theirs = vars(job.model), vars(self.model)
            name = next(name for name in SHAPING if ours.get(name) != theirs.get(name))
            raise JobError(f"model.{name}", ours[name], f"{theirs[name]!r}, as in {run}")


@dataclass(frozen=True)
class Start:
    """The start of a run that resumes from an earlier one.

    Attributes
    ----------
    progress : Progress
    best_loss : float
        Validation loss of ``best``; infinite if it cannot be compared with the new run's losses.
    best : FittedModel or None
    told : list of str
        Event texts for the user.
    """

    progress: Progress
    best_loss: float = math.inf
    best: FittedModel | None = None
    told: list[str] = field(default_factory=list)

    def is_better(self, loss: float | None) -> bool:
        """Whether the earlier run's best model is better than one with this validation loss (None: unknown)."""
        return self.best is not None and (loss is None or not loss <= self.best_loss)


def summary(job: TrainingJob, data: JobData, kept_loss: float | None) -> dict[str, Any]:
    """The part of a run's record that `find` needs, as plain JSON."""
    return {
        "model": job.model.to_json(),
        "optimizer": job.optimizer.to_json(),
        "algorithm": job.algorithm.to_json(),
        "workers": job.workers,
        "shape": list(data.shape),
        "units": data.units,
        "held_out": data.held_out,
        "kept_loss": kept_loss,
        "names": digest_of(data.names),
    }


def find(run: TrainingRun | str) -> Earlier:
    """The ended run ``run``, or the newest one of that name or id, from this machine's records.

    Raises
    ------
    JobError
        If it is neither a run nor a name.
    CommandError
        If there is no such run, it is live, or it left no model.
    """
    if isinstance(run, TrainingRun):
        if run.telemetry.state.status in LIVE:
            raise CommandError(f"run {run.name!r} is live: it can be resumed once it has ended; run.stop() ends it")
        run = run.id
    if not isinstance(run, str):
        raise JobError("resume", run, "a run, or the name or the id of one")
    kept, _, folder = record.find(run)
    state, spec = kept["state"], kept.get("resume")
    name = state["name"]
    if not (folder / record.MODEL).exists():
        raise CommandError(f"run {name!r} left no model to resume from: {state['reason']}")
    if spec is None:
        raise CommandError(f"run {name!r} was recorded by an older version, which kept nothing to resume from")
    try:
        found = Earlier(
            name,
            state["status"],
            folder,
            state["step"],
            model_from_json(spec["model"]),
            optimizer_from_json(spec["optimizer"]),
            dict(spec.get("algorithm") or GradientAveraging().to_json()),
            int(spec.get("workers", 1)),
            tuple(spec["shape"]),
            spec["units"],
            spec["held_out"],
            spec["kept_loss"],
            spec.get("names"),
        )
        found.model.table_shape(found.shape)
        if found.kept_loss is not None and not math.isfinite(found.kept_loss):
            raise ValueError(f"kept_loss {found.kept_loss!r}")
    except (JobError, KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise CommandError(f"the record of run {name!r} is damaged ({type(error).__name__}: {error})") from None
    return found


def start_of(earlier: Earlier, data: JobData) -> Start:
    """The start of a run of ``data``'s job that resumes from ``earlier``."""
    told = []
    progress = _progress(earlier, data)
    if progress is None:
        last = earlier.folder / record.LAST
        model = _loaded(earlier, last if last.exists() else earlier.folder / record.MODEL)
        progress = Progress(data.table_of(model), n_steps=earlier.n_steps)
        if earlier.units != data.units:
            told.append(f"The data are in other units than those of {earlier.name!r}: its model is converted")
    progress, said = _with_state(earlier, data, progress)
    best_loss, best = math.inf, None
    if data.held_out is not None and data.held_out != earlier.held_out:
        said.append(f"Other rows are held out than in {earlier.name!r}, which may have been trained on them")
    elif data.held_out is not None and earlier.kept_loss is not None:
        best_loss, best = earlier.kept_loss, _loaded(earlier, earlier.folder / record.MODEL)
    after = f", {count(progress.n_steps, 'step')} so far" if progress.n_steps else ""
    return Start(progress, best_loss, best, [f"Goes on from {earlier.name!r}{after}", *told, *said])


def _progress(earlier: Earlier, data: JobData) -> Progress | None:
    """The recorded progress of ``earlier``, None if it cannot be used without conversion."""
    shape = data.job.model.table_shape(data.shape)
    if earlier.units != data.units:
        return None
    try:
        most_bytes = 4 * (MOST_TABLES * earlier.n_workers * math.prod(shape) + data.shape[0] + 64)
        progress = Progress.decode(record.read_progress(earlier.folder, most_bytes))
    except (OSError, DecodeError):
        return None
    tables = (progress.params, *progress.state)
    is_usable = all(table.shape == shape and np.isfinite(table).all() for table in tables)
    return progress if is_usable else None


def _with_state(earlier: Earlier, data: JobData, progress: Progress) -> tuple[Progress, list[str]]:
    """``progress`` with the state that the new job's workers can use, and event texts on it."""
    new, old, factor = data.job.optimizer, earlier.optimizer, progress.rate_factor
    algorithm = data.job.algorithm
    is_alike = type(new) is type(old) and new.state_names == old.state_names
    n_tables = len(algorithm.state_names(new)) * (data.job.workers if algorithm.is_state_local else 1)
    if new.learning_rate != old.learning_rate or not is_alike or data.job.schedule != "auto":
        factor = 1.0
    said = []
    if factor < 1.0:
        said.append(
            f"The learning rate goes on at {factor:.2g} of {new.learning_rate:g}, to which it had been cut; "
            "a job with another learning rate begins uncut"
        )
    goes_on = algorithm.goes_on_from(earlier.algorithm)
    if is_alike and goes_on and len(progress.state) == n_tables:
        return dataclasses.replace(progress, rate_factor=factor), said
    if is_alike and (not goes_on or progress.state):
        was = f"{algorithm_from_json(earlier.algorithm)}, {count(earlier.n_workers, 'worker')}"
        said.append(f"The workers begin without state: that of {earlier.name!r} was of {was}")
    elif algorithm.state_names(new):
        why = f"that of {earlier.name!r} ({earlier.status}) was not kept" if is_alike else f"it was {old} before"
        said.append(f"The optimiser begins without state: {why}")
    return dataclasses.replace(progress, state=(), n_updates=0, rate_factor=factor), said


def _loaded(earlier: Earlier, path: Path) -> FittedModel:
    try:
        return load_model(path)
    except (OSError, DecodeError) as error:
        raise CommandError(f"the model of run {earlier.name!r} cannot be read: {error}") from None
