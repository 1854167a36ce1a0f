"""The control bus on Redis Streams: a topic is a stream, kept until it is deleted or expires."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import redis

from ..errors import ServiceError
from .base import (
    KEPT_MESSAGES,
    MAX_BATCH,
    PATIENCE_S,
    TOPICS,
    TTL_S,
    Numbers,
    Patience,
    Seen,
    check_message,
    check_name,
)
from .urls import CONNECT_S, mask_url, redis_client

#: Longest blocking read, seconds: a closed bus is noticed within this time.
SLICE_S = 1.0
Answer = TypeVar("Answer")


class _Reader:
    """The position up to which one topic has been read."""

    def __init__(self, patience_s: float) -> None:
        self.lock = threading.Lock()
        self.patience = Patience(patience_s)
        self.seen = Seen()
        self.last_id: bytes | None = None  # of the last entry read


class RedisBus:
    """A control bus of Redis Streams; see `Bus`.

    A message of a topic is an entry ``{i: name, b: body}`` of the stream ``mlless:{<job_id>}:bus:<topic>``. Reading
    does not remove messages: another bus can read the same messages from the start.
    """

    def __init__(
        self, url: str, job_id: str, *, from_start: bool = True, ttl_s: int = TTL_S, patience_s: float = PATIENCE_S
    ) -> None:
        self._shown = mask_url(url)
        self._prefix = f"mlless:{{{job_id}}}:bus:"
        self._from_start, self._ttl_s, self._patience_s = from_start, ttl_s, patience_s
        self._numbers = Numbers()
        self._used: set[str] = set()
        self._readers: dict[str, _Reader] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._n_active = 0  # actions that are using the client
        self._client = redis_client(url, "bus", socket_timeout=CONNECT_S)  # > SLICE_S: a blocking read ends first
        self._was_let_in = False
        try:
            self._client.ping()
            self._was_let_in = True
        except (redis.exceptions.RedisError, OSError) as error:
            self._client.close()
            raise self._failure(error) from None

    def send(self, topic: str, body: bytes) -> None:
        """See `Bus`. On return the message is on the server."""
        check_message(topic, body)
        with self._lock:
            self._used.add(topic)
        key, entry = self._prefix + topic, {b"i": self._numbers.next(), b"b": bytes(body)}

        def add() -> None:
            with self._client.pipeline(transaction=True) as pipeline:
                pipeline.xadd(key, entry, maxlen=KEPT_MESSAGES, approximate=True)
                pipeline.expire(key, self._ttl_s)
                pipeline.execute()

        patience = Patience(self._patience_s)
        while True:
            self._refuse_closed()
            pause_s = self._try(add, patience)[1]
            if pause_s is None:
                return
            self._closed.wait(pause_s)

    def receive(self, topic: str, timeout_s: float) -> list[bytes]:
        """See `Bus`."""
        check_name("topic", topic)
        self._refuse_closed()
        deadline = time.monotonic() + timeout_s
        with self._lock:
            self._used.add(topic)
            reader = self._readers.setdefault(topic, _Reader(self._patience_s))
        with reader.lock:
            while True:
                if self._closed.is_set():
                    return []
                block_s = min(max(deadline - time.monotonic(), 0.0), SLICE_S)
                bodies, pause_s = self._try(partial(self._read, topic, reader, block_s), reader.patience)
                left_s = deadline - time.monotonic()
                if bodies or left_s <= 0:
                    return bodies or []
                if pause_s:
                    self._closed.wait(min(pause_s, left_s))

    def _read(self, topic: str, reader: _Reader, block_s: float) -> list[bytes]:
        key = self._prefix + topic
        if reader.last_id is None:
            newest = [] if self._from_start else self._client.xrevrange(key, count=1)
            reader.last_id = newest[0][0] if newest else b"0-0"
        # BLOCK 0 would block for ever; without BLOCK, Redis does not block.
        answer: Any = self._client.xread({key: reader.last_id}, count=MAX_BATCH, block=int(block_s * 1000) or None)
        entries = answer[0][1] if answer else []
        if entries:
            reader.last_id = entries[-1][0]
        return [fields[b"b"] for _, fields in entries if b"b" in fields and reader.seen.is_new(fields.get(b"i"))]

    def tells_again(self, topic: str) -> bool:
        """See `Bus`."""
        return True

    def discard(self, topic: str) -> None:
        """See `Bus`. The newest message that was received stays."""
        with self._lock:
            reader = self._readers.get(topic)
        last_id = reader.last_id if reader is not None else None
        if last_id is not None and not self._closed.is_set():
            with contextlib.suppress(redis.exceptions.RedisError, OSError):
                self._client.xtrim(self._prefix + topic, minid=last_id, approximate=True)

    def _try(self, action: Callable[[], Answer], patience: Patience) -> tuple[Answer | None, float | None]:
        """(result of ``action``, None), or (None, seconds to wait before the next try)."""
        with self._lock:
            self._refuse_closed()
            self._n_active += 1
        try:
            answer = action()
        except (redis.exceptions.RedisError, OSError) as error:
            if self._closed.is_set():
                return None, 0.0
            failure = self._failure(error)
            # A server that was restarted has lost the job's user, which the driver makes again.
            is_unknown = self._was_let_in and isinstance(error, redis.exceptions.AuthenticationError)
            if not _may_pass(error) and not is_unknown:
                raise failure from None
            return None, patience.lost(self._shown, error)
        finally:
            self._leave()
        patience.found()
        return answer, None

    def _failure(self, error: BaseException) -> ServiceError:
        if isinstance(error, redis.exceptions.AuthenticationError):
            return ServiceError(f"the control bus at {self._shown} refuses the user or the password")
        said = (str(error).strip() or type(error).__name__).splitlines()[0]
        verb = "does not answer" if _may_pass(error) else "refuses"
        return ServiceError(f"the control bus at {self._shown} {verb}: {said}")

    def _leave(self) -> None:
        """End an action. After `close`, the last one closes the connections, so no thread loses one while reading."""
        with self._lock:
            self._n_active -= 1
            is_last = self._closed.is_set() and self._n_active == 0
        if is_last:
            self._client.close()

    def _refuse_closed(self) -> None:
        if self._closed.is_set():
            raise ServiceError("the control bus is closed")

    def close(self, *, delete: bool = False) -> int:
        """See `Bus`."""
        topics = {*TOPICS, *self._used} if delete else set()
        with self._lock:
            if self._closed.is_set():
                return 0
            self._closed.set()
            self._n_active += 1
        try:
            if topics:
                self._client.unlink(*(self._prefix + topic for topic in topics))
            return 0
        except (redis.exceptions.RedisError, OSError):
            return len(topics)  # the keys expire anyway
        finally:
            self._leave()


def _may_pass(error: BaseException) -> bool:
    """Whether a retry may succeed: the connection was lost, or the server is starting."""
    if isinstance(error, redis.exceptions.AuthenticationError):
        return False
    return isinstance(error, redis.exceptions.ConnectionError | redis.exceptions.TimeoutError | OSError)
