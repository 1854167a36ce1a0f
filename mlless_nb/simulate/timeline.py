"""Virtual time and its queue of events."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

from ..errors import MllessError

try:
    import greenlet
except ImportError:
    raise MllessError("the simulator needs greenlet; install it: pip install 'mlless_nb[simulate]'") from None


class Timeline:
    """Virtual time and its queue of events.

    Attributes
    ----------
    now : float
        Seconds since the beginning.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._queue: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._n_made = 0
        self._is_over = False
        self.loop = greenlet.getcurrent()

    def at(self, when_s: float, action: Callable[..., None], *arguments: Any) -> None:
        """Call ``action`` at ``when_s``."""
        self._n_made += 1
        heapq.heappush(self._queue, (when_s, self._n_made, action, arguments))

    def after(self, seconds: float, action: Callable[..., None], *arguments: Any) -> None:
        """Call ``action`` in ``seconds``."""
        self._n_made += 1
        heapq.heappush(self._queue, (self.now + seconds, self._n_made, action, arguments))

    def stop(self) -> None:
        """Process no further event."""
        self._is_over = True

    def run(self) -> None:
        """Process events in order until there are none, or `stop` was called."""
        queue, pop = self._queue, heapq.heappop
        while queue and not self._is_over:
            self.now, _, action, arguments = pop(queue)
            action(*arguments)
