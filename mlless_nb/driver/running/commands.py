"""Users' commands to a live run: sent to the supervisor until acknowledged, and shown as pending until then."""

from __future__ import annotations

import contextlib
import threading
import time

from ...bus.messages import BY_USER, Command
from ...errors import ServiceError
from ...telemetry.live import Telemetry
from ..launch.allowance import Allowance
from ..servers.services import Services

#: Seconds after which a command that the supervisor did not acknowledge is sent again.
RESEND_S = 2.0


class Commands:
    """The commands of one run, for any thread.

    Parameters
    ----------
    services : Services
    telemetry : Telemetry
        Shows pending commands.
    allowance : Allowance
        Is asked before the budget is raised.

    Attributes
    ----------
    is_stop_asked : bool
    is_over : bool
        Whether the run has ended, so that commands have no effect.
    """

    def __init__(self, services: Services, telemetry: Telemetry, allowance: Allowance) -> None:
        self._services, self._telemetry, self._allowance = services, telemetry, allowance
        self._pending: dict[str, tuple[Command, str, float]] = {}
        self._lock = threading.Lock()
        self.is_stop_asked = self.is_over = False

    def close(self) -> None:
        """Accept no further commands: the run has ended."""
        with self._lock:
            self.is_over = True

    def send(self, command: Command, pending: str) -> None:
        """Send ``command``, shown as the sentence ``pending`` until it is done; no effect if the run has ended.

        Raises
        ------
        CommandError
            If a session's or a project's budget does not allow it.
        """
        if command.do == "budget" and not self.is_over:
            self._allowance.ask(command.id, command.nusd)
        with self._lock:
            if self.is_over:
                return
            self.is_stop_asked = self.is_stop_asked or command.do == "stop"
            self._pending[command.id] = (command, pending, time.monotonic())
            self._telemetry.update(refusal="")
            self._show()
        try:
            self._services.bus.send("supervisor", command.encode())
        except ServiceError:
            if not self.is_over:  # otherwise the bus was closed in the meantime
                raise

    def resend(self, now: float) -> None:
        """Send unacknowledged commands again; an unacknowledged stop is also announced in the plan from here."""
        with self._lock:
            late = [entry for entry in self._pending.values() if now - entry[2] > RESEND_S]
        for command, pending, _ in late:
            if command.do == "stop":
                self._services.log.announce_stop("stopped", BY_USER)
            with self._lock:
                self._pending[command.id] = (command, pending, now)
            self._services.bus.send("supervisor", command.encode())

    def settle(self, done: dict[str, str]) -> None:
        """Remove commands that the supervisor has handled; by id, why each was refused, "" if it was carried out."""
        with self._lock:
            known = [self._pending.pop(command_id, None) for command_id in done]
            for outcome in filter(None, done.values()):
                self._telemetry.update(refusal=outcome)
                self._telemetry.tell(self._telemetry.state.time_s, f"Refused: {outcome}")
            self._show()
        budgets = [entry[0].id for entry in known if entry is not None and entry[0].do == "budget"]
        if budgets:
            with contextlib.suppress(Exception):  # without an answer from Redis the higher cap stays reserved
                self._allowance.answered(budgets, self._services.log.money()[0])

    def _show(self) -> None:
        """Show what is pending; under the lock, so that no older state overwrites a newer one."""
        self._telemetry.update(pending=tuple(pending for _, pending, _ in self._pending.values()))
