"""A tuner's decisions, as data, and its reasons for removing no worker. Pure."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .loss_history import History

#: What a decision is based on, by name; None where it is not finite.
Numbers = dict[str, float | None]


@dataclass(frozen=True)
class Decision:
    """What the tuner has to say.

    Attributes
    ----------
    kind : str
        "knee", "remove", "keep" (said once for each new reason), "outcome" (of a removal) or "tuner" (paused, resumed).
    step : int
    time_s : float
    text : str
        A sentence for a user; "{worker}" stands for the worker that leaves.
    numbers : dict
        What it was decided on.
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
    """Why nobody is removed: a code that tells reasons apart, and the reason in words, with its figures."""

    code: str
    reason: str


class Refusals:
    """Tells a refusal when its code is another than that of the one before: figures alone make no new reason."""

    def __init__(self) -> None:
        self._code = ""

    def reset(self) -> None:
        """A worker was removed: the next refusal is told, whatever its code."""
        self._code = ""

    def tell(self, refusal: Refusal, history: History, n_workers: int, numbers: Numbers) -> list[Decision]:
        """The decision that tells ``refusal``; none where it was told already."""
        if refusal.code == self._code:
            return []
        self._code = refusal.code
        text = f"All {n_workers} workers stay for now: {refusal.reason}"
        return [Decision.at_newest(history, "keep", text, numbers)]
