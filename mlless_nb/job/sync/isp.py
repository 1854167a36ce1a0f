"""Insignificance-bounded synchronous parallel. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from ...errors import JobError
from ...validation import is_number, specification
from .base import Sync, check_staleness, register_sync


@register_sync
@specification
@dataclass(frozen=True)
class ISP(Sync):
    """Insignificance-bounded synchronous parallel: a worker publishes only the significant part of its updates.

    Per parameter ``i``, with ``delta_i`` the sum of the worker's updates since ``i`` was last published: ``delta_i`` is
    published (and reset) iff ``|delta_i| > v_t * |x_i|`` with ``v_t = threshold / sqrt(t)``; the rest stays in the
    worker's residual and is published at the end of training at the latest. ``ISP(0)`` is BSP, bit for bit, with the
    same ``pattern``.

    Parameters
    ----------
    threshold : float
        ``v >= 0``, relative to the parameter's magnitude. The paper's evaluation uses 0.7.
    staleness : int
        Steps that a worker may be ahead, as with `SSP`; 0: workers wait for each other in every step.
    averages : bool or "paper"
        Whether the remaining workers average in the replica of one that leaves, ``x <- (x + x_leaving) / 2``, after its
        residual was published and applied: ``x_leaving`` is then what all replicas have in common, and averaging undoes
        half of every remaining worker's own residual. With "paper" the residual is not published before, as the paper's
        formula says: half of it is lost. On MovieLens-1M with rows sharded (PMF of rank 20, ``ISP(0.7)``, 8 workers of
        which four leave, 260 steps, five seeds) the held-out RMSE is 0.9048 when no worker leaves, 0.9073 when
        residuals are published, 0.9086 when replicas are averaged in as well, and 0.9079 to 0.9085 by the paper's
        formula. So it is off by default. ``benchmarks/departures.py`` measures all of them.

    References
    ----------
    MLLess (Middleware and journal), section 4.1 and Corollary 1; for averaging, the journal's section on scaling in.
    """

    threshold: float = 0.7
    staleness: int = 0
    averages: bool | str = False
    kind: ClassVar[str] = "isp"
    form: ClassVar[str] = "ISP(threshold)"
    filters: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not is_number(self.threshold) or self.threshold < 0:
            raise JobError("ISP.threshold", self.threshold, "a finite number >= 0, e.g. 0.7")
        check_staleness("ISP", self.staleness)
        if not isinstance(self.averages, bool) and self.averages != "paper":
            raise JobError("ISP.averages", self.averages, "True, False or 'paper'")
        if self.averages == "paper" and self.staleness:
            raise JobError("ISP.averages", self.averages, "True or False with staleness: residuals are late then")

    def check(self, job: Any) -> None:
        """See `Sync`."""
        if self.averages == "paper" and job.partition == "user":
            raise JobError(
                "partition", job.partition, "'auto' or 'rows' with ISP(averages='paper'): a worker owns users"
            )

    def threshold_at(self, step: int) -> float:
        """``v_t = threshold / sqrt(t)`` at ``step`` (1-based)."""
        return self.threshold / math.sqrt(step)

    def __str__(self) -> str:
        return f"ISP {self.threshold:g}" + (f" over SSP {self.staleness}" if self.staleness else "")
