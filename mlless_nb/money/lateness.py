"""How late this process is woken: on a busy machine a function cannot end itself at once."""

from __future__ import annotations

import threading
from collections.abc import Callable

#: What is left of a measured lateness at the next wake that is in time; there are four or more a second.
LATE_DECAY = 0.9
#: The most that is kept for being woken late, seconds; a process that was suspended for longer is an exception.
LATE_MOST_S = 0.5


class Lateness:
    """Of the waits of one function.

    Parameters
    ----------
    clock : callable
        Seconds.

    Attributes
    ----------
    margin_s : float
        What to keep for it, seconds: twice what was measured lately.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._late_s, self.margin_s = clock, 0.0, 0.0

    def wait(self, event: threading.Event, wait_s: float) -> bool:
        """Wait for ``event``, at most ``wait_s`` seconds; by how much the wait is late counts for the next ones."""
        due_s = self._clock() + wait_s
        is_set = event.wait(wait_s)
        self._late_s = max(self._clock() - due_s, LATE_DECAY * self._late_s, 0.0)
        self.margin_s = min(2 * self._late_s, LATE_MOST_S)
        return is_set
