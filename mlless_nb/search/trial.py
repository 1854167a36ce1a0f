"""One trial of a sweep, as it is shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: What becomes of a trial: "failed" is a status of its run, the first two are not.
STARTING, PRUNED, FAILED = "starting", "pruned", "failed"


@dataclass(frozen=True, repr=False)
class Trial:
    """One trial of a sweep at one moment.

    Attributes
    ----------
    number : int
        From 1 on.
    name, run_id : str
        Of its run: ``mlless_nb.attach(name)`` gives the handle.
    settings : dict
        What was drawn, by name.
    status : str
        One of starting, running; finished; pruned: the sweep has stopped it as a weak one; stopped, capped, failed.
    reason : str
        One sentence on why.
    loss : float or None
        Its lowest held-out loss.
    share : float or None
        The part of its length that it has done, 0 to 1; None if that is not known.
    epoch, seconds, usd : float
        Passes over the data, time, and cost, US dollars.
    """

    number: int
    name: str
    run_id: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    status: str = STARTING
    reason: str = ""
    loss: float | None = None
    share: float | None = 0.0
    epoch: float = 0.0
    seconds: float = 0.0
    usd: float = 0.0

    def __repr__(self) -> str:
        short = {name: f"{value:.4g}" if isinstance(value, float) else value for name, value in self.settings.items()}
        drawn = [f"{name}={value}" for name, value in short.items()]
        loss = [] if self.loss is None else [f"loss {self.loss:.4g}"]
        return f"<Trial {self.name!r}: {', '.join([self.status, *drawn, *loss])}, ${self.usd:.6f}>"

    @property
    def rank(self) -> tuple[bool, bool, float, int]:
        """Sorts trials, the best one first: a failed one is worse than any other with a loss."""
        return self.loss is None, self.loss is not None and self.status == FAILED, self.loss or 0.0, self.number

    @property
    def is_live(self) -> bool:
        """Whether it has not ended."""
        return self.status in (STARTING, "running")
