"""The supervisor's mind: pure functions and small state machines, history in, decisions out."""

from .stop import StopRules, Verdict

__all__ = ["StopRules", "Verdict"]
