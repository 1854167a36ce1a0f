"""Synchronisation protocols: what a worker publishes of its update after a step, and how far it may run ahead. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ..errors import JobError
from ..validation import check_flag, is_number, specification

#: The largest staleness: frames are kept for twice as many steps, and whoever is that far ahead learns little.
MOST_STALENESS = 100


def _check_staleness(kind: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_STALENESS:
        raise JobError(f"{kind}.staleness", value, f"an integer between 0 and {MOST_STALENESS}, e.g. 3")


@specification
@dataclass(frozen=True)
class BSP:
    """Bulk-synchronous parallel: every worker publishes its whole update and waits for its peers', every step."""

    filters = False
    averages = False
    staleness = 0

    def threshold_at(self, step: int) -> float:
        """Significance threshold at ``step`` (1-based): 0, everything is significant."""
        return 0.0

    def to_json(self) -> dict[str, Any]:
        """The protocol as plain JSON."""
        return {"kind": "bsp"}

    def __str__(self) -> str:
        return "BSP"


@specification
@dataclass(frozen=True)
class SSP:
    """Stale-synchronous parallel: a worker publishes its whole update, and waits only when it is too far ahead.

    When it begins step ``t``, a worker has applied all updates of its peers' steps up to ``t - 1 - staleness``, and
    those of later steps, up to ``t - 1``, that had arrived. ``SSP(0)`` is BSP, bit for bit; with more, what is learnt
    depends on who was quicker, and two runs differ.

    Parameters
    ----------
    staleness : int
        Steps, between 0 and 100. The paper's evaluation uses 3.

    References
    ----------
    Ho et al., "More effective distributed ML via a stale synchronous parallel parameter server" (2013); MLLess
    (journal), section 4.
    """

    staleness: int = 3
    filters = False
    averages = False

    def __post_init__(self) -> None:
        _check_staleness("SSP", self.staleness)

    def threshold_at(self, step: int) -> float:
        """Significance threshold at ``step`` (1-based): 0, everything is significant."""
        return 0.0

    def to_json(self) -> dict[str, Any]:
        """The protocol as plain JSON."""
        return {"kind": "ssp", "staleness": self.staleness}

    def __str__(self) -> str:
        return f"SSP {self.staleness}"


@specification
@dataclass(frozen=True)
class ISP:
    """Insignificance-bounded synchronous parallel: a worker publishes only the significant part of its updates.

    Per parameter ``i``, with ``delta_i`` the sum of the worker's updates since ``i`` was last published: ``delta_i`` is
    published (and reset) iff ``|delta_i| > v_t * |x_i|`` with ``v_t = threshold / sqrt(t)``; the rest stays in the
    worker's residual and is published at the end of training at the latest. ``ISP(0)`` is BSP, bit for bit.

    Parameters
    ----------
    threshold : float
        ``v >= 0``, relative to the parameter's magnitude. The paper's evaluation uses 0.7.
    staleness : int
        Steps that a worker may be ahead, as with `SSP`; 0: workers wait for each other in every step.
    averages : bool
        Whether the workers that stay average in the replica of one that leaves, ``x <- (x + x_leaving) / 2``, after its
        residual was published and applied: ``x_leaving`` is then what all replicas have in common, and averaging takes
        half of every residual back. The paper averages without publishing, so that half of the leaving residual is
        lost. On MovieLens-1M with rows dealt out (PMF of rank 20, ``ISP(0.7)``, 8 workers of which four leave, 260
        steps, five seeds) the held-out RMSE is 0.9048 when nobody leaves, 0.9073 when residuals are published, 0.9086
        when replicas are averaged in as well, and 0.9079 to 0.9085 by the paper's formula. So it is off.
        ``benchmarks/departures.py`` measures all of them.

    References
    ----------
    MLLess (Middleware and journal), section 4.1 and Corollary 1; for averaging, the journal's section on scaling in.
    """

    threshold: float = 0.7
    staleness: int = 0
    averages: bool = False
    filters = True

    def __post_init__(self) -> None:
        if not is_number(self.threshold) or self.threshold < 0:
            raise JobError("ISP.threshold", self.threshold, "a finite number >= 0, e.g. 0.7")
        _check_staleness("ISP", self.staleness)
        check_flag("ISP.averages", self.averages)

    def threshold_at(self, step: int) -> float:
        """``v_t = threshold / sqrt(t)`` at ``step`` (1-based)."""
        return self.threshold / math.sqrt(step)

    def to_json(self) -> dict[str, Any]:
        """The protocol as plain JSON."""
        return {
            "kind": "isp",
            "threshold": self.threshold,
            "staleness": self.staleness,
            "averages": self.averages,
        }

    def __str__(self) -> str:
        return f"ISP {self.threshold:g}" + (f" over SSP {self.staleness}" if self.staleness else "")


Sync = BSP | ISP | SSP


def sync_from_json(spec: dict[str, Any]) -> Sync:
    """The protocol that ``to_json`` wrote."""
    kinds: dict[str, type[Sync]] = {"bsp": BSP, "isp": ISP, "ssp": SSP}
    return kinds[spec["kind"]](**{name: value for name, value in spec.items() if name != "kind"})
