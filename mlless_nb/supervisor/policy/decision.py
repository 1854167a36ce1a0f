"""A tuner's decisions as data, and its reasons for not removing a worker. Pure."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .loss_history import History

#: The figures that a decision is based on, by name; None where not finite.
Numbers = dict[str, float | None]


@dataclass(frozen=True)
class Decision:
    """One decision of the tuner.

    Attributes
    ----------
    kind : str
        "knee", "remove", "keep" (once for each new reason), "outcome" (of a removal) or "tuner" (paused, resumed).
    step : int
    time_s : float
    text : str
        A sentence for the user; "{worker}" stands for the worker that leaves.
    numbers : dict
        The figures that it is based on.
    """

    kind: str
    step: int
    time_s: float
    text: str
    numbers: Numbers = field(default_factory=dict)

    @classmethod
    def at_newest(cls, history: History, kind: str, text: str, numbers: Numbers) -> Decision:
        """A decision at the newest row of ``history``."""
        return cls(kind, int(history.last("step")), history.last("time_s"), text, numbers)

    def about(self, worker: int | None) -> Decision:
        """The decision with the worker's number in its sentence."""
        who = f"worker {worker}" if worker is not None else "a worker"
        return dataclasses.replace(self, text=self.text.replace("{worker}", who))

    def to_json(self) -> dict[str, Any]:
        """The decision as plain JSON."""
        return dataclasses.asdict(self)


class Refusal(NamedTuple):
    """Why no worker is removed: a code that identifies the reason, and the reason in words with its figures."""

    code: str
    reason: str


class Refusals:
    """Reports a refusal if its code differs from the previous one's: other figures alone are not a new reason."""

    def __init__(self) -> None:
        self._code = ""

    def reset(self) -> None:
        """Call after a removal: the next refusal is reported whatever its code."""
        self._code = ""

    def report(self, refusal: Refusal, history: History, n_workers: int, numbers: Numbers) -> list[Decision]:
        """The decision that reports ``refusal``; an empty list if it was reported before."""
        if refusal.code == self._code:
            return []
        self._code = refusal.code
        who = "Both workers" if n_workers == 2 else f"All {n_workers} workers"
        text = f"{who} stay for now: {refusal.reason}"
        return [Decision.at_newest(history, "keep", text, numbers)]
