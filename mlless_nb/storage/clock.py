"""A storage's clock as its answers tell it: whole seconds, from which many answers make a finer reading. Pure."""

from __future__ import annotations

import email.utils
import math
import threading
import time
from collections.abc import Callable

#: The resolution of the ``Date`` of an answer, seconds.
RESOLUTION_S = 1.0
#: Seconds of a bound's age by which it is loosened by a millisecond: two clocks drift apart.
DRIFT_S = 10.0


def date_of(text: str) -> float | None:
    """Seconds since 1970 from an HTTP date, None if it is none."""
    try:
        return email.utils.parsedate_to_datetime(text).timestamp()
    except (TypeError, ValueError):
        return None


class ServerClock:
    """The difference between a server's clock and this process' own, within bounds that every answer narrows.

    An answer with the date D to a request that was sent at ``a`` and answered at ``b``, by this process' clock, was
    written while the server's clock was in [D, D + 1): the difference is between ``D - b`` and ``D + 1 - a``.

    Parameters
    ----------
    clock : callable
        This process' clock, seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._low, self._high, self._noted_at = -math.inf, math.inf, 0.0

    @property
    def is_set(self) -> bool:
        """Whether an answer was noted."""
        return self._low > -math.inf

    def note(self, sent_s: float, answered_s: float, date_s: float) -> None:
        """Note an answer: when it was asked for and came, by this process' clock, and its date, seconds."""
        low, high = date_s - answered_s, date_s + RESOLUTION_S - sent_s
        with self._lock:
            slack = (answered_s - self._noted_at) / DRIFT_S * 1e-3 if self.is_set else 0.0
            self._low, self._high = max(self._low - slack, low), min(self._high + slack, high)
            self._noted_at = answered_s
            if self._low > self._high:  # one of the clocks was set
                self._low, self._high = low, high

    def now_s(self) -> float:
        """The server's clock, seconds since 1970: the middle of the bounds."""
        with self._lock:
            return self._clock() + (self._low + self._high) / 2
