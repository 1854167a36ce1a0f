"""Synchronisation protocols: which part of its update a worker publishes, and how far it may run ahead. Pure.

A round policy in ``exchange/policies`` makes workers wait for each other. A new protocol is one file there: it
registers its specification (`register_sync`) and its policy.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, TypeVar

from ..errors import JobError
from ..validation import is_number, specification

#: The largest staleness: frames are kept for twice as many steps, and a worker that far ahead learns little.
MOST_STALENESS = 100


def _check_staleness(kind: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_STALENESS:
        raise JobError(f"{kind}.staleness", value, f"an integer between 0 and {MOST_STALENESS}, e.g. 3")


Kind = TypeVar("Kind", bound="type[Sync]")
_registered: dict[str, type[Sync]] = {}


class Sync:
    """Base of the protocols: a frozen dataclass whose fields are plain JSON.

    Attributes
    ----------
    kind : str
        The protocol's name in JSON.
    policy : str
        The name of its round policy.
    filters : bool
        Whether a significance filter keeps part of an update in a residual.
    averages : bool or "paper"
        Whether the remaining workers average in the replica of a worker that leaves.
    staleness : int
        Steps that a worker may be ahead of the newest peers' updates that it has applied.
    """

    kind: ClassVar[str]
    filters: ClassVar[bool] = False
    averages: bool | str = False
    staleness: int = 0

    @property
    def policy(self) -> str:
        """The name of the round policy that implements the protocol."""
        return "stale" if self.staleness else "lockstep"

    def threshold_at(self, step: int) -> float:
        """Significance threshold at ``step`` (1-based); 0: everything is significant."""
        return 0.0

    def check(self, job: Any) -> None:
        """Raise JobError if a setting of ``job`` (a TrainingJob) is incompatible with the protocol."""

    def to_json(self) -> dict[str, Any]:
        """The protocol as plain JSON."""
        return {"kind": self.kind, **asdict(self)}  # type: ignore[call-overload]


def register_sync(kind: Kind) -> Kind:
    """Class decorator that makes the `Sync` class ``kind`` known to jobs and functions."""
    _registered[kind.kind] = kind
    return kind


def sync_from_json(spec: dict[str, Any]) -> Sync:
    """The protocol that ``to_json`` wrote; JobError for one that is not registered."""
    fields = dict(spec)
    if (kind := fields.pop("kind")) not in _registered:
        raise JobError("sync", kind, "one of " + ", ".join(repr(name) for name in sorted(_registered)))
    return _registered[kind](**fields)


@register_sync
@specification
@dataclass(frozen=True)
class BSP(Sync):
    """Bulk-synchronous parallel: every worker publishes its whole update and waits for its peers', every step."""

    kind: ClassVar[str] = "bsp"

    def __str__(self) -> str:
        return "BSP"


@register_sync
@specification
@dataclass(frozen=True)
class SSP(Sync):
    """Stale-synchronous parallel: a worker publishes its whole update, and waits only when it is too far ahead.

    When a worker begins step ``t``, it has applied its peers' updates of all steps up to ``t - 1 - staleness``, and the
    updates of later steps, up to ``t - 1``, that had arrived. ``SSP(0)`` is BSP, bit for bit; with more staleness the
    model depends on the workers' timing, and two runs differ.

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
    kind: ClassVar[str] = "ssp"

    def __post_init__(self) -> None:
        _check_staleness("SSP", self.staleness)

    def __str__(self) -> str:
        return f"SSP {self.staleness}"


@register_sync
@specification
@dataclass(frozen=True)
class ISP(Sync):
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
    filters: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not is_number(self.threshold) or self.threshold < 0:
            raise JobError("ISP.threshold", self.threshold, "a finite number >= 0, e.g. 0.7")
        _check_staleness("ISP", self.staleness)
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
