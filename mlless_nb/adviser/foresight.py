"""The estimate of a job: measured here, quickly beside the start of a run, or thoroughly where nothing is started."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import weakref
from typing import TYPE_CHECKING

from ..data.csr import Csr
from ..data.foreseen import ForeseenRows
from ..data.ratings import Ratings
from ..data.stream import CsrStream
from ..job.execution import WORKERS
from ..job.job import TrainingJob
from .advice import WORKERS as NUMBERS
from .advice import Advice, as_run, compare, constants_for
from .descent import Descent, descend, planned
from .estimate import Estimate, LinearEstimate, estimate
from .probe import probe, probe_head
from .sizes import Sizes
from .stateless_estimate import stateless_estimate
from .stored import measured

if TYPE_CHECKING:
    from ..driver.run import TrainingRun

#: Seconds of measuring, and least share of the rows, beside a run that starts.
QUICK_S, QUICK_SAMPLE = 0.06, 0.0
#: Most rows of a run that is measured so: taking a sample of them takes longer the more there are.
QUICK_ROWS = 5_000_000
#: What is said of stored files whose rows functions have not counted yet.
UNCOUNTED = "not known before functions have counted the rows; a dry run estimates it from the first ones"
#: Epochs between the two points that an epoch's figures are computed from, at first.
EPOCHS = 100.0
#: Estimates at most, each about the epochs of the one before: the more epochs, the fewer checkpoints there are in one.
ROUNDS = 4
_announced: weakref.WeakSet[TrainingRun] = weakref.WeakSet()
_announcing = threading.Lock()


def quick(job: TrainingJob) -> Estimate | None:
    """The estimate of ``job`` for at most some tenths of a second of one core; None if that is not possible.

    What a target takes is left open. Of rows in a file the first ones are measured, and reading them from text can take
    a second. There is no quick estimate before functions have counted the rows of stored files. Functions that live for
    a part of a step are not measured.
    """
    if job.is_stored:
        return None
    if job.execution != WORKERS:
        return stateless_estimate(job, planned(job, job.n_minibatches))
    if isinstance(job.data, CsrStream):
        sizes = probe_head(job, job.data, QUICK_S)
    elif isinstance(job.data, (Csr, Ratings)) and job.data.n <= QUICK_ROWS:
        sizes = probe(job, QUICK_S, QUICK_SAMPLE)
    else:
        return None
    if sizes is None:
        return None
    return estimated(job, sizes)


def doubts_of_workers(job: TrainingJob) -> list[str]:
    """What `quick` finds wrong with the number of workers, a sentence each; none if that is not possible."""
    with contextlib.suppress(Exception):  # the start of the run says what is wrong
        ahead = quick(job)
        return [each for each in ahead.warnings if each.startswith("workers=")] if ahead is not None else []
    return []


def thorough(job: TrainingJob) -> tuple[Estimate, Advice]:
    """The estimate and the whole advice for ``job``; takes about a second, and up to ten more with a target.

    Raises
    ------
    JobError
        The job cannot be trained on its data.
    """
    sizes = probe(job)
    most, target = planned(job, sizes.n_minibatches), job.stop_rules.target
    descent = descend(job, sizes, most) if target is not None else None
    is_lasting = job.execution == WORKERS
    ahead = estimated(job, sizes, descent) if is_lasting else stateless_estimate(job, most, descent)
    return ahead, compare(job, dataclasses.replace(sizes, epochs=ahead.epochs), "as above")


def of_stored(job: TrainingJob, rows: ForeseenRows) -> tuple[TrainingJob, Estimate, Advice]:
    """`thorough` for ``job`` on stored files, whose first ``rows`` stand for all; a target is left open.

    Returns the job with everything chosen as for so many rows, its estimate, and the advice.

    Raises
    ------
    JobError
        The job cannot be trained on such rows, or they are too few to be measured.
    """
    job, sizes = measured(job, rows)
    if job.execution == WORKERS:
        ahead = estimated(job, sizes)
    else:
        ahead = stateless_estimate(job, planned(job, sizes.n_minibatches))
    return job, ahead, compare(job, dataclasses.replace(sizes, epochs=ahead.epochs), "as above")


def estimated(job: TrainingJob, sizes: Sizes, descent: Descent | None = None) -> Estimate:
    """The estimate of ``job`` of these sizes; ``descent``: what a sample has shown of the target."""
    most, epochs = planned(job, sizes.n_minibatches), EPOCHS
    for _ in range(ROUNDS):
        ahead = estimate(job, estimates_of(job, sizes, epochs), most, descent)
        if ahead.epochs <= 2 * epochs:
            break
        epochs = ahead.epochs / 2
    return ahead


def estimates_of(job: TrainingJob, sizes: Sizes, epochs: float = EPOCHS) -> dict[int, LinearEstimate]:
    """``job`` with its own and with other numbers of workers, where it runs, for about 2 ``epochs``."""
    most, known = max(job.n_minibatches // job.local_steps, 1), constants_for(job)
    once, twice = (dataclasses.replace(sizes, epochs=each) for each in (epochs, 2 * epochs))
    counts = sorted({job.workers, *(n for n in NUMBERS if n <= most)})
    return {
        n: LinearEstimate.through(as_run(job, n, once, known), as_run(job, n, twice, known), epochs) for n in counts
    }


def announce(run: TrainingRun) -> threading.Thread | None:
    """Compute the estimate of a live ``run`` in a thread beside it, and put its line into the state that views show.

    Every view calls it, and so does the process of a run that outlives its notebook: whoever attaches to the run has
    that line with its state, for here the job would come with all its rows. A run has one estimate, however often it is
    shown. Where functions have yet to count the rows, the line says so.

    Nothing of it is billed, and a failure is not told: the run does not depend on it.
    """
    state = run.telemetry.state
    with _announcing:
        if run in _announced or state.estimate or not state.is_live:
            return None
        _announced.add(run)

    def work() -> None:
        with contextlib.suppress(Exception):
            # not `run.job`, which fetches it; a run that was attached to is estimated by its own process
            if (job := run._job) is None or run._find_job is not None:
                return
            ahead = quick(job)
            if ahead is not None or job.is_stored:
                run.telemetry.update(estimate=UNCOUNTED if ahead is None else ahead.line)

    thread = threading.Thread(target=work, name=f"mlless-estimate-{run.name}", daemon=True)
    thread.start()
    return thread
