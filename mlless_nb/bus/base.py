"""The interface of the control bus: ordered small messages by topic between the processes of one job."""

from __future__ import annotations

import os
import re
import threading
import time
from collections import OrderedDict
from typing import Protocol

from ..errors import ServiceError

#: The topics of a job, each named after its only reader: the supervisor reads users' commands and workers' messages.
TOPICS = ("supervisor", "driver")
#: Largest message, bytes.
MAX_MESSAGE_BYTES = 1 << 20
#: Most messages that one `Bus.receive` returns.
MAX_BATCH = 256
#: The server keeps at least the newest so many messages of a topic; it may delete older ones.
KEPT_MESSAGES = 100_000
#: Seconds until an unused topic is deleted, so that a job whose processes were killed leaves nothing behind.
TTL_S = 86_400
#: Seconds that a server may be unreachable before `send` and `receive` raise; a function waits longer than a notebook.
PATIENCE_S, FUNCTION_PATIENCE_S = 10.0, 60.0


class Bus(Protocol):
    """Delivery of small byte messages, in order per topic and sender, to one reader per topic.

    Messages sent before the reader listens are kept. A bus may be used from several threads. It waits `PATIENCE_S`
    seconds for an unreachable server, RabbitMQ's for minutes. No message is lost meanwhile, and a message that was sent
    twice is returned once.
    """

    def send(self, topic: str, body: bytes) -> None:
        """Queue ``body`` for the reader of ``topic``; returns before it is received.

        Raises
        ------
        ValueError
            The topic has characters other than letters, digits, ``_ . -``, or the body is over `MAX_MESSAGE_BYTES`.
        ServiceError
            The server was unreachable for too long or refuses the message, or the bus is closed.
        """

    def receive(self, topic: str, timeout_s: float) -> list[bytes]:
        """The waiting messages of ``topic``, at most `MAX_BATCH`; empty if none comes within ``timeout_s`` seconds.

        Raises
        ------
        ValueError
            As for `send`.
        ServiceError
            As for `send`.
        """

    def tells_again(self, topic: str) -> bool:
        """Whether each reader of ``topic`` that comes later receives all that others have received, too."""

    def discard(self, topic: str) -> None:
        """Allow the server to remove what this bus has received of ``topic``: nobody reads it again. Never raises."""

    def close(self, *, delete: bool = False) -> int:
        """Deliver what was sent, then release the connection; returns how many topics may be left. Idempotent.

        Never raises.

        Parameters
        ----------
        delete : bool
            Also remove the job's topics (`TOPICS`, and all that this bus used) from the server.
        """


def check_name(what: str, name: str) -> None:
    """Raise `ValueError` unless ``name`` can be part of a key or a queue's name."""
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,100}", name):
        raise ValueError(f"{what}={name!r}: must be 1 to 100 letters, digits, '_', '.' or '-'")


def check_message(topic: str, body: bytes) -> None:
    """Raise `ValueError` unless ``body`` may be sent on ``topic``."""
    check_name("topic", topic)
    if len(body) > MAX_MESSAGE_BYTES:
        raise ValueError(f"a message of {len(body)} bytes on {topic!r}: must be at most {MAX_MESSAGE_BYTES}")


class Numbers:
    """Unique names for this sender's messages, by which a reader recognises duplicates."""

    def __init__(self) -> None:
        self._sender = os.urandom(8).hex()
        self._last = 0
        self._lock = threading.Lock()

    def next(self) -> bytes:
        """A name that no other message has."""
        with self._lock:
            self._last += 1
            return f"{self._sender}:{self._last}".encode()


class Seen:
    """The names of recently returned messages, so that a duplicate is returned only once.

    It keeps a bounded set of names instead of the highest number of each sender, so that a message is not taken for a
    duplicate when a later one arrived first.
    """

    def __init__(self, kept: int = 16_384) -> None:
        self._names: OrderedDict[bytes, None] = OrderedDict()
        self._kept = kept

    def is_new(self, name: bytes | None) -> bool:
        """Whether ``name`` was not passed before; a message without a name is always new."""
        if name is None:
            return True
        if name in self._names:
            return False
        self._names[name] = None
        if len(self._names) > self._kept:
            self._names.popitem(last=False)
        return True


class Patience:
    """How long a server has been unreachable, and how long to wait for the next try. Not thread-safe: one per caller.

    Parameters
    ----------
    limit_s : float
        Seconds after which `lost` raises.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._since: float | None = None
        self._pause_s = 0.0

    def found(self) -> None:
        """The server answered."""
        self._since, self._pause_s = None, 0.0

    def lost(self, shown_url: str, error: BaseException) -> float:
        """The server did not answer; returns the seconds to wait before the next try: 0, then 0.05 to 1.

        Raises
        ------
        ServiceError
            It has been unreachable for too long.
        """
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        away_s = now - self._since
        if away_s >= self._limit_s:
            raise ServiceError(f"the control bus at {shown_url} has been away for {away_s:.0f} s: {error}") from None
        pause_s, self._pause_s = self._pause_s, min(1.0, max(0.05, 2 * self._pause_s))
        return pause_s
