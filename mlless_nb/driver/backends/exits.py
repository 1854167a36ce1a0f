"""When functions of this machine exited, as the kernel tells it: a bill that nobody else closes ends then."""

from __future__ import annotations

import contextlib
import math
import os
import select
import threading
import time
from collections.abc import Callable, Mapping

from ...exchange.slots import invoked_s_in, pid_in
from .processes import children, is_running, started_at

#: Seconds between two looks at which processes there are, and for how long they are looked for after an invocation: one
#: that claims its slot later is watched once it has.
LOOK_S, LOOK_FOR_S = 0.02, 15.0
#: At least so many times as long as a look takes is waited until the next.
LOOK_SHARE = 10.0
#: Longest wait for exits at a time, and how long it takes where this process stands still, e.g. is suspended, seconds.
TURN_S, STANDS_S = 0.5, 1.5
#: Longest wait until killed processes have exited, seconds.
EXIT_S = 0.5
#: How much earlier than it was a process' start may be told, seconds.
TICK_S = 0.01


class Exits:
    """Those of one run's functions. On a system without pidfds nothing is known.

    Parameters
    ----------
    groups : callable
        The process groups of the functions; the first process of each has started the others.
    """

    def __init__(self, groups: Callable[[], list[int]]) -> None:
        self._groups, self._has_seen = groups, False
        #: When the process of the first functions began, on the monotonic clock; None if that is not known.
        self.began_at: float | None = None
        #: Called after processes have exited, by the thread that waits for them.
        self.on_exit: Callable[[], object] = lambda: None
        self._newest: dict[int, int] = {}  # the process of the function that was seen last in each slot
        # The processes of all that were seen, by slot and when they were invoked, seconds after the run.
        self._processes: dict[tuple[int, float], int] = {}
        self._first_invoked_at = math.inf
        self._invoked_at: dict[int, float] = {}  # when another one was invoked for a slot that is not seen there yet
        self._at: dict[int, float] = {}  # when processes exited, monotonic clock
        self._lock = threading.Lock()
        self._poll: select.epoll | None = None  # there is one while its thread runs
        self._has_stood_still = False  # exits may have been seen late
        self._watched: dict[int, int] = {}  # the processes that live, by their pidfds
        self._look_until = -math.inf  # the thread that looks for them ends then
        self._found: dict[int, set[int]] = {}  # the processes of each group
        self._others: set[int] = set()  # those of them that are functions of known slots, or have started others
        self._starters: set[int] = set()  # those that have started others
        self._groups_before: set[int] = set()
        # When the first process of each group began, monotonic clock, and how many functions were invoked in it.
        self._began_at: dict[int, float] = {}
        self._n_functions: dict[int, int] = {}
        self._group_of: dict[int, int | None] = {}  # in which group the newest function of a slot was invoked

    def invoked(self, invoked_at: Mapping[int, float]) -> None:
        """Functions were invoked for these slots: of each little is known until it has been seen there.

        ``invoked_at``: by slot, when that was decided, on the monotonic clock; no bill of these began before.
        """
        now = time.monotonic()
        self._invoked_at |= invoked_at
        self._first_invoked_at = min(self._first_invoked_at, *invoked_at.values())
        if not (groups := self._groups()):
            return
        if self.began_at is None:
            self.began_at = self._first_of(groups, now)
        with self._lock:
            self._group_of |= dict.fromkeys(
                invoked_at, next((group for group in reversed(groups) if group not in self._groups_before), None)
            )
            self._n_functions |= dict.fromkeys(set(groups) - self._groups_before, len(invoked_at))
            self._groups_before.update(groups)
            is_looking, self._look_until = now < self._look_until, now + LOOK_FOR_S
        if has_pidfds() and not is_looking:
            try:
                threading.Thread(target=self._look, name="mlless-exits-look", daemon=True).start()
            except RuntimeError:  # the bill does without, and so does the run
                self._look_until = -math.inf

    def _first_of(self, groups: list[int], now: float) -> float:
        """When the first of the run's processes was started; Lithops returns some 10 ms later.

        Before the first invocation there were others, which prepared the data.
        """
        first = self._first_invoked_at
        started = [at for group in groups if (at := started_at(group)) is not None]
        return min((max(at, first) for at in started if first - TICK_S <= at < now), default=now)

    def note(self, at_work: Mapping[int, str]) -> None:
        """Note the functions that have these slots, see `Coordinator.at_work`."""
        for slot, nonce in at_work.items():
            pid = pid_in(nonce)
            if self._newest.get(slot) != pid and self._is_known(pid):
                self._newest[slot] = self._processes[slot, invoked_s_in(nonce)] = pid
                self._others.add(pid)
                self._invoked_at.pop(slot, None)
                with contextlib.suppress(OSError), self._lock:  # it has exited
                    self._found.setdefault(os.getpgid(pid), set()).add(pid)

    def at(self, slot: int, began_at: float = math.inf) -> float | None:
        """When the functions of ``slot`` had exited, on the monotonic clock; None if one lives, or it is not known.

        ``began_at``: when the bill of the newest one began; before another one was invoked that has not come, it is
        that of the one before. One that was never seen is one of those that were invoked with it and never seen either:
        the last of these counts.
        """
        invoked_at, newest = self._invoked_at.get(slot), self._newest.get(slot)
        with self._lock:
            if newest is not None and (invoked_at is None or began_at < invoked_at or newest not in self._at):
                return self._at.get(newest)
            group = self._group_of.get(slot)
            if invoked_at is None or group is None:
                return None
            unseen = self._found.get(group, set()) - self._others - {group}
            n_slots = sum(self._group_of.get(one) == group for one in self._invoked_at)
            if len(unseen) < n_slots or not unseen <= self._at.keys():
                return None
            return max(self._at[pid] for pid in (*unseen, newest) if pid is not None)

    def until(self, slot: int, invoked_s: float) -> float | None:
        """When one function had exited, on the monotonic clock; infinity while it lives, None if that is not known.

        ``invoked_s``: when it was invoked for ``slot``, seconds after the run; 0 for one of the first.
        """
        pid = self._processes.get((slot, invoked_s))
        with self._lock:
            return None if pid is None else self._at.get(pid, math.inf if pid in self._watched.values() else None)

    def lives(self) -> tuple[list[tuple[float, float]], bool]:
        """When functions began, with the process that starts them, and when they exited, both on the monotonic clock.

        Those of which it is known, and whether these are all and none is left. Functions are the processes that have
        started no others; those that were not started yet have lived as long as the process that was to do it.
        """
        if self._has_stood_still:
            return [], False
        with self._lock:
            found, functions = [], set[int]()
            # A kernel that lists no children shows no starters, and functions only once they have claimed their slots.
            are_all = bool(self._starters) and not self._watched and self._groups_before <= self._began_at.keys()
            for group, began_at in self._began_at.items():
                if began_at < self._first_invoked_at - TICK_S:  # it has prepared the data
                    continue
                those, n = self._found[group] - self._starters - {group}, self._n_functions.get(group, 1)
                if not those and self._starters and group in self._at:  # it ended before it had started them
                    found += [(began_at, self._at[group])] * n
                elif len(those) > n:  # others are among them
                    are_all = False
                else:
                    are_all = are_all and len(those) == n
                    functions |= those
                    found += [(began_at, self._at[pid]) for pid in those if pid in self._at]
            return found, are_all and functions.issuperset(self._processes.values())

    @property
    def are_left(self) -> bool:
        """Whether processes live that have been seen."""
        with self._lock:
            return bool(self._watched)

    def wait(self, seconds: float) -> None:
        """Wait at most so long until none is left: they were killed, or return."""
        give_up_at = time.monotonic() + seconds
        while self.are_left and time.monotonic() < give_up_at:
            time.sleep(0.01)

    def _is_known(self, pid: int) -> bool:
        """Whether this is a process of this machine, which is watched then; False if nobody can tell yet."""
        if not has_pidfds():
            return True
        with self._lock:
            is_ours = pid in self._at or pid in self._watched.values()
        if not is_ours and is_running(pid, self._groups()):
            is_ours = True
            self._watch(pid)
        if is_ours or self._has_seen:  # else it may be the number of another process, e.g. in a container
            self._has_seen = True
            if not is_ours:
                self._at[pid] = time.monotonic()  # it has exited since it came
        return self._has_seen

    def _look(self) -> None:
        """Watch all processes that start functions, and those of functions, also before these claim their slots.

        Else the exit of one that is lost a moment after it has claimed its slot would be known a moment too late.
        """
        while True:
            began_at = time.monotonic()
            with self._lock:
                groups = [group for group in self._groups() if group not in self._at]
                if began_at >= self._look_until or not self._invoked_at or not groups:
                    self._look_until = -math.inf
                    return
            for group in groups:
                self._find(group, group)
            # With many functions a look takes a while.
            time.sleep(max(LOOK_S, LOOK_SHARE * (time.monotonic() - began_at)))

    def _find(self, pid: int, group: int) -> None:
        """Watch a process of ``group`` and those that it has started."""
        self._watch(pid)
        for child in (started := children(pid)):
            self._find(child, group)
        began_at = None if pid != group or group in self._began_at else started_at(group)
        with self._lock:
            if began_at is not None:
                self._began_at[group] = began_at
            self._found.setdefault(group, set()).add(pid)
            if started:
                self._others.add(pid)
                self._starters.add(pid)

    def _watch(self, pid: int) -> None:
        """Note when this process exits."""
        with contextlib.suppress(OSError, RuntimeError), self._lock:  # the bill does without, and so does the run
            is_new = pid in self._at and is_running(pid, self._groups())  # its number is used anew
            if pid not in self._watched.values() and (is_new or pid not in self._at):
                self._follow(os.pidfd_open(pid), pid)
                if is_new:
                    del self._at[pid]
                    self._others.discard(pid)
                    self._starters.discard(pid)

    def _follow(self, pidfd: int, pid: int) -> None:
        """Have the thread wait for this one, too."""
        try:
            if self._poll is None:
                poll = select.epoll()
                poll.register(pidfd, select.EPOLLIN)
                threading.Thread(target=self._wait, args=(poll,), name="mlless-exits", daemon=True).start()
                self._poll = poll
            else:
                self._poll.register(pidfd, select.EPOLLIN)
            self._watched[pidfd] = pid
        except BaseException:
            os.close(pidfd)
            raise

    def _wait(self, poll: select.epoll) -> None:
        """Note who exits, until nobody is left."""
        while True:
            asked_at = time.monotonic()
            exited = poll.poll(TURN_S)  # also those that are registered meanwhile
            now = time.monotonic()
            self._has_stood_still |= now - asked_at > STANDS_S
            if not exited:
                continue
            with self._lock:
                for pidfd, _ in exited:
                    self._at[self._watched.pop(pidfd)] = now
                    poll.unregister(pidfd)
                    os.close(pidfd)
                if is_over := not self._watched:
                    poll.close()
                    self._poll = None
            self.on_exit()
            if is_over:
                return


def has_pidfds() -> bool:
    """Whether this system tells when a process exits that is no child of this one."""
    return hasattr(os, "pidfd_open") and hasattr(select, "epoll")
