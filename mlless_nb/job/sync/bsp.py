"""Bulk-synchronous parallel. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...validation import specification
from .base import Sync, register_sync


@register_sync
@specification
@dataclass(frozen=True)
class BSP(Sync):
    """Bulk-synchronous parallel: every worker publishes its whole update and waits for its peers', every step."""

    kind: ClassVar[str] = "bsp"
    form: ClassVar[str] = "BSP()"

    def __str__(self) -> str:
        return "BSP"
