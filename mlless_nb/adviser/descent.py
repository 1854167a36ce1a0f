"""How many epochs a job takes: by its stop rules, or until a replica here reaches the target on a sample of rows."""

from __future__ import annotations

import dataclasses
import math
import time
from typing import NamedTuple

from ..data.minibatches import Minibatch
from ..data.prepare import Manifest
from ..errors import JobError
from ..exchange.stats import NO_STATS
from ..job.job import TrainingJob
from ..job.limits import Stop
from ..job.optimizers import FTRL
from ..job.rate_schedule import Schedule
from ..storage.objects import MemoryObjects
from ..worker.minibatch_loader import MinibatchFeed
from .alone import packed, part_of, replica_of
from .sizes import Sizes

#: Least share of the training rows on which the epochs to a target are estimated: LambdaML, section 5.3.
SAMPLE = 0.1
#: Seconds that the estimate may take, and the epochs that it should have time for.
SAMPLE_S, SAMPLE_EPOCHS = 10.0, 30.0
#: Evaluations of the held-out rows in an epoch of the sample.
EVALUATIONS = 4
#: The error if the sample does not reach the target.
NOT_REACHED = "a loss that {1} reach within {0:g} s here; or give the epochs: advise(job, epochs=20)"


class Descent(NamedTuple):
    """What training on a sample of the rows has shown.

    Attributes
    ----------
    epochs : float or None
        Passes over the sample until its loss was at the target; None if it was not.
    lowest : float
        The lowest loss that was seen, in the model's metric; infinite if none was.
    passed : float
        Passes over the sample in all.
    share : float
        Of the training rows that are in the sample.
    is_settled : bool
        Whether the loss no longer fell.
    """

    epochs: float | None
    lowest: float
    passed: float
    share: float
    is_settled: bool

    @property
    def rows(self) -> str:
        """The sample in words."""
        return "all rows" if self.share >= 1.0 else f"{100 * self.share:.0f} % of the rows"


def planned(job: TrainingJob, n_minibatches: int) -> float | None:
    """Passes over the training rows that the stop rules of ``job`` allow at most; None if they do not say."""
    stop = job.stop_rules
    rules = [] if stop.epochs is None else [float(stop.epochs)]
    if stop.steps is not None:
        rules.append(stop.steps * job.workers * job.local_steps / n_minibatches)
    return min(rules, default=None)


def epochs_of(job: TrainingJob, sizes: Sizes) -> tuple[float, str]:
    """The epochs that the stop rules of ``job`` mean, and how they were found; a target takes some seconds.

    Raises
    ------
    JobError
        If there is only a target, and the sample does not reach it.
    """
    most, stop = planned(job, sizes.n_minibatches), job.stop_rules
    if stop.target is not None:
        found = descend(job, sizes, most)
        if found.epochs is not None:
            return found.epochs, f"estimated: the target {stop.target:g} was reached on {found.rows}"
        if most is None:
            raise JobError("stop.target", stop.target, NOT_REACHED.format(SAMPLE_S, found.rows))
    if most is not None:
        return most, _most_from(job)
    return dataclasses.replace(job, stop=Stop(), budget=None).stop_rules.epochs or 1.0, "the default's most"


def _most_from(job: TrainingJob) -> str:
    """Where the most epochs of ``job`` come from."""
    if not job.stop.is_empty:
        return "the stop rule"
    return "at most, or until the loss has settled" if job.ends_settled else "the default"


def descend(job: TrainingJob, sizes: Sizes, most: float | None = None) -> Descent:
    """Train on a sample of the rows until the target, for ``most`` epochs, or as long as `SAMPLE_S`.

    The sample is as large as the time allows. An epoch of it has as many steps as one of the whole: its minibatches
    are smaller by the sample's share. The learning rate is cut as in a run.
    """
    epoch_s = sizes.n_minibatches * sizes.single_minibatch_s
    epochs = min(most or math.inf, SAMPLE_EPOCHS)
    share = min(max(SAMPLE_S / max(epochs * epoch_s, 1e-9), SAMPLE), 1.0)
    size = max(round(share * job.minibatch * job.workers), 1)
    objects = MemoryObjects()
    sample = part_of(job, share)
    sample = dataclasses.replace(sample, minibatch=min(size, sample.n_train))
    part, manifest, validation = packed(sample, objects)
    optimizer = part.optimizer
    if not isinstance(optimizer, FTRL) and optimizer.lazy == "auto":  # smaller minibatches touch fewer rows
        part = dataclasses.replace(part, optimizer=dataclasses.replace(optimizer, lazy=sizes.is_lazy))
    replica, feed = replica_of(part, manifest, 1), MinibatchFeed(objects, manifest)
    held_out = _all(objects, validation) if validation is not None else []
    n, h, position, step = manifest.n_minibatches, part.local_steps, 0, 0
    evaluate_every = max(n // (EVALUATIONS * h), 1)
    schedule, lowest, target = Schedule(job.schedule), math.inf, job.stop_rules.target or 0.0
    until = time.monotonic() + SAMPLE_S
    try:
        while time.monotonic() < until and (most is None or position < most * n) and not schedule.is_settled:
            step += 1
            taken = [feed.get((position + i) % n) for i in range(h)]
            loss = replica.make(taken, step, 1)
            replica.apply([0], [], NO_STATS)
            replica.finish(step, 1)
            position += h
            if step % evaluate_every:
                continue
            judged = held_out or taken
            value = sum(map(replica.evaluate, held_out)) if held_out else loss
            shown = replica.model.metric_value(value, sum(minibatch.n for minibatch in judged))
            lowest = min(lowest, shown)
            if shown <= target:
                return Descent(position / n, lowest, position / n, share, False)
            replica.rate_factor = schedule.observe(step, position / n, shown, has_emerged=replica.has_emerged)
    finally:
        feed.close()
    return Descent(None, lowest, position / n, share, schedule.is_settled)


def _all(objects: MemoryObjects, manifest: Manifest) -> list[Minibatch]:
    """Every minibatch of ``manifest``."""
    feed = MinibatchFeed(objects, manifest)
    found = [feed.get(index) for index in range(manifest.n_minibatches)]
    feed.close()
    return found
