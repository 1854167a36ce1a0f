"""A job on stored files, measured by their first rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from ..data.foreseen import ForeseenRows, foreseen
from ..data.spans import Files
from ..data.stored_files import StoredFiles
from ..driver.rehearsal import rehearse
from ..errors import JobError
from ..job.job import TrainingJob
from .probe import STEPS_S, probe_head
from .sizes import Sizes


def first_rows(job: TrainingJob) -> ForeseenRows:
    """The first rows of the stored files of ``job``, which is checked as `mlless_nb.train` does.

    Raises
    ------
    DataError, JobError, ServiceError
        Those of `mlless_nb.train`.
    """
    seen: list[ForeseenRows] = []

    def look(files_of: Callable[[str], Files]) -> None:
        assert isinstance(job.data, StoredFiles)
        seen.append(foreseen(job.data, files_of))

    rehearse(job, look=look)
    return seen[0]


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
