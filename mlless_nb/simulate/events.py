"""Processes in virtual time: they run ordinary blocking code between events.

A process is a greenlet. A blocking call in it switches to the event loop and returns at a later virtual time, so the
loops of `Worker` and `Supervisor` run unchanged. Events at the same time are handled in the order of their creation, so
a simulation is a pure function of its arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import greenlet

from .cores import Cores
from .timeline import Timeline


class Killed(BaseException):
    """A process was killed, as a platform kills a function; ``except Exception`` does not catch it."""


class Process:
    """Ordinary code that runs in virtual time.

    Parameters
    ----------
    timeline : Timeline
    cores : Cores
        Provides its processor time.
    body : callable
        The code to run; called with the process.
    on_end : callable
        Called with the process, once its body has returned or it was killed.
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
        """Schedule the start as an event."""
        self._has_begun = True
        self._greenlet.switch()

    @property
    def is_alive(self) -> bool:
        """Whether the body has neither returned nor been killed."""
        return not self._greenlet.dead

    def kill(self) -> None:
        """End the process at once; only from the event loop."""
        self._turn += 1
        if self._has_begun and not self._greenlet.dead:
            self._greenlet.throw(Killed())

    # -- for the body

    def spend(self, cpu_s: float) -> None:
        """Add ``cpu_s`` seconds of a core to the body's work; its time advances when it next reads the clock."""
        self._owed_s += cpu_s

    def switch(self) -> None:
        """Add the processor time of continuing after a wait."""
        self._owed_s += self._cores.return_s

    def clock(self) -> float:
        """The virtual time after all added work is done, seconds; the loops use it as ``time.monotonic``."""
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
        """A ticket for the next `pause`, which `wake` with this ticket ends."""
        self._turn += 1
        return self._turn

    def pause(self, timeout_s: float | None = None) -> Any:
        """Wait for `wake` with `expect`'s latest ticket; returns its value, or None after ``timeout_s`` seconds."""
        if timeout_s is not None:
            self._timeline.after(timeout_s, self.wake, self._turn, None)
        return self._timeline.loop.switch()

    def sleep(self, seconds: float) -> None:
        """Wait ``seconds`` without using a core."""
        self._timeline.after(seconds, self.wake, self.expect())
        self.pause()

    def wake(self, ticket: int, value: Any = True) -> None:
        """End the pause of ``ticket``; without effect if that has ended. Only from the event loop."""
        if ticket == self._turn and not self._greenlet.dead:
            self._turn += 1
            self._greenlet.switch(value)
