"""What the workers have told of their requests: what these cost, and the frames that they moved."""

from __future__ import annotations

from ..bus.messages import Failed, Left
from ..exchange.frame_count import NO_FRAMES, FrameCount


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
        self._told = {slot: {0.0: (0, NO_FRAMES)} for slot in range(n_workers)}
        self.nusd = 0

    def begin(self, slot: int, at_s: float) -> None:
        """Another function has taken ``slot`` over, ``at_s`` seconds after the run."""
        self._told[slot][at_s] = 0, NO_FRAMES

    def note(self, slot: int, nusd: int, frames: FrameCount, at_s: float) -> None:
        """Note a report of the function that had ``slot`` at ``at_s``; a later one of it may have been read before."""
        of_slot = self._told[slot]
        since_s = next(reversed(of_slot))
        if at_s < since_s:
            since_s = max((since_s for since_s in of_slot if since_s <= at_s), default=0.0)
        told, newest = of_slot[since_s], (nusd, frames)
        if newest > told:  # called for each worker and step; no number of a function ever falls
            of_slot[since_s] = newest
            self.nusd += nusd - told[0]

    def close(self, slot: int, nusd: int, frames: FrameCount) -> None:
        """Note the final message of the newest function of ``slot``."""
        of_slot = self._told[slot]
        newest_s = next(reversed(of_slot))
        told, moved = of_slot[newest_s]
        of_slot[newest_s] = nusd, max(frames, moved)
        self.nusd += nusd - told

    @property
    def frames(self) -> FrameCount:
        """The frames that all functions have put and got."""
        return FrameCount.total([moved for of_slot in self._told.values() for _, moved in of_slot.values()])


def amounts_of(last: Left | Failed) -> tuple[int, int, int, FrameCount]:
    """What a worker has spent by its last message, and the frames that it has moved, in the order of `Bill.close`."""
    return last.spent_nusd, last.storage_nusd, last.store_nusd, FrameCount.of(last.frames)
