"""The control bus: ordered small messages by topic, between the processes of one job, over a server of your choice."""

from __future__ import annotations

import os
import re
import threading
import time
from collections import OrderedDict
from typing import Protocol

from ..errors import ServiceError

#: The topics of a job, each named for its single reader: the supervisor reads users' commands and workers' messages.
TOPICS = ("supervisor", "driver")
#: Bytes that one message may have.
MAX_MESSAGE_BYTES = 1 << 20
#: Messages that one `Bus.receive` hands over at most.
MAX_BATCH = 256
#: Messages of a topic that a server keeps at least; older ones may go.
KEPT_MESSAGES = 100_000
#: Seconds after its last use that a topic is kept: a job that nobody ends leaves nothing for ever.
TTL_S = 86_400
#: Seconds that a lost server may be away before `send` and `receive` say so.
PATIENCE_S = 10.0


class Bus(Protocol):
    """Delivery of small byte messages, at least once, in order per topic and sender, to one reader a topic.

    What is sent before anyone listens is kept. A bus may be used from several threads. A lost server is awaited for
    `PATIENCE_S` seconds; nothing that was sent is lost meanwhile, and what was sent twice is handed over once.
    """

    def send(self, topic: str, body: bytes) -> None:
        """Queue ``body`` for the reader of ``topic``; returns before it is received.

        Raises
        ------
        ValueError
            A topic that is not made of letters, digits, ``_ . -``; more than `MAX_MESSAGE_BYTES`.
        ServiceError
            The server has been away for too long, refuses the message, or the bus is closed.
        """

    def receive(self, topic: str, timeout_s: float) -> list[bytes]:
        """All messages that wait on ``topic``, at most `MAX_BATCH`; empty once ``timeout_s`` seconds brought none.

        Raises
        ------
        ValueError
            As for `send`.
        ServiceError
            As for `send`.
        """

    def close(self, *, delete: bool = False) -> None:
        """Release the connection, what was sent being delivered first. Idempotent, never raises.

        Parameters
        ----------
        delete : bool
            Also remove the job's topics (`TOPICS`, and whichever this bus used) from the server.
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
    """Names for this sender's messages, by which a reader knows one that comes twice."""

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
    """The names of the messages handed over lately, so that one that comes twice is handed over once.

    A bounded memory of names, rather than the highest number of each sender: no message is ever taken for a
    duplicate because another overtook it.
    """

    def __init__(self, kept: int = 16_384) -> None:
        self._names: OrderedDict[bytes, None] = OrderedDict()
        self._kept = kept

    def is_new(self, name: bytes | None) -> bool:
        """Whether ``name`` has not been asked for before; a message without a name is always new."""
        if name is None:
            return True
        if name in self._names:
            return False
        self._names[name] = None
        if len(self._names) > self._kept:
            self._names.popitem(last=False)
        return True


class Patience:
    """How long a server has been away, and how long to wait until the next try. Not thread-safe: one per caller.

    Parameters
    ----------
    limit_s : float
        Seconds away after which `lost` gives up.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._since: float | None = None
        self._pause_s = 0.0

    def found(self) -> None:
        """The server answered."""
        self._since, self._pause_s = None, 0.0

    def lost(self, shown_url: str, error: BaseException) -> float:
        """The server did not answer; seconds to wait before the next try, the first one at once, then 50 ms to 1 s.

        Raises
        ------
        ServiceError
            It has been away for too long.
        """
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        away_s = now - self._since
        if away_s >= self._limit_s:
            raise ServiceError(f"the control bus at {shown_url} has been away for {away_s:.0f} s: {error}") from None
        pause_s, self._pause_s = self._pause_s, min(1.0, max(0.05, 2 * self._pause_s))
        return pause_s
