"""What the driver does all the time while functions run, also while it waits for a backend that has refused some."""

from __future__ import annotations

import time
from collections.abc import Callable

import redis

from ...bus.messages import Ended
from ...errors import ServiceError
from ...exchange import LostData
from ..servers.services import Services
from .commands import Commands
from .driver_lease import DRIVER_LEASE_S

#: Most seconds between two checks of the functions and of pending commands when no message arrives.
BUS_POLL_S = 0.1


class Attending:
    """The attending of one run, from the invocation of its functions on.

    Parameters
    ----------
    services : Services
    commands : Commands
        Those without an answer are sent again.
    hear : callable
        Handles the supervisor's messages for so many seconds; returns its final message if that is among them.
    is_leaving : callable
        Whether the run has to end now.

    Attributes
    ----------
    ended : Ended or None
        The supervisor's final message.
    """

    def __init__(
        self,
        services: Services,
        commands: Commands,
        hear: Callable[[float], Ended | None],
        is_leaving: Callable[[], bool],
    ) -> None:
        self._services, self._commands, self._hear, self._is_leaving = services, commands, hear, is_leaving
        self._renewed_at = time.monotonic()
        self.ended: Ended | None = None

    def attend(self) -> Ended | None:
        """Hear the supervisor, keep the lease and send commands again; returns the final message if it has come."""
        self.ended = self.ended or self._hear(BUS_POLL_S)
        if self.ended is not None:
            return self.ended
        now = time.monotonic()
        if now - self._renewed_at > DRIVER_LEASE_S / 10:
            self._renewed_at = now
            self._services.log.renew("driver", DRIVER_LEASE_S)
            self._services.keep_user()
            self._services.bus.discard("driver")  # rows of steps, which would fill the server
        if self._services.dues is not None:
            self._services.dues.pay()
        self._commands.resend(now)
        return None

    def pause(self, pause_s: float) -> bool:
        """Attend for so many seconds; returns whether the run goes on."""
        end_at = time.monotonic() + pause_s
        while self.ended is None and not self._is_leaving():
            if time.monotonic() >= end_at:
                return True
            try:
                self.attend()
            except (LostData, redis.ConnectionError, redis.TimeoutError, ServiceError):
                time.sleep(BUS_POLL_S)  # the driver meets it again
        return False
