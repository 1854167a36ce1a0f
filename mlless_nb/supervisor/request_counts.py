"""What the workers have told of their requests: what these cost, and the frames that they moved."""

from __future__ import annotations

import math

from ..bus.messages import Failed, Left
from ..exchange.frame_count import NO_FRAMES, FrameCount

#: Nano-dollars of requests, and the numbers of a `FrameCount`, see `mlless_nb.exchange.step_report.REQUESTED`.
Requested = tuple[int, ...]
NOTHING: Requested = (0, *NO_FRAMES)


class RequestCounts:
    """The requests of all workers so far.

    A slot has one function after another. Each tells what it has made itself, and what a lost one had told stays.

    Parameters
    ----------
    n_workers : int

    Attributes
    ----------
    nusd : int
        Their cost, nano-dollars.
    """

    def __init__(self, n_workers: int) -> None:
        # Cost and frames by slot and by when its function took it over, seconds after the run.
        self._told: dict[int, dict[float, Requested]] = {slot: {0.0: NOTHING} for slot in range(n_workers)}
        self.nusd = 0

    def begin(self, slot: int, at_s: float) -> None:
        """Another function has taken ``slot`` over, ``at_s`` seconds after the run."""
        self._told[slot][at_s] = NOTHING

    def note(self, slot: int, requested: Requested, at_s: float = math.inf) -> None:
        """Note what the function that had ``slot`` ``at_s`` seconds after the run had ``requested`` so far.

        A later report of it may have been read before, or its final message.
        """
        of_slot = self._told[slot]
        since_s = next(reversed(of_slot))
        if at_s < since_s:
            since_s = max((since_s for since_s in of_slot if since_s <= at_s), default=0.0)
        told = of_slot[since_s]
        if requested > told:  # called for each worker and step; no number of a function ever falls
            of_slot[since_s] = requested
            self.nusd += requested[0] - told[0]

    def close(self, slot: int, nusd: int, frames: FrameCount) -> None:
        """Note the final message of the newest function of ``slot``."""
        of_slot = self._told[slot]
        newest_s = next(reversed(of_slot))
        told, *moved = of_slot[newest_s]
        of_slot[newest_s] = nusd, *max(frames, tuple(moved))
        self.nusd += nusd - told

    @property
    def frames(self) -> FrameCount:
        """The frames that all functions have put and got."""
        told = [each for of_slot in self._told.values() for each in of_slot.values()]
        return FrameCount.total([FrameCount.of(moved) for _, *moved in told])


def amounts_of(last: Left | Failed) -> tuple[int, int, int, FrameCount]:
    """What a worker has spent by its last message, and the frames that it has moved, in the order of `Bill.close`."""
    return last.spent_nusd, last.storage_nusd, last.store_nusd, FrameCount.of(last.frames)
