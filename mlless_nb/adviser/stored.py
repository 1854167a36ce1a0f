"""A job on stored files, measured by their first rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..data.foreseen import ForeseenRows, foreseen
from ..data.spans import Files
from ..data.stored_files import StoredFiles
from ..driver.rehearsal import rehearse
from ..errors import JobError
from ..job.job import TrainingJob
from .probe import STEPS_S, probe_head
from .sizes import Sizes

if TYPE_CHECKING:
    from ..driver.run import TrainingRun


def rehearsed(job: TrainingJob, resume: TrainingRun | str | None = None) -> tuple[TrainingJob, ForeseenRows | None]:
    """See `rehearse`, which checks and chooses; and the first rows of stored data, None if the data are here.

    Raises
    ------
    DataError, JobError, ServiceError, CommandError
        Those of `mlless_nb.train`.
    """
    seen: list[ForeseenRows] = []

    def look(files_of: Callable[[str], Files]) -> None:
        if isinstance(job.data, StoredFiles):
            seen.append(foreseen(job.data, files_of))

    return rehearse(job, resume, look), seen[0] if seen else None


def measured(job: TrainingJob, rows: ForeseenRows) -> tuple[TrainingJob, Sizes]:
    """``job`` with everything chosen as for so many ``rows``, and its sizes; the epochs are left open.

    Raises
    ------
    JobError
        The job cannot be trained on such rows, or they are too few to be measured.
    """
    # of held-out rows it only matters that there are some
    validation = rows if isinstance(job.validation, StoredFiles) else job.validation
    job = dataclasses.replace(job, data=rows, validation=validation)
    sizes = probe_head(job, rows, STEPS_S)
    if sizes is None:
        most_rows = rows.n_head // job.local_steps
        a_step = "" if job.local_steps == 1 else f" by {job.local_steps} local steps"
        raise JobError(
            "minibatch", job.minibatch, f"at most {most_rows}, the first rows{a_step}, for them to be measured"
        )
    return job, sizes
