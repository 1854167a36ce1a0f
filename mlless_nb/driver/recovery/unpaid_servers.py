"""Functions of this machine that outlive their supervisor end before the run's servers cost more than its cap.

The supervisor reserves the servers' time. The driver replaces one that is lost, or ends the run; but it waits itself
for servers that are silent, and a function that is starting has money for two seconds.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

from ...exchange import SUPERVISOR
from ..backends.launcher import LithopsLauncher

#: Seconds between two looks while functions live without a supervisor, and that it takes until they have ended.
LOOK_S, END_S = 0.1, 0.15


class UnpaidServers:
    """The servers of one run.

    Parameters
    ----------
    launcher : LithopsLauncher
        Its functions are killed.
    is_unpaid : callable
        Whether the budget, as far as it is known here, does not pay for so many seconds without a supervisor.
    """

    def __init__(self, launcher: LithopsLauncher, is_unpaid: Callable[[float], bool]) -> None:
        self._launcher, self._is_unpaid = launcher, is_unpaid
        self._lock, self._is_looking = threading.Lock(), False
        launcher.exits.on_exit = self._note

    def _note(self) -> None:
        """A process has exited."""
        with self._lock:
            if self._is_looking or self._launcher.exits.at(SUPERVISOR) is None:
                return
            with contextlib.suppress(RuntimeError):  # no thread can be started: the driver sees to it, if later
                threading.Thread(target=self._look, name="mlless-unpaid", daemon=True).start()
                self._is_looking = True

    def _look(self) -> None:
        """Look until there is a supervisor again, or nobody else."""
        exits = self._launcher.exits
        while (exited_at := exits.at(SUPERVISOR)) is not None and exits.are_left:
            if self._is_unpaid(time.monotonic() + END_S - exited_at):
                self._launcher.kill()
                break
            time.sleep(LOOK_S)
        with self._lock:
            self._is_looking = False
