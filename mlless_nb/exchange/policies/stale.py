"""Bounded staleness: a worker applies the peers' updates on arrival, and waits only for those that are too old."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..protocol import Frame, FrameKey, RoundRequest
from .base import CompletedRound, RoundPolicy, Step, register_policy
from .outstanding_rounds import OutstandingRounds


@register_policy("stale")
class BoundedStaleness(RoundPolicy):
    """A worker is at most ``sync.staleness`` steps ahead of the peer updates that it has applied."""

    is_lockstep = False

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._pending = OutstandingRounds()

    @property
    def retention(self) -> int:
        """See `RoundPolicy`."""
        return 2 + 2 * int(self.sync.staleness)

    def exchange(self, step: Step) -> list[CompletedRound]:
        """See `RoundPolicy`."""
        request = step.request(self._encoded(step) if len(step.active) > 1 else b"")
        self._publish(request, step)
        is_last = step.is_last()
        leaving = [] if is_last else step.leaving()
        if step.slot not in leaving:  # a leaving worker needs no further updates
            self._pending.expect_residuals(leaving)
            is_whole = is_last or step.is_checkpoint()
            self._catch_up(request, step.number if is_whole else step.number - self.sync.staleness, step)
        return self._pending.settle()

    def _encoded(self, step: Step) -> bytes:
        """The frame to publish."""
        return self.replica.encode(step.number, step.stats)

    def _apply_published(self) -> None:
        """Apply the own update, which was published."""
        self.replica.apply_own()

    def _publish(self, request: RoundRequest, step: Step) -> None:
        """Publish and apply the own update, and apply the peer updates that are published already."""
        self._pending.begin(request.step, step.epoch, request.slot, step.stats, request.peers)
        keys = self._pending.missing()
        arrival, frames = self.log.publish_and_poll(request, keys)
        self._apply_published()
        self._apply(keys, frames)
        step.learn(arrival)

    def _catch_up(self, request: RoundRequest, due: int, step: Step) -> None:
        """Wait for all missing frames of the rounds up to step ``due``, and apply them."""
        while self._pending.missing(due):
            keys, asked = self._pending.missing(), self.clock()
            frames = self.log.wait_for_any(request, keys, step.pay)
            step.waited_s += self.clock() - asked
            self._apply(keys, frames)

    def _apply(self, keys: Sequence[FrameKey], frames: Sequence[Frame | None]) -> None:
        for one, frame in zip(keys, frames, strict=True):
            if frame is not None and self._pending.take(one, self.replica.apply_late(frame)):
                self.replica.average()

    def staleness(self, step: int) -> int:
        """See `RoundPolicy`."""
        return self._pending.staleness(step)
