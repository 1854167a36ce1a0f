"""Whether restarts bring a run any further: one that stands still is given up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ...exchange import SUPERVISOR
from .unrecoverable import Unrecoverable

#: Restarts without a step further than before, after which the run fails.
MOST_WITHOUT_PROGRESS = 3


class RestartCounts:
    """How often the function of each slot was lost since the run got further."""

    def __init__(self) -> None:
        self._furthest, self._of_slot, self._counted = -1, Counter[int](), Counter[int]()

    def count(self, lost: Sequence[int], step: int, reason: str) -> None:
        """Count one more restart, for `keep` once it is certain. No slot ``lost``: only data was.

        Workers that are lost together may be missed one after another, so each slot has a count of its own.

        Raises
        ------
        Unrecoverable
            There were too many, and the run is no further than ``step``; ``reason`` is that of this one.
        """
        if step > self._furthest:
            self._furthest = step
            self._of_slot.clear()
        self._counted = self._of_slot + Counter(lost or [SUPERVISOR])
        n_before = max(self._counted.values()) - 1
        if n_before >= MOST_WITHOUT_PROGRESS:
            raise Unrecoverable(f"{reason}; after {n_before} restarts the run is no further than step {step}")

    def keep(self) -> None:
        """The restart that was counted last takes place."""
        self._of_slot = self._counted
