"""What the supervisor tells the driver, collected until it is sent."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Sequence
from typing import Any

from ..bus import Bus
from ..bus.messages import Update
from ..telemetry.live import Row
from .policy.decision import Decision

#: Most rows of one message, and most that are kept after they were sent.
MOST_ROWS, KEPT_ROWS = 500, 4000


class Outgoing:
    """The next update of one run.

    Parameters
    ----------
    bus : Bus
    """

    def __init__(self, bus: Bus) -> None:
        self._bus, self._update = bus, Update()
        self._sent: deque[list[Any]] = deque(maxlen=KEPT_ROWS)

    def add_event(self, time_s: float, text: str) -> None:
        """Add an event, ``time_s`` seconds after the invocation."""
        self._update.sentences.append([time_s, text])

    def forget_events(self) -> None:
        """Forget the events that were not sent: another supervisor has told them."""
        self._update.sentences.clear()

    def add(self, row: Row) -> None:
        """Add a step's row."""
        self._update.rows.append(list(row))

    def repeat(self) -> None:
        """Send the newest rows again: the server may have lost them unread, and the driver skips those that it has."""
        self._update.rows[:0] = self._sent
        self._sent.clear()

    def record(self, decision: Decision, worker: int | None) -> None:
        """Add a decision of the policy, for the record."""
        self._update.decisions.append({**decision.to_json(), "worker": worker})

    def note(self, **state: Any) -> None:
        """Set fields of the run's state."""
        self._update.state.update(**state)

    def send(self, done: dict[str, str]) -> None:
        """Send all of it, with the results of the commands that are ``done``, by their ids."""
        update = self._update
        for first in range(0, max(len(update.rows), 1), MOST_ROWS):
            before: Sequence[Any] = update.rows[first - 1 : first] or self._sent
            part = Update(update.rows[first : first + MOST_ROWS], after=before[-1][0] if before else 0.0)
            if first == 0:
                part = dataclasses.replace(update, rows=part.rows, done=done, after=part.after)
            self._bus.send("driver", part.encode())
        self._sent.extend(update.rows)
        self._update = Update()
