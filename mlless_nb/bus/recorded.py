"""A broker's messages to the supervisor, recorded on the run's Redis: the next supervisor receives them again."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator

from .base import FUNCTION_PATIENCE_S, MAX_BATCH, Bus
from .factory import open_bus
from .messages import Invocation

#: The topic that is recorded, and the first entry of its record: one without it has lost its data.
TOPIC, BEGIN = "supervisor", b"begin"


class RecordedBus:
    """A bus on which a topic that a broker delivers once is received again by each later reader; see `Bus`.

    A message is recorded before `receive` returns it. Only one that the broker had taken for received, and that its
    reader had not recorded when it died, is lost.

    Parameters
    ----------
    broker : Bus
    open_record : callable
        Opens the bus that keeps the record. It is opened by the first `receive`, which a server that is away fails.
    is_first : bool
        Whether nobody has received anything before.
    """

    def __init__(self, broker: Bus, open_record: Callable[[], Bus], *, is_first: bool) -> None:
        self._broker, self._open_record = broker, open_record
        self._record: Bus | None = None
        # None: what others have received is not read yet.
        self._again: deque[bytes] | None = deque() if is_first else None
        self._is_whole = is_first
        self._known: set[bytes] = set()  # what was recorded by others: the broker may deliver some of it once more
        self._unrecorded = deque([BEGIN] if is_first else [])
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
        if again := self._told():
            return [again.popleft() for _ in range(min(len(again), MAX_BATCH))]
        self._write()
        if not self._recorded:
            self._unrecorded.extend(one for one in self._broker.receive(topic, timeout_s) if one not in self._known)
            self._write()
        bodies, self._recorded = self._recorded, []
        return bodies

    def _write(self) -> None:
        """Record what was received."""
        while self._unrecorded:
            self._opened().send(TOPIC, self._unrecorded[0])
            if (body := self._unrecorded.popleft()) != BEGIN:
                self._recorded.append(body)

    def tells_again(self, topic: str) -> bool:
        """See `Bus`: unless the Redis has lost its data."""
        if topic != TOPIC:
            return self._broker.tells_again(topic)
        self._told()
        return self._is_whole

    def _told(self) -> deque[bytes]:
        """What others have received, and this one has not returned; nothing of a record that is not whole."""
        if self._again is None:
            record, bodies = self._opened(), list[bytes]()
            while batch := record.receive(TOPIC, 0.0):
                bodies += batch
            self._is_whole = bodies[:1] == [BEGIN]
            self._known = set(bodies)
            self._again = deque(dict.fromkeys(bodies[1:])) if self._is_whole else deque()
        return self._again

    def _opened(self) -> Bus:
        if self._record is None:
            self._record = self._open_record()
        return self._record

    def discard(self, topic: str) -> None:
        """See `Bus`."""
        self._broker.discard(topic)

    def release(self) -> None:
        """Release the connection to the record, which is deleted with the run's other keys."""
        if self._record is not None:
            self._record.close()

    def close(self, *, delete: bool = False) -> int:
        """See `Bus`."""
        self.release()
        return self._broker.close(delete=delete)


@contextlib.contextmanager
def recorded(bus: Bus, invocation: Invocation, *, is_first: bool) -> Iterator[Bus]:
    """``bus``, as the supervisor of ``invocation`` reads it: recorded if it is a broker's and the run has a Redis."""
    urls = invocation.redis_urls
    if bus.tells_again(TOPIC) or not urls:
        yield bus
        return

    def opened() -> Bus:
        return open_bus(urls[0], invocation.job_id, invocation.insecure, patience_s=FUNCTION_PATIENCE_S)

    made = RecordedBus(bus, opened, is_first=is_first)
    try:
        yield made
    finally:
        made.release()
