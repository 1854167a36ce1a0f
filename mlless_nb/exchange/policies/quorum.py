"""Backup workers: a step applies its first k updates on all replicas, and a late worker skips what it missed.

The coordinator ends the round of a step with the k-th arrival. It tells every worker whose updates count, and the
quorum of the next step, which the supervisor may have changed: so all workers agree on both. A worker that comes later
finishes its update, but only its report is used: it applies the k updates like the others. Then it applies those of
the steps that have ended meanwhile, without computing, and goes on at the newest one.

References
----------
Xu, Neglia and Sebastianelli, "Dynamic backup workers for parallel machine learning", section 2 (PsW).
"""

from __future__ import annotations

from collections import deque
from typing import Any

from ..protocol import Closing, with_own
from ..stats import NO_STATS
from .base import CompletedRound, RoundPolicy, Step, register_policy
from .gradient_spread import SpreadMeter

#: Most steps that a worker can be behind; then the others wait. Frames that not all have read are kept in the store.
MOST_BEHIND = 32


@register_policy("quorum")
class FirstUpdatesRounds(RoundPolicy):
    """The rounds of one worker in a run with backup workers."""

    counts_all = False
    most_behind = MOST_BEHIND

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._announced = 0  # the quorum that the last round returned
        self._is_late = False  # there may be complete rounds that this worker has not applied
        self._missed: deque[Closing] = deque()
        self._meter = SpreadMeter(self.replica.params.size) if self.sync.measures_gradients else None

    @property
    def retention(self) -> int:
        """See `RoundPolicy`."""
        return 2 + MOST_BEHIND

    def state(self) -> list[int]:
        """See `RoundPolicy`."""
        return [self._announced]

    def resume(self, state: list[int]) -> None:
        """See `RoundPolicy`."""
        (self._announced,) = state

    def quorum(self, step: int, n_active: int) -> int:
        """See `RoundPolicy`."""
        return min(self._announced or int(self.sync.first_quorum(n_active)), n_active)

    def exchange(self, step: Step) -> list[CompletedRound]:
        """See `RoundPolicy`."""
        frame = self.replica.encode(step.number, step.stats) if len(step.active) > 1 else b""
        done = step.exchange(step.request(frame))
        step.waited_s = done.complete_at - done.published_at
        self._announced, self._is_late = done.next_quorum, step.slot not in done.slots
        if self._meter is not None and frame and not self._is_late:
            frames = with_own(done.slots, step.slot, frame, done.frames)
            self.spread = self._meter.measure(frames, self.replica.learning_rate(step.number))
        sums = self.replica.apply(done.slots, done.frames, step.stats)
        return [CompletedRound(step.number, step.epoch, sums)]

    def skip(self, step: Step) -> list[CompletedRound]:
        """See `RoundPolicy`."""
        if not self._is_late:
            return []
        request = step.reading()
        if not self._missed:
            arrival, closings = self.log.catch_up(request)
            step.learn(arrival)
            self._missed.extend(closings)
        if not self._missed:
            self._is_late = False
            return []
        closing = self._missed.popleft()
        self._announced = closing.next_quorum
        sums = self.replica.apply(closing.slots, self.log.frames(request, closing.slots), NO_STATS)
        return [CompletedRound(step.number, step.epoch, sums)]
