"""Rounds that a worker has published into, but of which some peer updates are not applied yet. Pure.

With bounded staleness, a worker continues while some frames of its peers are not published yet. The frames that are
published are applied by round and, within a round, by slot. A round is completed once all its frames are applied and
all earlier rounds are completed, so that losses are reported in order.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from ..protocol import FrameKey
from ..stats import Stats, sum_of
from .base import CompletedRound


@dataclass
class _Pending:
    """A round; ``epoch``: passes over the data after it, ``stats``: by slot, of the updates that were applied."""

    step: int
    epoch: float
    missing: list[FrameKey]
    stats: dict[int, Stats] = field(default_factory=dict)


class OutstandingRounds:
    """The rounds of one worker that are not fully applied, oldest first."""

    def __init__(self) -> None:
        self._rounds: deque[_Pending] = deque()

    def begin(self, step: int, epoch: float, slot: int, stats: Stats, peers: list[int]) -> None:
        """Add the round of ``step``, in which ``slot`` published; the frames of all ``peers`` are missing."""
        self._rounds.append(_Pending(step, epoch, [(str(step), peer) for peer in peers], {slot: stats}))

    def expect_residuals(self, slots: list[int]) -> None:
        """Expect the residuals of ``slots``, which leave after the newest round, as part of that round."""
        newest = self._rounds[-1]
        newest.missing += [(f"{newest.step}r", slot) for slot in slots]

    def missing(self, step: int | None = None) -> list[FrameKey]:
        """The missing frames of the rounds up to ``step`` (None: of all rounds), in the order of application."""
        return [one for pending in self._rounds if step is None or pending.step <= step for one in pending.missing]

    def take(self, key: FrameKey, stats: Stats) -> bool:
        """Note that a frame was applied; returns whether it was the residual of a worker that left."""
        round_id, slot = key
        pending = next(one for one in self._rounds if one.step == int(round_id.rstrip("r")))
        pending.missing.remove(key)
        if round_id.endswith("r"):
            return True
        pending.stats[slot] = stats
        return False

    def settle(self) -> list[CompletedRound]:
        """Remove and return the rounds that are completed."""
        settled = []
        while self._rounds and not self._rounds[0].missing:
            done = self._rounds.popleft()
            sums = sum_of([stats for _, stats in sorted(done.stats.items())])
            settled.append(CompletedRound(done.step, done.epoch, sums))
        return settled

    def staleness(self, step: int) -> int:
        """Age, in steps, of the oldest update that is not applied when ``step`` is computed."""
        return step - self._rounds[0].step if self._rounds else 0
