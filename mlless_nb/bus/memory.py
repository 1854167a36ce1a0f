"""The control bus within one process, for unit tests; the reference for the other two."""

from __future__ import annotations

import threading

from ..errors import ServiceError
from .base import KEPT_MESSAGES, MAX_BATCH, check_message, check_name


class _Hub:
    """All topics of one job, shared by the job's buses."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.topics: dict[str, list[bytes]] = {}


_hubs: dict[tuple[str, str], _Hub] = {}
_hubs_lock = threading.Lock()


class MemoryBus:
    """A control bus of lists in this process; see `Bus`. Buses with equal URL and job share their messages."""

    def __init__(self, url: str, job_id: str, *, from_start: bool = True) -> None:
        self._name = (url, job_id)
        with _hubs_lock:
            self._hub = _hubs.setdefault(self._name, _Hub())
        self._from_start = from_start
        self._n_read: dict[str, int] = {}
        self._closed = False

    def send(self, topic: str, body: bytes) -> None:
        """See `Bus`."""
        check_message(topic, body)
        with self._hub.changed:
            self._refuse_closed()
            messages = self._hub.topics.setdefault(topic, [])
            if len(messages) >= KEPT_MESSAGES:
                raise ServiceError(f"memory:// holds {KEPT_MESSAGES} messages of {topic!r}; use a Redis for more")
            messages.append(bytes(body))
            self._hub.changed.notify_all()

    def receive(self, topic: str, timeout_s: float) -> list[bytes]:
        """See `Bus`."""
        check_name("topic", topic)
        with self._hub.changed:
            self._refuse_closed()
            messages = self._hub.topics.setdefault(topic, [])
            n_read = self._n_read.setdefault(topic, 0 if self._from_start else len(messages))
            self._hub.changed.wait_for(lambda: self._closed or len(messages) > n_read, timeout_s)
            if self._closed:
                return []
            batch = messages[n_read : n_read + MAX_BATCH]
            self._n_read[topic] = n_read + len(batch)
            return batch

    def _refuse_closed(self) -> None:
        if self._closed:
            raise ServiceError("the control bus is closed")

    def tells_again(self, topic: str) -> bool:
        """See `Bus`."""
        return True

    def discard(self, topic: str) -> None:
        """See `Bus`. Messages are kept."""

    def close(self, *, delete: bool = False) -> int:
        """See `Bus`."""
        with self._hub.changed:
            self._closed = True
            self._hub.changed.notify_all()
        if delete:
            with _hubs_lock:
                _hubs.pop(self._name, None)
        return 0
