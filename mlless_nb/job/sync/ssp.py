"""Stale-synchronous parallel. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...validation import specification
from .base import Sync, check_staleness, register_sync


@register_sync
@specification
@dataclass(frozen=True)
class SSP(Sync):
    """Stale-synchronous parallel: a worker publishes its whole update, and waits only when it is too far ahead.

    When a worker begins step ``t``, it has applied its peers' updates of all steps up to ``t - 1 - staleness``, and the
    updates of later steps, up to ``t - 1``, that had arrived. ``SSP(0)`` is BSP, bit for bit, with the same
    ``pattern``; with more staleness the model depends on the workers' timing, and two runs differ.

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
    form: ClassVar[str] = "SSP(staleness)"

    def __post_init__(self) -> None:
        check_staleness("SSP", self.staleness)

    def __str__(self) -> str:
        return f"SSP {self.staleness}"
