"""A broker's messages to the supervisor, recorded on the run's Redis: the next supervisor receives them again."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, cast

from ..errors import ServiceError
from .base import FUNCTION_PATIENCE_S, MAX_BATCH, Bus, Seen
from .factory import open_bus
from .messages import Invocation

#: The topic that is recorded, and the first entry of its record: one without it has lost its data.
TOPIC, BEGIN = "supervisor", b"begin"
#: Seconds after which a read of the record that brings nothing has failed.
READ_S = 1.0


class Broker(Bus, Protocol):
    """A bus that delivers each message once, or again if its reader died before it had acknowledged it."""

    def receive_named(self, topic: str, timeout_s: float) -> list[tuple[bytes, bytes]]:
        """See `receive`: names and bodies. A message that is delivered again has the same name."""


class RecordedBus:
    """A bus on which a topic that a broker delivers once is received again by each later reader; see `Bus`.

    A message is recorded before `receive` returns it. Only one that the broker had taken for received, and that its
    reader had not recorded when it died, is lost. What a paused reader records after the next one has begun is received
    by that one, too.

    Parameters
    ----------
    broker : Broker
    open_record : callable
        Opens the bus that keeps the record. It is opened by the first `receive`, which a server that is away fails.
    """

    def __init__(self, broker: Broker, open_record: Callable[[], Bus]) -> None:
        self._broker, self._open_record = broker, open_record
        self._record: Bus | None = None
        self._mark = b"read:" + os.urandom(8).hex().encode()  # ends what was recorded before
        self._past: list[tuple[bytes, bytes]] = []  # that was read, up to there
        self._is_whole: bool | None = None  # once that is read
        self._seen = Seen()  # names of what was received, by this reader or others
        self._again: deque[bytes] = deque()  # that others have received, and this one has not returned
        self._unrecorded: deque[tuple[bytes, bytes]] = deque()
        self._recorded: list[bytes] = []  # that are not returned yet

    def send(self, topic: str, body: bytes) -> None:
        """See `Bus`."""
        self._broker.send(topic, body)

    def receive(self, topic: str, timeout_s: float) -> list[bytes]:
        """See `Bus`. A message that could not be recorded is returned by a later call.

        Raises
        ------
        ServiceError
            Also if the server of the record does not answer.
        """
        if topic != TOPIC:
            return self._broker.receive(topic, timeout_s)
        self._write()
        if not self._recorded:
            self._read_past()
            self._take_again(self._entries(0.0))
            if self._again:
                return [self._again.popleft() for _ in range(min(len(self._again), MAX_BATCH))]
            while delivered := self._broker.receive_named(topic, timeout_s):
                self._unrecorded.extend(one for one in delivered if self._seen.is_new(one[0] or None))
                if self._unrecorded:
                    break
            self._write()
        bodies, self._recorded = self._recorded, []
        return bodies

    def tells_again(self, topic: str) -> bool:
        """See `Bus`: unless the Redis has lost its data."""
        if topic != TOPIC:
            return self._broker.tells_again(topic)
        self._read_past()
        return bool(self._is_whole)

    def _write(self) -> None:
        """Record what was received."""
        while self._unrecorded:
            name, body = self._unrecorded[0]
            self._opened().send(TOPIC, name + b"\n" + body)
            self._recorded.append(self._unrecorded.popleft()[1])

    def _read_past(self) -> None:
        """Read once what others have received before; nothing of a record that is not whole is received again."""
        if self._is_whole is not None:
            return
        self._opened().send(TOPIC, self._mark + b"\n")  # or a server that is away would be taken for an empty record
        while self._mark not in (names := [name for name, _ in self._past]):
            if not (entries := self._entries(READ_S)):
                self._past = []  # the server may have lost its data, and is read from the start
                self._opened().close()
                self._record = None
                raise ServiceError("what a supervisor has received before could not be read")
            self._past += entries
        self._is_whole = names[0] == BEGIN
        self._take_again(self._past if self._is_whole else self._past[names.index(self._mark) :])
        self._past = []

    def _entries(self, timeout_s: float) -> list[tuple[bytes, bytes]]:
        """The next entries of the record: names and bodies."""
        split = (entry.partition(b"\n") for entry in self._opened().receive(TOPIC, timeout_s))
        return [(name, body) for name, _, body in split]

    def _take_again(self, entries: Sequence[tuple[bytes, bytes]]) -> None:
        """Take in what another reader has recorded: also after this one began, if that was only paused."""
        self._again.extend(body for name, body in entries if body and self._seen.is_new(name or None))

    def _opened(self) -> Bus:
        if self._record is None:
            self._record = self._open_record()
        return self._record

    def discard(self, topic: str) -> None:
        """See `Bus`."""
        self._broker.discard(topic)

    def release(self) -> None:
        """Record what is left, and release the connection to the record, which is deleted with the run's other keys."""
        if self._record is not None:
            with contextlib.suppress(ServiceError):
                self._write()
            self._record.close()

    def close(self, *, delete: bool = False) -> int:
        """See `Bus`."""
        self.release()
        return self._broker.close(delete=delete)


def begin_record(bus: Bus, redis_urls: Sequence[str], job_id: str, *, insecure: bool) -> None:
    """Begin the record of a run whose functions are not invoked yet, if ``bus`` is a broker's and it has a Redis.

    Raises
    ------
    ServiceError
        The server does not answer.
    """
    if not bus.tells_again(TOPIC) and redis_urls:
        with contextlib.closing(open_bus(redis_urls[0], job_id, insecure)) as record:
            record.send(TOPIC, BEGIN)


@contextlib.contextmanager
def recorded(bus: Bus, invocation: Invocation) -> Iterator[Bus]:
    """``bus``, as the supervisor of ``invocation`` reads it: recorded if it is a broker's and the run has a Redis."""
    urls = invocation.redis_urls
    if bus.tells_again(TOPIC) or not urls:
        yield bus
        return

    def opened() -> Bus:
        return open_bus(urls[0], invocation.job_id, invocation.insecure, patience_s=FUNCTION_PATIENCE_S)

    made = RecordedBus(cast(Broker, bus), opened)
    try:
        yield made
    finally:
        made.release()
