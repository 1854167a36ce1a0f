"""Users' commands to a live run: sent to the supervisor until acknowledged, and shown as pending until then."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import NamedTuple

from ...bus.messages import BY_USER, Command
from ...errors import ServiceError
from ...telemetry.live import Telemetry
from ..launch.allowance import Allowance
from ..servers.services import Services

#: Seconds after which a command that the supervisor did not acknowledge is sent again.
RESEND_S = 2.0
#: Commands that take the place of earlier ones of their kind.
REPLACED = ("budget", "tune")


class _Pending(NamedTuple):
    """A command that was sent at ``sent_at``, shown as ``text``; ``older`` are those whose place it took."""

    command: Command
    text: str
    sent_at: float
    older: tuple[_Pending, ...] = ()


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
        self._pending: dict[str, _Pending] = {}
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
            # One that is sent again could come after this one.
            older = [one for one in self._pending.values() if one.command.do == command.do and command.do in REPLACED]
            for one in older:
                del self._pending[one.command.id]
            all_older = tuple(each for one in older for each in (*one.older, one))
            self._pending[command.id] = _Pending(command, pending, time.monotonic(), all_older)
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
            late = [one for one in self._pending.values() if now - one.sent_at > RESEND_S]
        for one in late:
            if one.command.do == "stop":
                self._services.log.announce_stop("stopped", BY_USER)
            with self._lock:
                if one.command.id not in self._pending:
                    continue  # it was done meanwhile, or another one took its place
                self._pending[one.command.id] = one._replace(sent_at=now)
            self._services.bus.send("supervisor", one.command.encode())

    def settle(self, done: dict[str, str]) -> None:
        """Remove commands that the supervisor has handled; by id, why each was refused, "" if it was carried out."""
        with self._lock:
            known = [(self._pending.pop(command_id, None), outcome) for command_id, outcome in done.items()]
            for one, outcome in known:
                if one is not None and outcome and one.older:  # it is refused, and the newest before it may not be done
                    *rest, last = one.older
                    self._pending[last.command.id] = last._replace(older=tuple(rest))
            for outcome in filter(None, done.values()):
                self._telemetry.update(refusal=outcome)
                self._telemetry.add_event(self._telemetry.state.time_s, f"Refused: {outcome}")
            self._show()
        budgets = [
            each.command.id
            for one, outcome in known
            if one is not None and one.command.do == "budget"
            for each in (one, *(() if outcome else one.older))
        ]
        if budgets:
            with contextlib.suppress(Exception):  # without an answer from Redis the higher cap stays reserved
                self._allowance.answered(budgets, self._services.log.money()[0])

    def _show(self) -> None:
        """Show what is pending; under the lock, so that no older state overwrites a newer one."""
        self._telemetry.update(pending=tuple(one.text for one in self._pending.values()))
