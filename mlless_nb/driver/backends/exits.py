"""When functions of this machine exited, as the kernel tells it: a bill that nobody else closes ends then."""

from __future__ import annotations

import contextlib
import math
import os
import select
import threading
import time
from collections.abc import Callable, Iterable, Mapping

from ...exchange.slots import pid_in
from .processes import is_running


class Exits:
    """Those of one run's functions. On a system without pidfds nothing is known.

    Parameters
    ----------
    groups : callable
        The process groups of the functions.
    """

    def __init__(self, groups: Callable[[], list[int]]) -> None:
        self._groups, self._has_seen = groups, False
        #: When the process of the first functions was there, on the monotonic clock; None if that is not known.
        self.began_at: float | None = None
        self._newest: dict[int, str] = {}  # the function that was seen last in each slot
        self._invoked_at: dict[int, float] = {}  # when another one was invoked for a slot that is not seen there yet
        self._at: dict[str, float] = {}  # when functions exited, monotonic clock
        self._lock = threading.Lock()
        self._poll: select.epoll | None = None  # there is one while its thread runs
        self._watched: dict[int, str] = {}  # the functions that live, by their pidfds

    def invoked(self, slots: Iterable[int]) -> None:
        """Functions were invoked for these slots: of each nothing is known until it has been seen there."""
        now = time.monotonic()
        self._invoked_at |= dict.fromkeys(slots, now)
        if self.began_at is None and self._groups():
            self.began_at = now

    def note(self, at_work: Mapping[int, str]) -> None:
        """Watch the functions that have these slots, see `Coordinator.at_work`."""
        for slot, nonce in at_work.items():
            if self._newest.get(slot) != nonce and self._watch(nonce):
                self._newest[slot] = nonce
                self._invoked_at.pop(slot, None)

    def at(self, slot: int, began_at: float = math.inf) -> float | None:
        """When the newest function of ``slot`` exited, on the monotonic clock; None if it lives, or is not known.

        ``began_at``: when its bill began; before another one was invoked that has not come, it is the one before.
        """
        invoked_at = self._invoked_at.get(slot)
        if invoked_at is not None and began_at >= invoked_at:
            return None
        return self._at.get(self._newest.get(slot, ""))

    def _watch(self, nonce: str) -> bool:
        """Watch this function; False if nobody can tell yet whether it is of this machine."""
        if not hasattr(os, "pidfd_open") or not hasattr(select, "epoll"):
            return True
        pid = pid_in(nonce)
        if not is_running(pid, self._groups()):
            if self._has_seen:  # else it may be the number of another process, e.g. in a container
                self._at[nonce] = time.monotonic()  # it has exited since it came
            return self._has_seen
        self._has_seen = True
        with contextlib.suppress(OSError, RuntimeError), self._lock:  # the bill does without, and so does the run
            self._follow(os.pidfd_open(pid), nonce)
        return True

    def _follow(self, pidfd: int, nonce: str) -> None:
        """Have the thread wait for this one, too."""
        try:
            if self._poll is None:
                poll = select.epoll()
                poll.register(pidfd, select.EPOLLIN)
                threading.Thread(target=self._wait, args=(poll,), name="mlless-exits", daemon=True).start()
                self._poll = poll
            else:
                self._poll.register(pidfd, select.EPOLLIN)
            self._watched[pidfd] = nonce
        except BaseException:
            os.close(pidfd)
            raise

    def _wait(self, poll: select.epoll) -> None:
        """Note who exits, until nobody is left."""
        while True:
            exited = poll.poll()  # also those that are registered meanwhile
            now = time.monotonic()
            with self._lock:
                for pidfd, _ in exited:
                    self._at[self._watched.pop(pidfd)] = now
                    poll.unregister(pidfd)
                    os.close(pidfd)
                if not self._watched:
                    poll.close()
                    self._poll = None
                    return
