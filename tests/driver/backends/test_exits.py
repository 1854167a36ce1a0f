"""When functions of this machine exited, by real processes."""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import IO

import pytest

from mlless_nb.driver.backends import exits as exits_module
from mlless_nb.driver.backends.exits import Exits
from mlless_nb.exchange.slots import nonce_of

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="this system has no pidfds")
#: A process that starts another one, as Lithops' runner does, which says who it is and waits to be killed.
RUNNER = """
import os, time
if os.fork():
    os.wait()
    time.sleep(600)
os.write(1, b"%d\\n" % os.getpid())
time.sleep(600)
"""
#: And one that starts three, which say who they are.
FORKS = """
import os, time
if os.fork() and os.fork() and os.fork():
    for _ in range(3):
        os.wait()
    time.sleep(600)
os.write(1, b"%d\\n" % os.getpid())
time.sleep(600)
"""
needs_children = pytest.mark.skipif(
    not os.path.exists(f"/proc/self/task/{os.getpid()}/children"), reason="this kernel does not list children"
)
#: For a machine that is busy with other things.
PATIENCE_S = 30.0


class Function:
    """A process that waits to be killed, in a process group of its own."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True
        )
        self.nonce = nonce_of(self.process.pid, 0.0)

    def kill(self) -> float:
        """Kill it, and wait until it has ended; when that began."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(PATIENCE_S)
        return began


def until(condition: Callable[[], object]) -> None:
    """Wait until ``condition`` comes true."""
    give_up_at = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < give_up_at
        time.sleep(0.001)


def exit_of(exits: Exits, slot: int) -> float:
    """When the function of ``slot`` exited, once that is known."""
    until(lambda: exits.at(slot) is not None)
    at = exits.at(slot)
    assert at is not None
    return at


@contextlib.contextmanager
def running(code: str) -> Iterator[tuple[int, IO[str]]]:
    """A process that starts functions, by its number, and what these say."""
    runner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert runner.stdout is not None
    try:
        yield runner.pid, runner.stdout
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(runner.pid, signal.SIGKILL)
        runner.wait()
        runner.stdout.close()


def test_it_is_known_when_each_exited() -> None:
    functions = {slot: Function() for slot in (-1, 0, 1)}
    exits = Exits(lambda: [one.process.pid for one in functions.values()])
    exits.note({slot: one.nonce for slot, one in functions.items()})
    for slot in (1, -1):
        assert functions[slot].kill() <= exit_of(exits, slot)
    assert exits.at(0) is None
    functions[0].kill()
    exit_of(exits, 0)
    assert exit_of(exits, 1) < exit_of(exits, -1) < exit_of(exits, 0)


def test_a_function_in_the_place_of_another_one_is_the_one_that_counts() -> None:
    first, second = Function(), Function()
    exits = Exits(lambda: [first.process.pid, second.process.pid])
    exits.note({0: first.nonce})
    first.kill()
    exit_of(exits, 0)
    exits.note({0: second.nonce})
    assert exits.at(0) is None
    second.kill()
    exit_of(exits, 0)


def test_of_each_that_was_seen_in_a_slot_it_is_known_how_long_it_lived() -> None:
    first, second = Function(), Function()
    exits = Exits(lambda: [first.process.pid, second.process.pid])
    exits.note({0: first.nonce})
    exits.note({0: nonce_of(second.process.pid, 7.5)})
    assert exits.until(0, 0.0) == exits.until(0, 7.5) == math.inf
    assert exits.until(0, 3.0) is exits.until(1, 0.0) is None
    began = first.kill()
    give_up_at = time.monotonic() + PATIENCE_S
    while exits.until(0, 0.0) == math.inf and time.monotonic() < give_up_at:
        time.sleep(0.01)
    at = exits.until(0, 0.0)
    assert at is not None
    assert began <= at <= time.monotonic()
    assert exits.until(0, 7.5) == math.inf
    second.kill()


def test_one_that_had_exited_when_it_was_seen_exited_by_then() -> None:
    first, second = Function(), Function()
    groups = [first.process.pid, second.process.pid]
    exits = Exits(lambda: groups)
    second.kill()
    exits.note({0: first.nonce, 1: second.nonce})
    assert exits.at(1) is not None
    first.kill()


def test_one_that_had_exited_before_any_was_seen_running_is_told_once_one_is() -> None:
    first, second = Function(), Function()
    exits = Exits(lambda: [first.process.pid, second.process.pid])
    first.kill()
    exits.note({-1: first.nonce, 0: second.nonce})
    assert exits.at(-1) is None
    exits.note({-1: first.nonce, 0: second.nonce})
    assert exits.at(-1) is not None
    second.kill()


def test_nothing_is_known_of_processes_of_another_machine() -> None:
    """Their numbers may be those of others here."""
    function = Function()
    exits = Exits(list)
    exits.note({0: function.nonce})
    function.kill()
    exits.note({1: nonce_of(function.process.pid, 1.0)})
    exits.invoked(dict.fromkeys((0, 1, 2, 3), time.monotonic()))
    assert [exits.at(slot) for slot in range(4)] == [None, None, None, None]


def test_nothing_is_known_of_a_function_that_was_invoked_and_has_not_been_seen() -> None:
    """The exit of the one before it, which may also be at work still, is not its own."""
    first, second = Function(), Function()
    exits = Exits(lambda: [first.process.pid, second.process.pid])
    exits.note({0: first.nonce})
    exits.invoked(dict.fromkeys((0, 1), time.monotonic()))
    exits.note({0: first.nonce})
    first.kill()
    time.sleep(0.2)
    assert (exits.at(0), exits.at(1)) == (None, None)
    exits.note({0: second.nonce})
    second.kill()
    exit_of(exits, 0)


def test_a_bill_that_began_before_another_one_was_invoked_is_of_the_one_before() -> None:
    """A successor that never comes does not make its exit unknown."""
    function = Function()
    exits, began_at = Exits(lambda: [function.process.pid]), time.monotonic()
    exits.note({0: function.nonce})
    exits.invoked({0: time.monotonic()})
    function.kill()
    until(lambda: exits.at(0, began_at) is not None)
    assert exits.at(0, time.monotonic()) is None


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the system does not tell it here")
def test_the_first_functions_began_with_their_process_however_late_that_is_told() -> None:
    earlier = Function()  # has prepared the data
    time.sleep(0.1)
    before = time.monotonic()
    function = Function()
    after = time.monotonic()
    time.sleep(0.3)
    exits = Exits(lambda: [earlier.process.pid, function.process.pid])
    exits.invoked({0: before})
    function.kill()
    earlier.kill()
    assert exits.began_at is not None
    assert before <= exits.began_at <= after


def test_functions_whose_start_is_not_known_began_when_they_were_told_of() -> None:
    function = Function()
    function.kill()
    exits, before = Exits(lambda: [function.process.pid]), time.monotonic()
    exits.invoked({0: before})
    assert exits.began_at is not None
    assert exits.began_at >= before


def refused(*_: object) -> int:
    """What a system does that has no more files."""
    raise OSError(24, "Too many open files")


@pytest.mark.parametrize(("where", "name"), [(os, "pidfd_open"), (select, "epoll")])
def test_a_system_that_refuses_to_watch_is_no_reason_to_fail(
    where: object, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = Function(), Function()
    exits = Exits(lambda: [first.process.pid, second.process.pid])
    with monkeypatch.context() as patched:
        patched.setattr(where, name, refused)
        exits.note({0: first.nonce})
    exits.note({1: second.nonce})
    for one in (first, second):
        one.kill()
    exit_of(exits, 1)
    assert exits.at(0) is None


@needs_children
def test_one_that_exits_before_anybody_has_seen_its_slot_is_watched_since_it_was_invoked() -> None:
    """It was billed until the run's end: its slot was looked at four times a second."""
    with running(RUNNER) as (runner, said):
        exits = Exits(lambda: [runner])
        exits.invoked({-1: time.monotonic()})
        pid = int(said.readline())
        until(lambda: pid in exits._watched.values())
        killed_at = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        until(lambda: pid in exits._at)
        exited_at = exit_of(exits, -1)  # nobody has claimed a slot, and no other one was invoked
        seen_at = time.monotonic()
        exits.note({-1: nonce_of(pid, 0.0)})
        assert killed_at <= exit_of(exits, -1) == exited_at <= seen_at


@needs_children
def test_one_that_never_claimed_its_slot_exited_when_the_last_of_those_did() -> None:
    with running(FORKS) as (runner, said):
        exits, launched_at = Exits(lambda: [runner]), time.monotonic()
        exits.invoked(dict.fromkeys((-1, 0, 1), launched_at))
        supervisor, one, other = (int(said.readline()) for _ in range(3))
        exits.note({-1: nonce_of(supervisor, 0.0)})
        until(lambda: {runner, one, other} <= exits._found.get(runner, set()))
        os.kill(one, signal.SIGKILL)
        until(lambda: one in exits._at)
        assert (exits.at(0), exits.at(1)) == (None, None)  # either may live
        os.kill(other, signal.SIGKILL)
        assert exit_of(exits, 0) == exit_of(exits, 1) > exits._at[one]
        assert exits.at(0, launched_at) == exits.at(0)  # the bills of the first functions begin with the run
        exits.note({1: nonce_of(one, 0.0)})
        assert exit_of(exits, 0) > exit_of(exits, 1)
        assert exits.at(-1) is None


@needs_children
def test_lives_are_those_of_functions_and_begin_with_the_process_that_starts_them() -> None:
    before = time.monotonic()
    with running(FORKS) as (runner, said):
        groups = [runner]
        exits = Exits(lambda: groups)
        exits.invoked(dict.fromkeys((-1, 0, 1), before))
        after = time.monotonic()
        functions = {int(said.readline()) for _ in range(3)}
        until(lambda: {runner, *functions} <= exits._found.get(runner, set()))
        exits.note({-1: nonce_of(min(functions), 0.0)})
        assert exits.lives() == ([], False)
        for n, pid in enumerate(functions, start=1):
            os.kill(pid, signal.SIGKILL)
            until(lambda n=n: len(exits.lives()[0]) >= n)  # type: ignore[misc]
        lives, are_all = exits.lives()
        assert not are_all  # the runner may start another one
        assert {exited_at for _, exited_at in lives} == {exits._at[pid] for pid in functions}
        assert all(before - 0.02 <= began_at <= after for began_at, _ in lives)
        os.killpg(runner, signal.SIGKILL)
        until(lambda: not exits.are_left)
        assert exits.lives() == (lives, True)
        # A process that ends before it has started its function has lived for it.
        other = Function()
        groups.append(other.process.pid)
        exits.invoked({0: time.monotonic()})
        until(lambda: other.process.pid in exits._found)
        other.kill()
        until(lambda: not exits.are_left)
        (began_at, exited_at), are_all = exits.lives()[0][-1], exits.lives()[1]
        assert (len(exits.lives()[0]), exited_at, are_all) == (4, exits._at[other.process.pid], True)
        assert after - 0.02 <= began_at <= exited_at
        exits.note({0: nonce_of(2**22 + 1, 5.0)})  # one that has come and gone between two looks
        assert not exits.lives()[1]


@needs_children
def test_lives_are_not_known_to_a_process_that_stood_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """A suspended notebook sees late that its functions have exited."""
    later_s = 0.0
    clock = SimpleNamespace(sleep=time.sleep, monotonic=lambda: time.monotonic() + later_s)
    with running(RUNNER) as (runner, said):
        exits = Exits(lambda: [runner])
        exits.invoked({0: time.monotonic()})
        pid = int(said.readline())
        until(lambda: pid in exits._watched.values())
        monkeypatch.setattr(exits_module, "time", clock)
        time.sleep(0.7)  # it asks by this clock now
        later_s = 60.0
        os.killpg(runner, signal.SIGKILL)
        until(lambda: not exits.are_left)
        assert exits.lives() == ([], False)


@needs_children
@pytest.mark.parametrize(("invoked", "later_s"), [((0, 1), 0.0), ((-1, 0, 1), 60.0)])
def test_lives_are_not_known_of_more_processes_than_functions_and_of_some_that_were_there_before(
    invoked: tuple[int, ...], later_s: float
) -> None:
    with running(FORKS) as (runner, said):
        exits = Exits(lambda: [runner])
        exits.invoked(dict.fromkeys(invoked, time.monotonic() + later_s))
        functions = {int(said.readline()) for _ in range(3)}
        until(lambda: {runner, *functions} <= exits._found.get(runner, set()))
        os.killpg(runner, signal.SIGKILL)
        until(lambda: not exits.are_left)
        assert exits.lives()[0] == []


def test_a_successor_that_ended_in_vain_is_not_the_function_that_works_on() -> None:
    """A run that was concluded then was billed until the successor's end."""
    function, duplicate = Function(), Function()
    groups = [function.process.pid]
    exits = Exits(lambda: groups)
    exits.note({0: function.nonce})
    invoked_at = time.monotonic()
    groups.append(duplicate.process.pid)
    exits.invoked({0: invoked_at})
    until(lambda: duplicate.process.pid in exits._watched.values())  # one that ends before it is seen is not known
    duplicate.kill()
    until(lambda: exits._at.keys() == {duplicate.process.pid})
    assert (exits.at(0), exits.at(0, invoked_at)) == (None, None)
    function.kill()
    until(lambda: exits._at.keys() == {duplicate.process.pid, function.process.pid})
    assert exits.at(0, invoked_at - 1.0) == exits._at[function.process.pid]


def test_who_looks_for_processes_ends_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else many short runs gathered threads: a function that comes and goes between two looks is never seen."""
    function, before = Function(), set(threading.enumerate())
    exits = Exits(lambda: [function.process.pid])
    exits.invoked({0: time.monotonic()})
    (looking,) = [one for one in set(threading.enumerate()) - before if one.name == "mlless-exits-look"]
    function.kill()
    looking.join(PATIENCE_S)
    assert not looking.is_alive()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refused_thread)
        exits.invoked({0: time.monotonic()})  # the bill does without


def refused_thread(_: threading.Thread) -> None:
    """What a system does that has no more threads."""
    raise RuntimeError("can't start new thread")
