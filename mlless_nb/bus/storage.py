"""The control bus in the object storage: a topic is a row of numbered objects, each written once.

A sender creates the object with the next number, on the condition that there is none; if another sender was first, it
tries the number after it. A reader asks for the next number, at growing intervals. So messages have one order, none is
lost, and a message whose sender repeats it is known by its name.
"""

from __future__ import annotations

import threading
import time

from ..errors import ServiceError
from ..storage.conditional import Conditional
from .base import MAX_BATCH, PATIENCE_S, TOPICS, Numbers, Patience, Seen, check_message, check_name

#: The URL of this bus.
URL = "storage://"
#: Seconds of the first and of the longest pause of a reader: on this machine, and elsewhere.
LOCAL_PAUSES_S, PAUSES_S = (0.001, 0.02), (0.1, 0.5)
GROWTH = 1.5


class _Topic:
    """How far one topic is known here."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.next = 0
        self.is_begun = False
        self.seen = Seen()
        self.asked_at = -1e9


class StorageBus:
    """A control bus of objects ``<folder>mail/<topic>/<number>``; see `Bus`. Reading does not remove messages.

    Parameters
    ----------
    storage : Conditional
    folder : str
        Prefix of the job's keys.
    from_start : bool
        Read each topic from its first message; else from those that are sent after the first `receive`.
    patience_s : float
        Seconds that the storage may fail before `send` and `receive` raise.
    """

    def __init__(
        self, storage: Conditional, folder: str, *, from_start: bool = True, patience_s: float = PATIENCE_S
    ) -> None:
        self._storage, self._folder = storage, f"{folder}mail/"
        self._from_start, self._patience_s = from_start, patience_s
        self._pauses_s = LOCAL_PAUSES_S if storage.has_local_objects else PAUSES_S
        self._numbers = Numbers()
        self._sending: dict[str, _Topic] = {}
        self._reading: dict[str, _Topic] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()

    def send(self, topic: str, body: bytes) -> None:
        """See `Bus`. On return the message is in the storage."""
        check_message(topic, body)
        name = self._numbers.next()
        blob, patience = name + b"\n" + body, Patience(self._patience_s)
        with self._lock:
            mine = self._sending.setdefault(topic, _Topic())
        with mine.lock:
            while True:
                self._refuse_closed()
                try:
                    if self._place(topic, mine, name, blob):
                        return
                    patience.found()
                except ServiceError as error:
                    self._closed.wait(patience.lost(URL, error))

    def _place(self, topic: str, mine: _Topic, name: bytes, blob: bytes) -> bool:
        """Try to write a message under the next number; whether it is there."""
        key = self._key(topic, mine.next)
        is_placed = self._storage.swap(key, blob) is not None
        if not is_placed:
            found = self._storage.read(key)
            is_placed = found is not None and found.blob.partition(b"\n")[0] == name  # the answer was lost
            while not is_placed and found is not None:  # reads cost less than writes: look for the end
                mine.next += 1
                found = self._storage.read(self._key(topic, mine.next))
        if is_placed:
            mine.next += 1
        return is_placed

    def _key(self, topic: str, number: int) -> str:
        return f"{self._folder}{topic}/{number}"

    def receive(self, topic: str, timeout_s: float) -> list[bytes]:
        """See `Bus`. A reader that asks often is answered from the storage only as often as the pauses say."""
        check_name("topic", topic)
        self._refuse_closed()
        give_up_at = time.monotonic() + timeout_s
        with self._lock:
            mine = self._reading.setdefault(topic, _Topic())
        patience, (pause_s, longest_s) = Patience(self._patience_s), self._pauses_s
        with mine.lock:
            while not self._closed.is_set():
                bodies: list[bytes] = []
                try:
                    if self._storage.has_local_objects or time.monotonic() - mine.asked_at >= pause_s:
                        bodies = self._read_on(topic, mine)
                    patience.found()
                except ServiceError as error:
                    self._closed.wait(patience.lost(URL, error))
                left_s = give_up_at - time.monotonic()
                if bodies or left_s <= 0:
                    return bodies
                self._closed.wait(min(pause_s, left_s))
                pause_s = min(GROWTH * pause_s, longest_s)
        return []

    def _read_on(self, topic: str, mine: _Topic) -> list[bytes]:
        if not mine.is_begun and not self._from_start:
            numbers = [int(key.rpartition("/")[2]) for key in self._storage.objects.list(f"{self._folder}{topic}/")]
            mine.next = max(numbers, default=-1) + 1
        mine.is_begun = True
        bodies: list[bytes] = []
        while len(bodies) < MAX_BATCH:
            try:
                blob = self._storage.objects.get(self._key(topic, mine.next))
            except KeyError:
                return bodies
            except ServiceError:
                if not bodies:
                    raise
                break  # what was read is not read again
            finally:
                mine.asked_at = time.monotonic()
            mine.next += 1
            name, _, body = blob.partition(b"\n")
            if mine.seen.is_new(name):
                bodies.append(body)
        mine.asked_at = -1e9  # there may be more
        return bodies

    def _refuse_closed(self) -> None:
        if self._closed.is_set():
            raise ServiceError("the control bus is closed")

    def tells_again(self, topic: str) -> bool:
        """See `Bus`."""
        return True

    def discard(self, topic: str) -> None:
        """See `Bus`. A removal is a request, too; messages are kept until the end."""

    def close(self, *, delete: bool = False) -> int:
        """See `Bus`."""
        if self._closed.is_set():
            return 0
        self._closed.set()
        try:
            if delete:
                self._storage.objects.delete(self._storage.objects.list(self._folder))
            return 0
        except ServiceError:
            return len(TOPICS)  # what was to be deleted cannot be reached
