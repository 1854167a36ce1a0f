"""Prepares a job's data for the workers: splits it, checks the target against it, packs it into the object storage."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ...data.dataset import Dataset, Owners
from ...data.prepare import Manifest, most_bundles, pack_key, packed, write
from ...data.ratings import Ratings
from ...data.read_plan import most_gets
from ...data.stored_files import StoredRows
from ...errors import JobError
from ...job.baseline import baseline_loss
from ...job.defaults import resolved
from ...job.job import TrainingJob
from ...job.partitioning import is_by_user
from ...job.stop_rules import SMOOTHED_STEPS
from ...job.units import units_of
from ...models import FittedModel
from ...preparation.run import Preparation
from ...storage.objects import ObjectStore


class JobData:
    """Training and held-out rows of one job, until they are packed.

    Parameters
    ----------
    job : TrainingJob
    preparation : Preparation, optional
        Packs rows of stored files.

    Attributes
    ----------
    job : TrainingJob
        With l2 penalty and learning rate chosen where these were left open.
    shape : tuple of int
    mean : float
        Of the training rows, in the units of training; see `Dataset`.
    held_out_gets : int
        Most requests that a worker needs to read its share of the held-out rows.
    baseline_loss : float or None
        Of the best constant prediction on the held-out rows, see `mlless_nb.job.baseline`.
    owners : int32 (n_users,) or None
        The shard of each user if users are sharded.
    held_out : str or None
        Fingerprint of the held-out rows.
    names : RatingNames, TableNames or None
        The user's ids or columns, if the data came with some.
    """

    def __init__(self, job: TrainingJob, preparation: Preparation | None = None) -> None:
        self._preparation = preparation
        self._train_set, self._validation_set = _split(job)
        self.baseline_loss = baseline_loss(job.model, self._train_set, self._validation_set)
        self.held_out = self._validation_set.fingerprint() if self._validation_set is not None else None
        self.names = self._train_set.names
        self._units = units_of(job.model, self._train_set)
        self._train_set = self._units.apply(self._train_set)
        if self._validation_set is not None:
            self._validation_set = self._units.apply(self._validation_set)
        self.job = self._job = job = resolved(job, self._train_set)
        self.shape, self.mean = self._train_set.shape, self._train_set.mean
        self._kept = job.model.kept_of(self._train_set)
        self.owners: Owners | None = None
        if is_by_user(job) and isinstance(self._train_set, Ratings):
            if self._train_set.n_raters < job.workers:
                most = f"at most {self._train_set.n_raters}, the users with ratings that are not held out"
                raise JobError("workers", job.workers, most)
            self.owners = self._train_set.owners(job.workers)
        self._packed: dict[str, Manifest] = {}  # by key
        self._to_prepare: list[tuple[StoredRows, int | None]] = []  # with the seeds of their order
        self._n_shards = job.workers if self.owners is not None else 1
        held_out = self._validation_set
        self.held_out_gets = 0
        if held_out is not None:
            n_minibatches = -(-held_out.n // job.minibatch) + self._n_shards - 1
            self.held_out_gets = most_gets(n_minibatches, held_out.most_bytes, job.workers)

    @property
    def units(self) -> str:
        """A string that is equal if parameters are comparable: the units of training, and the model's mean."""
        return f"{self._units.key} {self.mean!r}"

    def table_of(self, model: FittedModel) -> NDArray[np.float32]:
        """The parameters of ``model``, which is in the data's own units, converted to the units of training."""
        return self.job.model.table_of(self._units.adopt(model))

    @cached_property
    def start(self) -> NDArray[np.float32] | None:
        """Initial parameters that depend on the rows, see `Model.start_of`; to be asked for before `pack`."""
        return self.job.model.start_of(self._train_set, self.job.seed)

    @property
    def first(self) -> NDArray[np.float32]:
        """The initial parameters."""
        start = self.start
        return start if start is not None else self.job.model.first(self.shape, self.mean, self.job.seed)

    def check_target(self, start: NDArray[np.float32] | None = None) -> None:
        """Raise JobError if the parameters ``start`` (None: the initial ones) already meet the target."""
        job, target = self._job, self._job.stop_rules.target
        if target is None or self._stored:  # stored rows would be read only for this; the first evaluation ends the run
            return
        params = self.first if start is None else start
        judged = self._validation_set or self._train_set
        # Without held-out rows the target is for the training loss, for which a sample is enough.
        most = None if self._validation_set is not None else SMOOTHED_STEPS
        sums = [
            (job.model.evaluate(params, minibatch, self.mean), minibatch.n)
            for minibatch in itertools.islice(judged.minibatches(job.minibatch, None), most)
        ]
        total = sum(total for total, _ in sums) * judged.deviation**2
        loss = job.model.metric_value(total, sum(count for _, count in sums))
        if loss <= target:
            when = "before any training" if start is None else "of the model that it resumes from"
            raise JobError("stop.target", target, f"below {loss:.4f}, the {job.model.metric} {when}")

    def restored(self, model: FittedModel | None) -> FittedModel | None:
        """``model``, fitted in the units of training, in the data's own, with what it keeps of the data."""
        if model is None:
            return None
        model = self._units.restore(model)
        if self._kept:
            model = type(model)({**model.params, **self._kept})
        return model.with_names(self.names)

    def n_puts(self, objects: ObjectStore) -> int:
        """The most objects that `pack` still has to write."""
        n_puts = 0
        for dataset in (self._train_set, self._validation_set):
            if dataset is None:
                continue
            size, seed = self._job.minibatch, self._order_seed(dataset)
            found = packed(dataset, size, seed, objects, self.owners)
            if found is None and self._preparation is not None and isinstance(dataset, StoredRows):
                self._to_prepare.append((dataset, seed))
            elif found is None:
                n_puts += most_bundles(dataset, size, self._n_shards)
            else:
                self._packed[found.key] = found
        return n_puts

    @property
    def _stored(self) -> bool:
        return any(isinstance(each, StoredRows) for each in (self._train_set, self._validation_set))

    @property
    def prepared_nusd(self) -> int:
        """What functions have spent on preparing the data so far, nano-dollars."""
        return self._preparation.spent_nusd if self._preparation is not None else 0

    @property
    def preparing_nusd(self) -> int:
        """`prepared_nusd`, and the least amount that is still to be spent, once `n_puts` was called."""
        if self._preparation is None:
            return 0
        left = (self._preparation.left_nusd(rows.source.spec.functions) for rows, _ in self._to_prepare)
        return self._preparation.spent_nusd + max(left, default=0)

    def prepare(self, kept_nusd: int) -> None:
        """Have functions pack the rows of stored files, except what is packed; ``kept_nusd`` is for the training."""
        if self._preparation is not None and self._to_prepare:
            self._preparation.keep(kept_nusd)
            self._packed |= self._preparation.pack(self._to_prepare, self._job.minibatch)

    def _manifest(self, dataset: Dataset, objects: ObjectStore) -> Manifest:
        """The manifest of ``dataset``, which is packed now unless `n_puts` found it packed."""
        size, seed = self._job.minibatch, self._order_seed(dataset)
        found = self._packed.get(pack_key(dataset, size, seed, self.owners))
        return found or write(dataset, size, seed, objects, self.owners)

    def _order_seed(self, dataset: Dataset) -> int | None:
        """Training rows are shuffled by the job's seed; held-out rows stay as they are."""
        return self._job.seed if dataset is self._train_set else None

    def pack(self, objects: ObjectStore, is_stopped: Callable[[], bool]) -> tuple[Manifest, Manifest | None] | None:
        """Store the minibatches and free the rows; None if a stop was requested in the meantime."""
        job = self._job
        manifest = self._manifest(self._train_set, objects)
        if is_stopped():
            return None
        validation = self._manifest(self._validation_set, objects) if self._validation_set is not None else None
        n_shares = manifest.n_minibatches // job.local_steps
        if n_shares < job.workers:
            raise JobError("workers", job.workers, f"at most {n_shares}, the minibatches by local steps")
        del self._train_set, self._validation_set  # these copies of the data are no longer needed
        return manifest, validation


def _split(job: TrainingJob) -> tuple[Dataset, Dataset | None]:
    """Training and held-out rows of ``job``."""
    if isinstance(job.validation, (int, float)):
        return job.data.split(job.validation, job.seed)
    return job.data, job.validation
