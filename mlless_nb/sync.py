"""Synchronisation protocols: what a worker publishes of its update after a step. Pure."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any

from .errors import JobError
from .plain import make_plain


@dataclass(frozen=True)
class BSP:
    """Bulk-synchronous parallel: every worker publishes its whole update and waits for its peers', every step."""

    filters = False

    def threshold_at(self, step: int) -> float:
        """Significance threshold at ``step`` (1-based): 0, everything is significant."""
        return 0.0

    def to_json(self) -> dict[str, Any]:
        """The protocol as plain JSON."""
        return {"kind": "bsp"}

    def __str__(self) -> str:
        return "BSP"


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

    References
    ----------
    MLLess (Middleware and journal), section 4.1 and Corollary 1.
    """

    threshold: float = 0.7
    filters = True

    def __post_init__(self) -> None:
        make_plain(self)
        if isinstance(self.threshold, bool) or not isinstance(self.threshold, (int, float)):
            raise JobError("ISP.threshold", self.threshold, "a number >= 0, e.g. 0.7")
        if not 0 <= self.threshold <= sys.float_info.max:
            raise JobError("ISP.threshold", self.threshold, "a finite number >= 0, e.g. 0.7")

    def threshold_at(self, step: int) -> float:
        """``v_t = threshold / sqrt(t)`` at ``step`` (1-based)."""
        return self.threshold / math.sqrt(step)

    def to_json(self) -> dict[str, Any]:
        """The protocol as plain JSON."""
        return {"kind": "isp", "threshold": self.threshold}

    def __str__(self) -> str:
        return f"ISP {self.threshold:g}"


Sync = BSP | ISP


def sync_from_json(spec: dict[str, Any]) -> Sync:
    """The protocol that ``to_json`` wrote."""
    return ISP(spec["threshold"]) if spec["kind"] == "isp" else BSP()
