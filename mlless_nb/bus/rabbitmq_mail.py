"""The data shared between the users of a RabbitMQ bus, in any thread, and the thread that owns its connection."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from typing import NamedTuple

from ..errors import ServiceError
from .rabbitmq_errors import first_cause

#: Most messages that wait for confirmation.
MAX_OUTSTANDING = 10_000
#: Longest wait for messages that were at the broker before their reader came, seconds: another reader, whose end the
#: broker has not noticed, may have them.
WAITING_S = 2.0
#: Shortest pause before another try to connect, once the bus is closed, seconds.
CLOSING_S = 0.1


class OutgoingMessage(NamedTuple):
    """A message to be published; readers recognise a duplicate by its name."""

    topic: str
    name: bytes
    body: bytes


class Delivery(NamedTuple):
    """A message that the broker delivered."""

    connection: int  # number of the connection that delivered it: the tag is valid only there
    tag: int
    name: bytes | None
    body: bytes


class Waiting:
    """The messages of one topic that were at the broker before their reader came, as far as it has not got them.

    Attributes
    ----------
    n : float
        How many; infinite until the broker has said so.
    """

    def __init__(self) -> None:
        self.n = math.inf
        self._give_up_at = time.monotonic() + WAITING_S

    @property
    def left_s(self) -> float:
        """How long they are to be waited for, seconds."""
        return self._give_up_at - time.monotonic() if self.n > 0 else 0.0


class Mail:
    """The messages in transit and the state of the connection, all guarded by ``changed``.

    Parameters
    ----------
    shown : str
        The broker's URL with the password masked.
    patience_s : float
        Seconds without a connection after which calls raise.
    """

    def __init__(self, shown: str, patience_s: float) -> None:
        self.shown, self.patience_s = shown, patience_s
        self.changed = threading.Condition()
        self.outbox: deque[OutgoingMessage] = deque()  # sent, to be published on this connection
        self.unconfirmed: dict[int, OutgoingMessage] = {}  # delivery tag -> published, to be confirmed; in order
        self.inboxes: dict[str, deque[Delivery]] = {}  # topic -> delivered by the broker, to be returned by `receive`
        self.waiting: dict[str, Waiting] = {}  # by topic
        self.handed_over: list[Delivery] = []  # to be acknowledged
        self.used_topics: set[str] = set()
        self.is_ready = False  # whether there is a connection
        self.away_since: float | None = None
        self.error: BaseException | None = None  # why the newest connection ended
        self.refusal: ServiceError | None = None  # the broker refuses permanently: do not try again
        self.is_closing = False
        self.left: set[str] = set()  # topics whose queues are to be deleted, until the broker has confirmed that
        self.give_up_at = float("inf")

    @property
    def is_full(self) -> bool:
        """Whether `MAX_OUTSTANDING` messages wait for confirmation."""
        return len(self.outbox) + len(self.unconfirmed) >= MAX_OUTSTANDING

    @property
    def is_delivered(self) -> bool:
        """Whether the broker has confirmed all that was sent."""
        return not (self.outbox or self.unconfirmed)

    def is_over(self) -> bool:
        """Whether the bus is closed and needs no further connection."""
        is_done, is_late = self.is_delivered and not self.left, time.monotonic() >= self.give_up_at
        return self.is_closing and (is_done or is_late or self.refusal is not None)

    def wait_before_retry(self, pause_s: float) -> None:
        """Wait so long until the next try to connect, or until the bus is closed meanwhile."""
        was_closing = self.is_closing
        # The pauses begin anew with each connection that opens, also if the broker closes it at once.
        self.changed.wait_for(lambda: self.is_closing != was_closing, max(pause_s, CLOSING_S * was_closing))

    def check_fit(self) -> None:
        """Raise `ServiceError` when the bus is closed, refused, or has been without a connection for too long."""
        if self.is_closing:
            raise ServiceError("the control bus is closed")
        if self.refusal is not None:
            raise self.refusal
        if self.away_since is not None:
            away_s = time.monotonic() - self.away_since
            if away_s >= self.patience_s:
                cause = first_cause(self.error)
                raise ServiceError(f"the control bus at {self.shown} has been away for {away_s:.0f} s: {cause}")

    def connected(self) -> None:
        """There is a connection."""
        self.is_ready, self.away_since = True, None
        self.changed.notify_all()

    def disconnected(self, error: BaseException, refusal: ServiceError | None) -> None:
        """The connection ended: the next one has to do its unfinished work."""
        self.is_ready, self.error = False, error
        if self.away_since is None:
            self.away_since = time.monotonic()
        self.refusal = self.refusal or refusal
        self.outbox.extendleft(reversed(self.unconfirmed.values()))
        self.unconfirmed.clear()
        self.handed_over.clear()
        for inbox in self.inboxes.values():
            inbox.clear()  # the broker delivers them again
        self.changed.notify_all()

    def confirm(self, tag: int, multiple: bool) -> None:
        """The broker confirmed the message ``tag``, and with ``multiple`` all messages before it."""
        if multiple:
            for earlier in [earlier for earlier in self.unconfirmed if earlier <= tag]:
                del self.unconfirmed[earlier]
        else:
            self.unconfirmed.pop(tag, None)
        self.changed.notify_all()
