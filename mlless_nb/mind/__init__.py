"""The supervisor's mind: pure functions and small state machines, history in, decisions out."""

from __future__ import annotations

from typing import Any

from .stop import StopRules, Verdict

__all__ = ["StopRules", "Verdict", "replay"]


def __getattr__(name: str) -> Any:
    # `replay` reads records and so needs what workers, who import the stop rules from here, do not.
    if name == "replay":
        from .replaying import replay

        return replay
    raise AttributeError(name)
