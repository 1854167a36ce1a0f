"""A round of exchange as three calls, for coordinators that have no shorter way."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from .protocol import Arrival, Closing, Exchanged, Frame, RoundRequest
from .restarts import RoundEnded


class Exchanges(Protocol):
    """The part of a `Coordinator` that exchanges rounds."""

    def publish(self, part: RoundRequest) -> Arrival:
        """See `Coordinator`."""

    def wait(self, part: RoundRequest, pay: Callable[[], None]) -> Closing | None:
        """See `Coordinator`."""

    def frames(self, part: RoundRequest, slots: list[int] | None = None) -> list[Frame]:
        """See `Coordinator`."""


def exchange_in_parts(log: Exchanges, part: RoundRequest, pay: Callable[[], None]) -> Exchanged:
    """A round as three calls, for backends without a shorter way."""
    arrival = log.publish(part)
    published_at, closing = time.monotonic(), arrival.closing
    try:
        if not arrival.is_complete:
            closing = log.wait(part, pay)
        complete_at = time.monotonic()
        slots = closing.slots if closing is not None else None
        frames = log.frames(part, slots) if part.read_slots(slots) else []
    except RoundEnded as error:
        error.keep_grant(arrival.granted_nusd)
        raise
    counted, following = (part.publishers, 0) if closing is None else closing
    return Exchanged(arrival, frames, published_at, complete_at, counted, following)
