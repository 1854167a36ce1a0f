"""How long a supervisor waits for servers that do not answer or have lost the run's data, which the driver restores."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

#: Longest wait, and the pause between two tries, seconds.
LONGEST_OUTAGE_S, OUTAGE_POLL_S = 60.0, 0.1


class ServerOutage:
    """The servers of one run, as its supervisor meets them.

    Parameters
    ----------
    clock : callable
        Monotonic clock, seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._since = clock, math.inf

    def answered(self) -> None:
        """The servers answer."""
        self._since = math.inf

    def wait(self, error: Exception) -> None:
        """Pause after ``error``, which is raised if they have been away for too long."""
        now = self._clock()
        self._since = min(self._since, now)
        if now - self._since > LONGEST_OUTAGE_S:
            raise error
        time.sleep(OUTAGE_POLL_S)
