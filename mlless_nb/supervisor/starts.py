"""How workers started on a cloud, in words: in a runtime that was started for them, or in a warm one. Pure."""

from __future__ import annotations

from collections.abc import Collection

from ..bus.messages import Started, StartedTwice
from ..exchange import SUPERVISOR
from ..money.meter import NUSD


def how(starts: Collection[Started]) -> str:
    """``": 2 cold within 4.1 s, 1 warm within 0.4 s"``, each since its invocation; "" where nothing says which."""
    parts = []
    for is_cold, word in ((True, "cold"), (False, "warm")):
        if own := [each.start_s for each in starts if each.is_cold is is_cold]:
            parts.append(f"{len(own)} {word} within {max(own):.1f} s")
    return f": {', '.join(parts)}" if parts else ""


def twice(message: StartedTwice) -> str:
    """The text of the event that a platform has started a function twice."""
    who = "The supervisor" if message.slot == SUPERVISOR else f"Worker {message.slot}"
    return f"{who} was started twice; the second function left at once, and cost ${message.spent_nusd / NUSD:.6f}"
