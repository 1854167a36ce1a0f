"""What of a job can only be checked with its data at hand, before anything is launched."""

from __future__ import annotations

import itertools

from .data.dataset import Dataset
from .errors import JobError
from .job import TrainingJob
from .mind.stop import SMOOTHED_STEPS


def check_target(job: TrainingJob, train_set: Dataset, validation_set: Dataset | None) -> None:
    """Raise `JobError` when the untrained model meets the job's target already: it would end at once, untrained."""
    target = job.stop_rules.target
    if target is None:
        return
    shape, mean = train_set.shape, train_set.mean
    params = job.model.init(shape, mean, job.seed)
    judged = validation_set or train_set
    # Without held-out rows the target is for the training loss, of which a sample says enough.
    most = None if validation_set is not None else SMOOTHED_STEPS
    sums = [
        (job.model.evaluate(params, minibatch, mean), minibatch.n)
        for minibatch in itertools.islice(judged.minibatches(job.minibatch, None), most)
    ]
    loss = job.model.metric_value(sum(total for total, _ in sums), sum(count for _, count in sums))
    if loss <= target:
        raise JobError("stop.target", target, f"below {loss:.4f}, the {job.model.metric} before any training")
