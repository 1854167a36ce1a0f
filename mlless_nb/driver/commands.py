"""Users' commands to a live run: sent to the supervisor until acknowledged, and shown as pending until then."""

from __future__ import annotations

import threading
import time

from ..bus.messages import Command
from ..errors import ServiceError
from ..telemetry.live import Telemetry
from .services import Services

#: Seconds after which a command that the supervisor did not acknowledge is sent again.
RESEND_S = 2.0


class Commands:
    """The commands of one run, for any thread.

    Parameters
    ----------
    services : Services
    telemetry : Telemetry
        Shows pending commands.

    Attributes
    ----------
    is_stop_asked : bool
    is_over : bool
        Whether the run has ended, so that commands have no effect.
    """

    def __init__(self, services: Services, telemetry: Telemetry) -> None:
        self._services, self._telemetry = services, telemetry
        self._pending: dict[str, tuple[Command, str, float]] = {}
        self._lock = threading.Lock()
        self.is_stop_asked = self.is_over = False

    def close(self) -> None:
        """Accept no further commands: the run has ended."""
        with self._lock:
            self.is_over = True

    def send(self, command: Command, pending: str) -> None:
        """Send ``command``, shown as the sentence ``pending`` until it is done; no effect if the run has ended."""
        with self._lock:
            if self.is_over:
                return
            self.is_stop_asked = self.is_stop_asked or command.do == "stop"
            self._pending[command.id] = (command, pending, time.monotonic())
            self._show()
        try:
            self._services.bus.send("supervisor", command.encode())
        except ServiceError:
            if not self.is_over:  # otherwise the bus was closed in the meantime
                raise

    def resend(self, now: float, is_launched: bool) -> None:
        """Send unacknowledged commands again; an unacknowledged stop is also announced in the plan from here."""
        with self._lock:
            late = [entry for entry in self._pending.values() if now - entry[2] > RESEND_S]
        for command, pending, _ in late:
            if command.do == "stop" and is_launched:
                self._services.log.announce_stop("stopped", "stopped by hand")
            with self._lock:
                self._pending[command.id] = (command, pending, now)
            self._services.bus.send("supervisor", command.encode())

    def settle(self, done: dict[str, str]) -> None:
        """Remove commands that the supervisor has handled; by id, why each was refused, "" if it was carried out."""
        with self._lock:
            for command_id, outcome in done.items():
                self._pending.pop(command_id, None)
                if outcome:
                    self._telemetry.tell(self._telemetry.state.time_s, f"Refused: {outcome}")
            self._show()

    def _show(self) -> None:
        """Show what is pending; under the lock, so that no older state overwrites a newer one."""
        self._telemetry.update(pending=tuple(pending for _, pending, _ in self._pending.values()))
