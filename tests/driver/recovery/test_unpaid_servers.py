"""Functions that outlive their supervisor end once the budget does not pay for the servers: real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from mlless_nb.driver.backends.exits import Exits
from mlless_nb.driver.recovery.unpaid_servers import END_S, UnpaidServers
from mlless_nb.exchange.slots import SUPERVISOR, nonce_of

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="this system has no pidfds")
#: For a machine that is busy with other things.
PATIENCE_S = 30.0


class Machine:
    """A launcher with a supervisor and a worker."""

    def __init__(self) -> None:
        self.processes: list[subprocess.Popen[bytes]] = []
        self.exits = Exits(lambda: [process.pid for process in self.processes])
        self.was_killed, self.asked = threading.Event(), list[float]()
        for slot in (SUPERVISOR, 0):
            self.start(slot)

    def start(self, slot: int) -> None:
        """Start a function that waits to be killed."""
        process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True)
        self.processes.append(process)
        self.exits.note({slot: nonce_of(process.pid, float(len(self.processes)))})

    def kill(self) -> None:
        """Kill them all."""
        self.was_killed.set()
        for process in self.processes:
            process.send_signal(signal.SIGKILL)
            process.wait(PATIENCE_S)

    def lose_supervisor(self) -> None:
        """Only the worker is left."""
        self.processes[0].kill()
        self.processes[0].wait(PATIENCE_S)


@pytest.fixture
def machine() -> Iterator[Machine]:
    """It is cleared in the end."""
    made = Machine()
    yield made
    made.kill()


def looks() -> bool:
    """Whether a thread looks after functions without a supervisor."""
    return any(thread.name == "mlless-unpaid" for thread in threading.enumerate())


def wait_until(is_so: Any) -> None:
    give_up_at = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < give_up_at
        time.sleep(0.01)


def test_they_are_killed_once_the_servers_are_unpaid(machine: Machine) -> None:
    """One that was starting lived on for two seconds while Redis was paused: 9 % above the cap."""

    def is_unpaid(silence_s: float) -> bool:
        machine.asked.append(silence_s)
        return silence_s > 0.5

    UnpaidServers(machine, is_unpaid)  # type: ignore[arg-type]
    machine.lose_supervisor()
    assert machine.was_killed.wait(PATIENCE_S)
    assert machine.asked[0] >= END_S
    assert machine.asked[-1] > 0.5 >= machine.asked[-2]
    wait_until(lambda: not looks())


def test_they_live_on_where_the_budget_pays_and_another_supervisor_comes(machine: Machine) -> None:
    UnpaidServers(machine, lambda silence_s: bool(machine.asked.append(silence_s)))  # type: ignore[arg-type,func-returns-value]
    machine.lose_supervisor()
    wait_until(lambda: len(machine.asked) > 2)
    machine.start(SUPERVISOR)
    wait_until(lambda: not looks())
    assert machine.processes[1].poll() is None
    assert not machine.was_killed.is_set()


def test_nobody_is_looked_after_whose_supervisor_lives(machine: Machine) -> None:
    UnpaidServers(machine, lambda silence_s: True)  # type: ignore[arg-type]
    machine.processes[1].kill()
    wait_until(lambda: machine.exits.at(0) is not None)
    assert machine.processes[0].poll() is None
    assert not machine.was_killed.is_set()
