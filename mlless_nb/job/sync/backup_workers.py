"""Synchronisation with backup workers: a step waits for the first k updates, and drops later ones. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ...errors import JobError
from ...validation import check_choice, check_positive_integer, specification
from ..algorithm import GradientAveraging
from ..optimizers import SGD
from .base import Sync, register_sync

#: What `DBW.gain` may be.
GAINS = ("estimated", "paper", "blind")


class FirstUpdates(Sync):
    """Base of the protocols in which each step applies the mean of its first k updates.

    All replicas apply the same k updates, so they stay equal. A worker whose update comes later finishes it, tells
    when, applies the updates of the steps that it missed, and goes on at the newest step. A step after an evaluation
    waits for all workers, since each of them evaluates a part of the held-out rows.

    This is PsW of the DBW paper (section 2). In its PsI a late worker is interrupted instead, in its Pl it takes the
    model from a server when it is ready. Neither is offered: a minibatch's gradient is one call into compiled code,
    which nothing can interrupt safely, and without a server there is no model to take.
    """

    counts_all: ClassVar[bool] = False

    @property
    def measures_gradients(self) -> bool:
        """Whether k depends on the workers' gradients, so that workers measure them."""
        return False

    @property
    def policy(self) -> str:
        """See `Sync`."""
        return "quorum"

    def first_quorum(self, n_workers: int) -> int:
        """k of the first steps, before the supervisor announces another one."""
        return n_workers

    def check(self, job: Any) -> None:
        """See `Sync`."""
        for field, holds, valid in (
            ("aggregate", job.aggregate == "mean", "'mean'"),
            ("codec", job.codec == "float32", "'float32'"),
            ("algorithm", isinstance(job.algorithm, GradientAveraging), "GradientAveraging()"),
        ):
            if not holds:
                raise JobError(field, getattr(job, field), f"{valid} with {self}, which drops late updates")
        if job.scale_in.enabled:
            raise JobError("scale_in", job.scale_in, f"ScaleIn.off() with {self}: it predicts steps that wait for all")


@register_sync
@specification
@dataclass(frozen=True)
class BackupWorkers(FirstUpdates):
    """Every step applies the first ``k`` updates; the other workers are backup for those that are slow.

    Parameters
    ----------
    k : int
        The number of updates that a step waits for, 1 to the number of workers. As workers are removed by hand, it is
        at most the number of those that stay.

    References
    ----------
    Chen et al., "Revisiting distributed synchronous SGD" (2016); Xu, Neglia and Sebastianelli, "Dynamic backup workers
    for parallel machine learning", section 1.
    """

    k: int
    kind: ClassVar[str] = "backup-workers"
    form: ClassVar[str] = "BackupWorkers(k)"

    def __post_init__(self) -> None:
        check_positive_integer("BackupWorkers.k", self.k)

    def first_quorum(self, n_workers: int) -> int:
        """See `FirstUpdates`."""
        return min(self.k, n_workers)

    def check(self, job: Any) -> None:
        """See `Sync`."""
        super().check(job)
        if self.k > job.workers:
            raise JobError("BackupWorkers.k", self.k, f"at most {job.workers}, the number of workers")

    def __str__(self) -> str:
        return f"backup workers, k = {self.k}"


@register_sync
@specification
@dataclass(frozen=True)
class DBW(FirstUpdates):
    """Dynamic backup workers: every step waits for the number of updates with the largest gain per second.

    The supervisor estimates, for each k, the decrease of the loss by a step with k updates and the time until k have
    arrived; see `mlless_nb.supervisor.policy.backup_workers`. The estimates are those of plain SGD.

    Parameters
    ----------
    gain : {"estimated", "paper", "blind"}
        "paper" estimates the gain by the paper's formulas to the letter. By default the estimated smoothness of the
        loss is bounded (`mlless_nb.supervisor.policy.gain`), a rise of the loss counts only beyond its noise
        (`mlless_nb.supervisor.policy.loss_rise`), k itself is the gain while none is known or positive, older round
        trips count less (`mlless_nb.supervisor.policy.round_times`), and the first steps wait for half of the workers
        instead of all: their round trips are not known yet. "blind" always takes k for the gain; it measures no
        gradients.

    References
    ----------
    Xu, Neglia and Sebastianelli, "Dynamic backup workers for parallel machine learning", sections 3 and 4.
    """

    gain: str = "estimated"
    kind: ClassVar[str] = "dbw"
    form: ClassVar[str] = "DBW()"

    def __post_init__(self) -> None:
        check_choice("DBW.gain", self.gain, GAINS)

    @property
    def measures_gradients(self) -> bool:
        """See `FirstUpdates`."""
        return self.gain != "blind"

    def first_quorum(self, n_workers: int) -> int:
        """See `FirstUpdates`. A variance needs two updates."""
        return n_workers if self.gain != "estimated" else max(n_workers // 2, min(n_workers, 2))

    def check(self, job: Any) -> None:
        """See `Sync`."""
        super().check(job)
        if self.measures_gradients and not isinstance(job.optimizer, SGD):
            name = type(job.optimizer).__name__ if job.optimizer is not None else "the default optimiser"
            raise JobError("sync", job.sync, f"DBW(gain='blind') with {name}: the gain of an SGD step is estimated")

    def __str__(self) -> str:
        return "DBW" if self.gain == "estimated" else f"DBW, gain {self.gain!r}"


@register_sync
@specification
@dataclass(frozen=True)
class AdaSync(FirstUpdates):
    """Every step waits for more updates the lower the loss is.

    Parameters
    ----------
    first : int
        The number of updates that the first step waits for.

    References
    ----------
    Dutta et al., "Slow and stale gradients can win the race" (2021), as far as the DBW paper describes it; see
    `mlless_nb.supervisor.policy.backup_workers.FallingLoss`.
    """

    first: int = 1
    kind: ClassVar[str] = "adasync"
    form: ClassVar[str] = "AdaSync()"

    def __post_init__(self) -> None:
        check_positive_integer("AdaSync.first", self.first)

    def first_quorum(self, n_workers: int) -> int:
        """See `FirstUpdates`."""
        return min(self.first, n_workers)

    def check(self, job: Any) -> None:
        """See `Sync`."""
        super().check(job)
        if self.first > job.workers:
            raise JobError("AdaSync.first", self.first, f"at most {job.workers}, the number of workers")

    def __str__(self) -> str:
        return "AdaSync" if self.first == 1 else f"AdaSync from k = {self.first}"
