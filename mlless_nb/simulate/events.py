"""Virtual time: a queue of events, and processes that run ordinary blocking code between them.

A process is a greenlet. What blocks in it hands over to the event loop and comes back at a later virtual time, so the
loops of `Worker` and `Supervisor` run as they are. Events of one time are taken in the order in which they were made:
a simulation is a pure function of what it is given.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import MllessError

if TYPE_CHECKING:
    from .cores import Cores

try:
    import greenlet
except ImportError:
    raise MllessError("the simulator needs greenlet; install it: pip install 'mlless_nb[simulate]'") from None


class Timeline:
    """Virtual time and what is to happen in it.

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
        """Take no further event."""
        self._is_over = True

    def run(self) -> None:
        """Take the events in their order until there is none, or `stop` was called."""
        queue, pop = self._queue, heapq.heappop
        while queue and not self._is_over:
            self.now, _, action, arguments = pop(queue)
            action(*arguments)


class Killed(BaseException):
    """A process is ended from outside, as a platform ends a function: no ``except Exception`` sees it."""


class Process:
    """Ordinary code that runs in virtual time.

    Parameters
    ----------
    timeline : Timeline
    cores : Cores
        Where its processor time is spent.
    body : callable
        Takes the process.
    on_end : callable
        Takes the process, once its body has returned or it was killed.
    """

    def __init__(
        self,
        timeline: Timeline,
        cores: Cores,
        body: Callable[[Process], None],
        on_end: Callable[[Process], None] = lambda process: None,
    ) -> None:
        self._timeline, self._cores, self._body, self._on_end = timeline, cores, body, on_end
        self._greenlet = greenlet.greenlet(self._run, timeline.loop)
        self._has_begun = False
        self._turn = 0
        self._owed_s = 0.0
        #: Seconds of processor time that it has spent.
        self.cpu_s = 0.0

    def _run(self) -> None:
        try:
            self._body(self)
            self._settle()
        except Killed:
            pass
        finally:
            self._on_end(self)

    def start(self) -> None:
        """Begin, as an event."""
        self._has_begun = True
        self._greenlet.switch()

    @property
    def is_alive(self) -> bool:
        """Whether the body has neither returned nor been killed."""
        return not self._greenlet.dead

    def kill(self) -> None:
        """End it where it stands; from the event loop only."""
        self._turn += 1
        if self._has_begun and not self._greenlet.dead:
            self._greenlet.throw(Killed())

    # -- for the body

    def spend(self, cpu_s: float) -> None:
        """Note that the body has used ``cpu_s`` of a core; time passes for it when it next looks at the clock."""
        self._owed_s += cpu_s

    def switch(self) -> None:
        """Note that it is back on its core after it waited for others."""
        self._owed_s += self._cores.return_s

    def clock(self) -> float:
        """The virtual time once everything noted has been computed; what a loop takes for ``time.monotonic``."""
        if self._owed_s:
            self._settle()
        return self._timeline.now

    def _settle(self) -> None:
        cpu_s, self._owed_s = self._owed_s, 0.0
        if cpu_s > 0:
            self.cpu_s += cpu_s
            self._cores.run(cpu_s, self.wake, self.expect())
            self.pause()

    def expect(self) -> int:
        """A ticket for the next `pause`: whoever holds it may end that pause with `wake`."""
        self._turn += 1
        return self._turn

    def pause(self, timeout_s: float | None = None) -> Any:
        """Wait for `wake`; returns its value, None when ``timeout_s`` have passed. The ticket is `expect`'s latest."""
        if timeout_s is not None:
            self._timeline.after(timeout_s, self.wake, self._turn, None)
        return self._timeline.loop.switch()

    def sleep(self, seconds: float) -> None:
        """Let ``seconds`` pass without using a core."""
        self._timeline.after(seconds, self.wake, self.expect())
        self.pause()

    def wake(self, ticket: int, value: Any = True) -> None:
        """End the pause of ``ticket``; nothing happens when that is over. From the event loop only."""
        if ticket == self._turn and not self._greenlet.dead:
            self._turn += 1
            self._greenlet.switch(value)
