"""Virtual time: a queue of events, and processes that run ordinary blocking code between them.

A process is a greenlet. What blocks in it hands over to the event loop and comes back at a later virtual time, so the
loops of `Worker` and `Supervisor` run as they are. Events of one time are taken in the order in which they were made:
a simulation is a pure function of what it is given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import greenlet

from .cores import Cores
from .timeline import Timeline


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
