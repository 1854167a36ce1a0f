"""Virtual time for ordinary code: processes and their threads are greenlets that run between events.

What blocks (a sleep, a wait, a request to a server) switches to the clock and returns at a later virtual time, so the
code under test runs unchanged, and a simulation is a pure function of its seed. A process can be killed or paused
between any two events.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable
from typing import Any

import greenlet


class Killed(BaseException):
    """The process was killed; ``except Exception`` does not catch it."""


class HangError(AssertionError):
    """The simulation is not over when it should be."""


class Clock:
    """Virtual time and its queue of events.

    Attributes
    ----------
    now : float
        Seconds since the beginning.
    n_events : int
        Events handled so far.
    """

    def __init__(self) -> None:
        self.now, self.n_events = 0.0, 0
        self.loop = greenlet.getcurrent()
        self._queue: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._n_made = 0

    def at(self, when_s: float, action: Callable[..., None], *arguments: Any) -> None:
        """Call ``action`` at ``when_s``."""
        self._n_made += 1
        heapq.heappush(self._queue, (max(when_s, self.now), self._n_made, action, arguments))

    def run(self, is_over: Callable[[], bool], until_s: float) -> None:
        """Handle events in the order of their times until ``is_over()``; `HangError` if that is not by ``until_s``."""
        queue, pop = self._queue, heapq.heappop
        while not is_over():
            if not queue or queue[0][0] > until_s:
                raise HangError(f"not over after {self.now:.1f} virtual seconds")
            self.now, _, action, arguments = pop(queue)
            self.n_events += 1
            action(*arguments)

    # -- for code in a process

    def sleep(self, seconds: float) -> None:
        """Return ``seconds`` later."""
        thread = current()
        self.at(self.now + seconds, thread.wake, thread.expect())
        self.pause()

    def pause(self) -> Any:
        """Return when this thread is woken with its latest ticket; returns the value that it is woken with."""
        return self.loop.switch()


class Process:
    """A process with threads.

    Parameters
    ----------
    clock : Clock
    name : str
    pid : int
    on_end : callable
        Called with the process once it has ended, for any reason.

    Attributes
    ----------
    is_alive : bool
    died_s : float or None
        When it ended, None before.
    paused_until : float
        The process gets no processor time before.
    error : Exception or None
        What its main thread raised.
    """

    def __init__(self, clock: Clock, name: str, pid: int, on_end: Callable[[Process], None]) -> None:
        self.clock, self.name, self.pid, self._on_end = clock, name, pid, on_end
        self.is_alive, self.paused_until = True, 0.0
        self.died_s: float | None = None
        self.error: Exception | None = None
        self._threads: list[SimThread] = []

    def spawn(self, body: Callable[[], Any], *, is_main: bool = False) -> SimThread:
        """Start a thread now. The process ends with its main thread."""
        thread = SimThread(self, body, is_main)
        self._threads.append(thread)
        self.clock.at(self.clock.now, thread.wake, thread.turn)
        return thread

    def check(self) -> None:
        """Raise `Killed` in a thread that unwinds after the end of the process: it has no further effect."""
        if not self.is_alive:
            raise Killed

    def kill(self) -> None:
        """End the process at once; only from the clock."""
        if not self.is_alive:
            return
        self.is_alive, self.died_s = False, self.clock.now
        for thread in self._threads:
            if thread:  # it has begun, and has not ended
                thread.throw(Killed())
        self._threads.clear()
        self._on_end(self)

    def die(self) -> None:
        """End the process from one of its threads."""
        self.clock.at(self.clock.now, self.kill)
        self.clock.pause()

    def freeze(self, seconds: float) -> None:
        """Give the process no processor time for ``seconds``."""
        self.paused_until = max(self.paused_until, self.clock.now + seconds)


class SimThread(greenlet.greenlet):
    """A thread of a process."""

    def __init__(self, process: Process, body: Callable[[], Any], is_main: bool) -> None:
        super().__init__(parent=process.clock.loop)
        self.process, self._body, self._is_main, self.turn = process, body, is_main, 0
        self.has_ended, self._joining = False, list[tuple[SimThread, int]]()

    def run(self) -> None:
        """Run the body."""
        process, clock = self.process, self.process.clock
        try:
            self._body()
        except Killed:
            pass
        except Exception as error:
            process.error = process.error or error
        self.has_ended = True
        for thread, ticket in self._joining:
            clock.at(clock.now, thread.wake, ticket)
        if self._is_main and process.is_alive:
            clock.at(clock.now, process.kill)

    def expect(self) -> int:
        """A ticket for the next pause."""
        self.process.check()
        self.turn += 1
        return self.turn

    def wake(self, ticket: int, value: Any = None) -> None:
        """End the pause of ``ticket``; without effect if that has ended. Only from the clock."""
        process = self.process
        if ticket != self.turn or not process.is_alive or self.dead:
            return
        if process.paused_until > process.clock.now:
            process.clock.at(process.paused_until, self.wake, ticket, value)
            return
        self.turn += 1
        if self:
            self.switch(value)
        else:
            self.switch()

    def join_from(self, thread: SimThread) -> None:
        """Let ``thread`` wait until this one has ended."""
        if not self.has_ended:
            self._joining.append((thread, thread.expect()))
            self.process.clock.pause()


def current() -> SimThread:
    """The thread that runs."""
    thread = greenlet.getcurrent()
    assert isinstance(thread, SimThread), "blocking code outside of a simulated process"
    return thread


class Condition:
    """See `threading.Condition`. Code between two events has the whole world to itself, so that it locks nothing."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._waiting = clock, list[tuple[SimThread, int]]()

    def __enter__(self) -> bool:
        return True

    def __exit__(self, *_: object) -> None:
        pass

    def notify_all(self) -> None:
        """Wake all that wait."""
        clock, self._waiting, waiting = self._clock, [], self._waiting
        for thread, ticket in waiting:
            clock.at(clock.now, thread.wake, ticket)

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        """Wait until ``predicate()`` is true, at most ``timeout`` seconds; returns its value."""
        clock, thread = self._clock, None
        end_s = None if timeout is None else clock.now + timeout
        while not (found := predicate()) and (end_s is None or clock.now < end_s):
            thread = thread or current()
            ticket = thread.expect()
            self._waiting.append((thread, ticket))
            if end_s is not None:
                clock.at(end_s, thread.wake, ticket)
            clock.pause()
        return found


class Threading:
    """What the code under test uses of `threading`."""

    Lock = staticmethod(threading.Lock)  # never held across a pause

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def Condition(self, _: object = None) -> Condition:  # noqa: N802 - the module's names
        """See `threading.Condition`."""
        return Condition(self._clock)

    def Event(self) -> _Event:  # noqa: N802
        """See `threading.Event`."""
        return _Event(Condition(self._clock))

    def Thread(self, target: Callable[..., Any], args: tuple[Any, ...] = (), **_: Any) -> _Thread:  # noqa: N802
        """See `threading.Thread`; all are daemons."""
        return _Thread(lambda: target(*args))

    @staticmethod
    def main_thread() -> threading.Thread:
        """See `threading.main_thread`."""
        return threading.main_thread()


class _Event:
    def __init__(self, changed: Condition) -> None:
        self._changed, self._is_set = changed, False

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        self._changed.notify_all()

    def wait(self, timeout: float | None = None) -> bool:
        return bool(self._changed.wait_for(lambda: self._is_set, timeout))


class _Thread:
    def __init__(self, body: Callable[[], Any]) -> None:
        self._body, self._thread = body, None

    def start(self) -> None:
        self._thread = current().process.spawn(self._body)

    def is_alive(self) -> bool:
        return self._thread is not None and not self._thread.has_ended

    def join(self, timeout: float | None = None) -> None:
        thread, clock = self._thread, current().process.clock
        if thread is None:
            return
        if timeout is None:
            thread.join_from(current())
            return
        if not thread.has_ended:
            waiting = current()
            ticket = waiting.expect()
            thread._joining.append((waiting, ticket))
            clock.at(clock.now + timeout, waiting.wake, ticket)
            clock.pause()


class Time:
    """What the code under test uses of `time`."""

    strftime = staticmethod(time.strftime)

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.sleep = clock.sleep

    def monotonic(self) -> float:
        """See `time.monotonic`; also the time of day."""
        return self._clock.now

    time = thread_time = perf_counter = monotonic
