"""Whether the driver still hears the supervisor, and whether the run's servers answer."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import redis

from ...errors import ServiceError
from ...exchange.protocol import START_LEASES
from ..servers.services import Services

#: A supervisor without a lease that was not heard for so many leases is lost: its lease says so in the same time.
SILENCE_LEASES = 1.0
#: Seconds without a message after which a supervisor is lost though it has its lease, unless RabbitMQ may be away.
SILENCE_S = 60.0
#: Seconds without listening after which the driver itself was held up, and could not hear anything.
HELD_UP_S = 2.0
#: Longest wait for servers that do not answer, seconds.
LONGEST_OUTAGE_S = 120.0


@contextlib.contextmanager
def asked_again() -> Iterator[None]:
    """Take a storage or bus that refuses a request for a server that does not answer: it is asked again for a while."""
    try:
        yield
    except ServiceError as error:
        raise redis.ConnectionError(str(error)) from None


class Contact:
    """The contact of one run's driver, from the invocation of the functions on.

    Parameters
    ----------
    services : Services
    lease_s : float
        Lease of the functions.

    Attributes
    ----------
    n_unheard : int
        How often the supervisor was invoked since a message came.
    """

    def __init__(self, services: Services, lease_s: float) -> None:
        self._services, self._lease_s = services, lease_s
        self._silent_since: float | None = None
        self._listened_at = time.monotonic()
        self._heard_at, self._patience_s = self._listened_at, START_LEASES * lease_s
        self._away_s = 0.0  # since the supervisor was heard: until the servers last did not answer
        self.n_unheard = 0

    def invoked(self) -> None:
        """The supervisor was invoked, perhaps again, and has some time to start."""
        self._heard_at, self._patience_s = time.monotonic(), START_LEASES * self._lease_s
        self._away_s = 0.0
        self.n_unheard += 1

    def heard(self) -> None:
        """A message came from the supervisor."""
        self._heard_at, self._patience_s = time.monotonic(), SILENCE_LEASES * self._lease_s
        self._away_s = 0.0
        self.n_unheard = 0

    def listen(self) -> None:
        """The driver listens. To be called all the time: what passes in between may be a pause of its own."""
        now = time.monotonic()
        if now - self._listened_at > HELD_UP_S:
            self._heard_at += now - self._listened_at
        self._listened_at = now

    def is_silent(self) -> bool:
        """Whether the supervisor counts as lost."""
        self.listen()
        if self.silence_s <= self._patience_s:
            return False
        is_mute = self.silence_s > max(SILENCE_S, self._patience_s) and not self._services.has_broker
        return is_mute or not self._services.log.alive(["supervisor"])[0]

    @property
    def silence_s(self) -> float:
        """Seconds since the supervisor was heard, or invoked; while the servers do not answer, it cannot be heard."""
        return time.monotonic() - self._heard_at

    @property
    def unpaid_s(self) -> float:
        """Seconds since the supervisor was heard, or invoked, also those in which the servers did not answer."""
        return self._away_s + self.silence_s

    @property
    def is_starting(self) -> bool:
        """Whether the supervisor was invoked and not heard yet."""
        return self._patience_s == START_LEASES * self._lease_s

    def answered(self) -> None:
        """The servers answer."""
        self._silent_since = None

    def unanswered(self) -> bool:
        """The servers do not answer: starts a private one again that has died; whether they have been away too long."""
        now = time.monotonic()
        self._silent_since = now if self._silent_since is None else self._silent_since
        self._away_s += max(now - self._heard_at, 0.0)
        self._heard_at = self._listened_at = now  # the supervisor cannot be heard meanwhile
        if self._services.embedded is not None:
            self._services.embedded.revive()
        return now - self._silent_since > LONGEST_OUTAGE_S
