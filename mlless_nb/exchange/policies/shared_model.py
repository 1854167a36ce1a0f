"""One model in the store: a worker reads it, takes a step and writes it back, without waiting for what others write.

The last write wins: what others wrote since the read is lost. The rounds carry the stats of the steps only, which are
kept for a bounded number of steps. So a worker waits, as in `BoundedStaleness`, if it is too far ahead of another one.

References
----------
LambdaML, section 3.2.4, of the asynchronous protocol of SIREN.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...errors import DecodeError
from ...kernels import apply_frame, encode_update
from ..protocol import Frame, FrameKey
from ..stats import NO_STATS, told
from .base import CompletedRound, Step, register_policy
from .stale import BoundedStaleness

#: Reads of a model that another worker is writing in several parts, before the run fails.
TRIES = 20


@register_policy("shared-model")
class SharedModel(BoundedStaleness):
    """The reads and writes of one worker in a run with one shared model."""

    def quorum(self, step: int, n_active: int) -> int:
        """See `RoundPolicy`: every worker takes a whole step."""
        return 1

    def skip(self, step: Step) -> list[CompletedRound]:
        """Begin the step with the shared model. None is skipped."""
        if len(step.active) > 1:
            self._read_model()
        return []

    def exchange(self, step: Step) -> list[CompletedRound]:
        """See `RoundPolicy`."""
        self.replica.apply_own()
        if len(step.active) > 1:
            params = self.replica.params
            whole = encode_update(None, np.ascontiguousarray(params), step.number, step.slot, len(params), NO_STATS)
            self.log.put_model(whole)
        settled = super().exchange(step)
        if step.is_last() and len(step.active) > 1:
            self._read_model()  # all have written for the last time
        return settled

    def _read_model(self) -> None:
        for attempt in range(1, TRIES + 1):
            frame = self.log.get_model()
            try:
                if frame is not None:
                    apply_frame(frame, self.replica.params, add=False)
                return
            except DecodeError:
                if attempt == TRIES:
                    raise

    def _encoded(self, step: Step) -> bytes:
        return self.replica.encode_stats(step.number, step.stats)

    def _apply_published(self) -> None:
        """Nothing: the own update is in the model already."""

    def _apply(self, keys: Sequence[FrameKey], frames: Sequence[Frame | None]) -> None:
        for one, frame in zip(keys, frames, strict=True):
            if frame is not None:
                self._pending.take(one, told(frame))
