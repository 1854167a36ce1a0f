"""A function's requests to the budget that are under way, and how long recent ones took to be answered."""

from __future__ import annotations

import threading
from collections.abc import Callable

#: Longest wait for answers of a function that settles its money, seconds, in so many parts: one that is suspended
#: meanwhile loses one of these.
ANSWERS_S, WAITS = 0.1, 10
#: A request may take so many times as long as recent ones; at most so many seconds are kept for that.
SLACK, MOST_S = 2.0, 1.0


class Questions:
    """Those of one function.

    Parameters
    ----------
    lock : threading.Lock
        Of the money that is asked for.
    elapsed_s : callable
        Seconds since the function was started.
    """

    def __init__(self, lock: threading.Lock, elapsed_s: Callable[[], float]) -> None:
        #: Holds the lock; an answer wakes those that wait.
        self.answered, self._elapsed_s = threading.Condition(lock), elapsed_s
        self._n, self._answer_s = 0, 0.0

    @property
    def slow_answer_s(self) -> float:
        """Seconds to keep for an answer that is slow: storage that many functions change at once takes half a second.

        Half of what was measured is left of it with the next answer.
        """
        return min(SLACK * self._answer_s, MOST_S)

    def add(self) -> None:
        """A request is under way, for which a function that settles its money waits; to be called with the lock."""
        self._n += 1

    def begin(self) -> float:
        """As `add`, without the lock; returns the elapsed seconds."""
        with self.answered:
            self.add()
        return self._elapsed_s()

    def end(self, asked_s: float | None = None) -> None:
        """It is answered, or has failed; what began at ``asked_s`` was a single one, whose time counts."""
        with self.answered:
            self._n -= 1
            self.answered.notify_all()
        if asked_s is not None:
            self.note(self._elapsed_s() - asked_s)

    def note(self, answer_s: float) -> None:
        """An answer has taken so many seconds."""
        self._answer_s = max(answer_s, 0.5 * self._answer_s)

    def wait(self) -> None:
        """Wait until no request is under way; to be called with `answered`."""
        for _ in range(WAITS):
            if self.answered.wait_for(lambda: not self._n, ANSWERS_S / WAITS):
                return
