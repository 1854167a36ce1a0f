"""``mlless_nb.train`` starts a run; `warn`, of a job whose workers are far too many, comes before every start.

`foresee` estimates what a run takes where no view does that.
"""

from __future__ import annotations

import warnings

from .driver import runs
from .driver.run import TrainingRun
from .errors import JobWarning
from .job.job import TrainingJob

#: Up to so many workers start sooner than the check would take, some tenths of a second, and nobody is warned.
MANY = 16


def train(job: TrainingJob, resume: TrainingRun | str | None = None) -> TrainingRun:
    """Start training and return at once with a handle on the run.

    The job is checked before anything is launched or billed; if it has more than 16 workers, and fewer would be both
    quicker and far cheaper, a `JobWarning` says so. With ``detach`` the run is driven by a process of its own, and goes
    on when this one ends; else it ends with this one, in good order.

    Parameters
    ----------
    job : TrainingJob
    resume : TrainingRun or str, optional
        An ended run to resume from, or the name or id of one on this machine. The new run starts from its last
        parameters and, if the optimiser is of the same kind, its state. The job must have the same model on data of the
        same shape; everything else may differ. Steps, epochs, seconds and dollars of the new run begin at 0. On the
        same held-out rows its model is never worse than the earlier run's.

    Returns
    -------
    TrainingRun

    Raises
    ------
    JobError
        If a field of the job is invalid, the budget does not pay for one step, or the target is met already.
    ServiceError
        If Redis, RabbitMQ, the object storage or the backend does not answer.
    CommandError
        If a live run has the job's name, or ``resume`` is live, unknown or left no model.
    """
    warn(job)
    return runs.train(job, resume)


def warn(job: TrainingJob, stacklevel: int = 2) -> list[str]:
    """Warn of what looks wrong with ``job``, which is about to be started; returns the `doubts`.

    ``stacklevel`` is that of `warnings.warn` if the caller gave the warning itself: 2 is the line that has called it.
    """
    told = doubts(job)
    for doubt in told:
        warnings.warn(doubt, JobWarning, stacklevel=stacklevel + 1)
    return told


def doubts(job: TrainingJob) -> list[str]:
    """What looks wrong with ``job`` before it is started, a sentence each: as in a dry run, of its workers only."""
    if not isinstance(job, TrainingJob) or (job.workers or 0) <= MANY:
        return []
    from .adviser import foresight  # takes a tenth of a second to import

    return foresight.doubts_of_workers(job)


def foresee(run: TrainingRun) -> None:
    """Put what ``run`` is expected to take into its state, soon; all who attach to it show that."""
    from .adviser import foresight

    foresight.announce(run)
