"""A worker ahead of its peers: it publishes, applies what there is of their updates, and waits only for what is due."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from ..exchange import Arrival, Coordinator, Frame, FrameKey, RoundRequest
from .outstanding_rounds import CompletedRound, OutstandingRounds
from .replica import Replica
from .stats import Stats


class BoundedStaleness:
    """The exchange of one worker under bounded staleness.

    Parameters
    ----------
    log : StepLog
    replica : Replica
        Updates, the own one and the peers', are added to it as soon as they are there.
    clock : callable
        Seconds that pass.
    """

    def __init__(self, log: Coordinator, replica: Replica, clock: Callable[[], float] = time.monotonic) -> None:
        self._log, self._replica, self._clock = log, replica, clock
        self._pending = OutstandingRounds()

    def publish(self, part: RoundRequest, epoch: float, stats: Stats) -> Arrival:
        """Publish the replica's update, add it, and add those of the peers that are there."""
        self._pending.begin(part.step, epoch, part.slot, stats, part.peers)
        sought = self._pending.sought()
        arrival, frames = self._log.publish_and_poll(part, sought)
        self._replica.apply_own()
        self._apply(sought, frames)
        return arrival

    def expect_residuals(self, slots: list[int]) -> None:
        """Those of ``slots`` leave after the step just published; what they hold back is due with it."""
        self._pending.expect_residuals(slots)

    def catch_up(self, part: RoundRequest, step: int, pay: Callable[[], None]) -> float:
        """Wait for all that is missing of the rounds up to ``step`` and add it; returns the seconds waited."""
        waited_s = 0.0
        while self._pending.sought(step):
            sought, asked = self._pending.sought(), self._clock()
            frames = self._log.wait_for_any(part, sought, pay)
            waited_s += self._clock() - asked
            self._apply(sought, frames)
        return waited_s

    def settle(self) -> list[CompletedRound]:
        """The rounds of which all is applied by now, oldest first; each is told once."""
        return self._pending.settle()

    def staleness(self, step: int) -> int:
        """How many steps the oldest update that is not applied is behind when ``step`` is computed."""
        return self._pending.staleness(step)

    def _apply(self, sought: Sequence[FrameKey], frames: Sequence[Frame | None]) -> None:
        for one, frame in zip(sought, frames, strict=True):
            if frame is not None and self._pending.take(one, self._replica.apply_late(frame)):
                self._replica.average()
