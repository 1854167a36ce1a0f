"""Asynchronous parallel. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from ...errors import JobError
from ...validation import check_flag, specification
from .base import Sync, register_sync

#: Steps that a worker may be ahead of the slowest one: what is published is kept in the store until all have read it.
MOST_AHEAD = 16


@register_sync
@specification
@dataclass(frozen=True)
class ASP(Sync):
    """Asynchronous parallel: workers do not wait for each other, at a learning rate of ``rate / sqrt(epoch)``.

    Every worker publishes its update and applies its peers' as they arrive. Updates commute, so none is lost: at the
    end each worker waits for those that are missing, and all replicas are equal up to rounding. Only a worker that is
    16 steps ahead of another one waits, with ``shared``, too; and all wait before a checkpoint.

    Two runs differ, because the model depends on the workers' timing.

    Parameters
    ----------
    shared : bool
        Keep one model in the store instead, as SIREN does: every worker reads it, takes a whole step (its update is not
        divided by the number of workers) and writes it back. The last write wins, so the updates of others in between
        are lost.

    References
    ----------
    LambdaML, section 3.2.4: asynchrony as in SIREN, with a learning rate that falls by ``1 / sqrt(epoch)``.
    """

    shared: bool = False
    kind: ClassVar[str] = "asp"
    form: ClassVar[str] = "ASP()"

    def __post_init__(self) -> None:
        check_flag("ASP.shared", self.shared)

    @property
    def staleness(self) -> int:  # type: ignore[override]
        """See `Sync`."""
        return MOST_AHEAD

    @property
    def policy(self) -> str:
        """See `Sync`."""
        return "shared-model" if self.shared else "stale"

    def rate_factor(self, epoch: float) -> float:
        """``1 / sqrt(epoch)``, with the 1-based number of the epoch."""
        return 1.0 / math.sqrt(math.floor(epoch) + 1)

    def check(self, job: Any) -> None:
        """See `Sync`."""
        if self.shared and job.codec != "float32":
            raise JobError("codec", job.codec, f"'float32' with {self}, whose workers write the whole model")
        if job.aggregate != "mean":
            raise JobError("aggregate", job.aggregate, f"'mean' with {self}, whose learning rate falls")

    def __str__(self) -> str:
        return "ASP, shared model" if self.shared else "ASP"
