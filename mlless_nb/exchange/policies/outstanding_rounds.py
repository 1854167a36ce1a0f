"""Rounds that a worker has taken part in and has not applied in full: what is missing, what is due. Pure.

With bounded staleness a worker goes on while frames of its peers are still to come. They are read and applied in the
order of rounds and, within one, of slots, as far as they are there; a round is done with once all of it is applied and
all before it are, so that the losses come in order.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from ..protocol import FrameKey
from ..stats import Stats, sum_of
from .base import CompletedRound


@dataclass
class _Pending:
    """A round; ``epoch``: passes over the data after it, ``stats``: of the slots whose updates were applied."""

    step: int
    epoch: float
    missing: list[FrameKey]
    stats: dict[int, Stats] = field(default_factory=dict)


class OutstandingRounds:
    """The rounds of one worker that are not applied in full, oldest first."""

    def __init__(self) -> None:
        self._rounds: deque[_Pending] = deque()

    def begin(self, step: int, epoch: float, slot: int, stats: Stats, peers: list[int]) -> None:
        """Take part in the round of ``step`` as ``slot``; a frame of each of the ``peers`` is missing."""
        self._rounds.append(_Pending(step, epoch, [(str(step), peer) for peer in peers], {slot: stats}))

    def expect_residuals(self, slots: list[int]) -> None:
        """Those of ``slots`` leave after the newest round: what they hold back belongs to it."""
        newest = self._rounds[-1]
        newest.missing += [(f"{newest.step}r", slot) for slot in slots]

    def sought(self, step: int | None = None) -> list[FrameKey]:
        """What is missing of the rounds up to ``step`` (None: of all), in the order in which it is applied."""
        return [one for pending in self._rounds if step is None or pending.step <= step for one in pending.missing]

    def take(self, sought: FrameKey, stats: Stats) -> bool:
        """A frame was applied; whether it was the residual of one that left."""
        round_id, slot = sought
        pending = next(one for one in self._rounds if one.step == int(round_id.rstrip("r")))
        pending.missing.remove(sought)
        if round_id.endswith("r"):
            return True
        pending.stats[slot] = stats
        return False

    def settle(self) -> list[CompletedRound]:
        """The rounds that are done with by now, which are forgotten."""
        settled = []
        while self._rounds and not self._rounds[0].missing:
            done = self._rounds.popleft()
            sums = sum_of([stats for _, stats in sorted(done.stats.items())])
            settled.append(CompletedRound(done.step, done.epoch, sums))
        return settled

    def staleness(self, step: int) -> int:
        """How many steps the oldest update that is not applied is behind when ``step`` is computed."""
        return step - self._rounds[0].step if self._rounds else 0
