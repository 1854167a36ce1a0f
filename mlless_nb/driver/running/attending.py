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
#: Each pause between two looks that the end of the run pays for is twice the one before, up to so many seconds.
MOST_PAUSE_S = 2.0


class Attending:
    """The attending of one run, from the invocation of its functions on.

    Parameters
    ----------
    services : Services
    commands : Commands
        Those without an answer are sent again.
    receive : callable
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
        receive: Callable[[float], Ended | None],
        is_leaving: Callable[[], bool],
    ) -> None:
        self._services, self._commands, self._receive, self._is_leaving = services, commands, receive, is_leaving
        self._renewed_at = time.monotonic()
        self._pause_s, self._look_at = BUS_POLL_S, 0.0  # once nothing pays for requests but the end of the run
        self.ended: Ended | None = None

    def attend(self) -> Ended | None:
        """Hear the supervisor, keep the lease and send commands again; returns the final message if it has come."""
        dues = self._services.dues
        if self.ended is None and dues is not None and not dues.pay():
            return self._attend_unpaid()
        self.ended = self.ended or self._receive(BUS_POLL_S)
        if self.ended is not None:
            return self.ended
        now = time.monotonic()
        if now - self._renewed_at > DRIVER_LEASE_S / 10:
            self._renewed_at = now
            self._services.log.renew("driver", DRIVER_LEASE_S)
            self._services.keep_user()
            self._services.bus.discard("driver")  # rows of steps, which would fill the server
        self._commands.resend(now)
        return None

    def _attend_unpaid(self) -> Ended | None:
        """Wait for the end of a run whose budget does not pay for the driver's requests any more.

        Functions end within the seconds that they were granted, which is seen without a request on this machine. The
        supervisor is heard at growing intervals.
        """
        time.sleep(BUS_POLL_S)
        if time.monotonic() >= self._look_at:
            self._pause_s = min(2 * self._pause_s, MOST_PAUSE_S)
            self._look_at = time.monotonic() + self._pause_s
            self.ended = self._receive(0.0)
        return self.ended

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
