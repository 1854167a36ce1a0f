"""The control bus on RabbitMQ: a topic is a durable queue, and one thread owns the connection.

The other threads put messages, acknowledgements and wishes to listen where the I/O thread finds them, and wake it.
What the broker has not confirmed is kept, and published again in order when the connection comes back.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import pika

from ..errors import JobError, ServiceError
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
from .urls import CONNECT_S, mask_url

#: Seconds between heartbeats; a peer that misses two of them is gone.
HEARTBEAT_S = 10
#: Messages published and not yet confirmed at most; the others wait here, not in the socket's buffer.
WINDOW = 1_000
#: Messages that wait to be confirmed at most; `RabbitMqBus.send` then waits for room.
MAX_OUTSTANDING = 10_000
#: Seconds that `RabbitMqBus.close` gives the broker to confirm what was sent.
FLUSH_S = 5.0

# pika logs each lost connection as an error, with a traceback, which a notebook would show; ours are said once.
if logging.getLogger("pika").level == logging.NOTSET:
    logging.getLogger("pika").setLevel(logging.CRITICAL)


class _Message(NamedTuple):
    topic: str
    name: bytes
    body: bytes


class _Delivery(NamedTuple):
    connection: int  # number of the connection that brought it: a tag means nothing on another
    tag: int
    name: bytes | None
    body: bytes


class RabbitMqBus:
    """Durable queues of a RabbitMQ as a control bus; see `Bus`.

    The queue ``mlless.<job_id>.<topic>`` has one active consumer at a time and expires ``ttl_s`` seconds after its
    last one left. A message is acknowledged, and so gone, when `receive` hands it over.
    """

    def __init__(
        self,
        url: str,
        job_id: str,
        *,
        ttl_s: int = TTL_S,
        patience_s: float = PATIENCE_S,
        heartbeat_s: int = HEARTBEAT_S,
    ) -> None:
        self._shown = mask_url(url)
        self._parameters = _parameters(url, heartbeat_s)
        self._prefix = f"mlless.{job_id}."
        self._queue_arguments = {
            "x-expires": ttl_s * 1000,
            "x-max-length": KEPT_MESSAGES,
            "x-single-active-consumer": True,
        }
        self._patience_s = patience_s
        self._numbers, self._seen = Numbers(), Seen()
        self._changed = threading.Condition()  # guards all below
        self._outbox: deque[_Message] = deque()  # sent, to be published on this connection
        self._unconfirmed: dict[int, _Message] = {}  # delivery tag -> published, to be confirmed; in order
        self._inboxes: dict[str, deque[_Delivery]] = {}  # topic -> brought by the broker, to be handed over
        self._handed_over: list[_Delivery] = []  # to be acknowledged
        self._used: set[str] = set()
        self._away_since: float | None = None
        self._error: BaseException | None = None
        self._refusal: ServiceError | None = None  # the broker will not have us; trying again is of no use
        self._closing = False
        self._delete = False
        self._give_up_at = float("inf")
        self._is_ready = False
        self._is_woken = False
        # Of the I/O thread, which alone calls pika:
        self._connection: Any = None
        self._outgoing: Any = None
        self._incoming: Any = None
        self._is_closing_due = False
        self._backoff = Patience(float("inf"))
        self._n_connections = self._n_opened = 0
        self._n_published = 0
        self._declared: set[str] = set()
        self._consumed: set[str] = set()
        self._thread = threading.Thread(target=self._run, name=f"mlless-bus-{job_id}", daemon=True)
        self._thread.start()
        with self._changed:
            self._changed.wait_for(lambda: self._is_ready or self._error is not None, CONNECT_S + 1.0)
            if self._is_ready:
                return
            self._closing, self._give_up_at = True, 0.0
            raise self._refusal or self._failure(self._error or TimeoutError("no answer"))

    # What the bus's users call, from any thread.

    def send(self, topic: str, body: bytes) -> None:
        """See `Bus`. The broker confirms later; `close` waits for that."""
        check_message(topic, body)
        with self._changed:
            deadline = time.monotonic() + self._patience_s
            while len(self._outbox) + len(self._unconfirmed) >= MAX_OUTSTANDING:
                self._refuse_if_unfit()
                if not self._changed.wait(deadline - time.monotonic()):
                    raise ServiceError(f"the control bus at {self._shown} takes no more messages")
            self._refuse_if_unfit()
            self._used.add(topic)
            self._outbox.append(_Message(topic, self._numbers.next(), bytes(body)))
            self._wake()

    def receive(self, topic: str, timeout_s: float) -> list[bytes]:
        """See `Bus`."""
        check_name("topic", topic)
        deadline = time.monotonic() + timeout_s
        with self._changed:
            self._refuse_if_unfit()
            if topic not in self._inboxes:
                self._inboxes[topic] = deque()
                self._used.add(topic)
                self._wake()
            while True:
                bodies = self._hand_over(topic)
                left_s = deadline - time.monotonic()
                if bodies or left_s <= 0 or self._closing:
                    return bodies
                self._changed.wait(min(left_s, 1.0))
                if not self._inboxes[topic] and not self._closing:
                    self._refuse_if_unfit()

    def _hand_over(self, topic: str) -> list[bytes]:
        inbox = self._inboxes[topic]
        bodies: list[bytes] = []
        while inbox and len(bodies) < MAX_BATCH:
            delivery = inbox.popleft()
            self._handed_over.append(delivery)
            if self._seen.is_new(delivery.name):
                bodies.append(delivery.body)
        if self._handed_over:
            self._wake()
        return bodies

    def close(self, *, delete: bool = False) -> None:
        """See `Bus`. Waits up to `FLUSH_S` seconds for the broker to confirm what was sent."""
        with self._changed:
            if not self._closing:
                self._closing, self._delete = True, delete
                self._give_up_at = time.monotonic() + FLUSH_S
                self._changed.notify_all()
                self._wake()
        self._thread.join(FLUSH_S + 2.0)

    def _refuse_if_unfit(self) -> None:
        if self._closing:
            raise ServiceError("the control bus is closed")
        if self._refusal is not None:
            raise self._refusal
        if self._away_since is not None:
            away_s = time.monotonic() - self._away_since
            if away_s >= self._patience_s:
                said = _said(self._error)
                raise ServiceError(f"the control bus at {self._shown} has been away for {away_s:.0f} s: {said}")

    def _wake(self) -> None:
        """Have the I/O thread look around; with the lock held."""
        if self._is_ready and not self._is_woken:
            self._is_woken = True
            self._connection.ioloop.add_callback_threadsafe(self._look_around)

    # What the I/O thread does.

    def _run(self) -> None:
        while True:
            try:
                lost = self._serve()
            except Exception as error:  # a thread that ends in silence would leave its users waiting
                lost = error
            with self._changed:
                self._forget_connection(lost)
                if self._n_opened == 0 or self._is_over():
                    return
                pause_s = self._backoff.lost(self._shown, lost)
                self._changed.wait_for(lambda: self._closing, pause_s)
                if self._is_over():
                    return

    def _is_over(self) -> bool:
        is_late = time.monotonic() >= self._give_up_at
        return self._closing and (self._is_done() or is_late or self._refusal is not None)

    def _serve(self) -> BaseException:
        """Live through one connection; why it ended."""
        ends: list[BaseException] = []

        def ended(connection: Any, reason: BaseException) -> None:
            ends.append(reason)
            connection.ioloop.stop()

        self._n_connections += 1
        self._connection = connection = pika.SelectConnection(
            self._parameters, on_open_callback=self._opened, on_open_error_callback=ended, on_close_callback=ended
        )
        try:
            connection.ioloop.start()
        finally:
            with self._changed:  # no other thread may wake a loop that is closed
                self._is_ready = False
            connection.ioloop.close()
        return ends[0] if ends else ConnectionError("the connection was given up")

    def _forget_connection(self, lost: BaseException) -> None:
        """Put back what the lost connection did not finish; with the lock held."""
        self._is_ready = self._is_woken = self._is_closing_due = False
        self._error = lost
        if self._away_since is None:
            self._away_since = time.monotonic()
        if self._refusal is None and _is_refusal(lost):
            self._refusal = self._failure(lost)
        self._outbox.extendleft(reversed(self._unconfirmed.values()))
        self._unconfirmed.clear()
        self._handed_over.clear()
        for inbox in self._inboxes.values():
            inbox.clear()  # the broker brings them again
        self._changed.notify_all()

    def _opened(self, connection: Any) -> None:
        """Open a channel each for what goes out and what comes in.

        Publishing overtakes a request that waits for its answer on the same channel: on the one that goes out, nothing
        is ever answered but confirmations, so that a message cannot come before its queue.
        """
        self._declared, self._consumed, self._n_published = set(), set(), 0

        def outgoing_opened(channel: Any) -> None:
            self._outgoing = channel
            channel.add_on_close_callback(self._channel_closed)
            channel.confirm_delivery(self._confirmed)
            connection.channel(on_open_callback=incoming_opened)

        def incoming_opened(channel: Any) -> None:
            self._incoming = channel
            channel.add_on_close_callback(self._channel_closed)
            channel.basic_qos(prefetch_count=2 * MAX_BATCH)
            self._n_opened += 1
            self._backoff.found()
            with self._changed:
                self._is_ready, self._away_since = True, None
                self._changed.notify_all()
            self._look_around()

        connection.channel(on_open_callback=outgoing_opened)

    def _channel_closed(self, channel: Any, reason: BaseException) -> None:
        if _is_refusal(reason):
            with self._changed:
                self._refusal = self._failure(reason)
                self._changed.notify_all()
        self._disconnect()

    def _disconnect(self) -> None:
        if self._connection.is_open:
            self._connection.close()

    def _look_around(self) -> None:
        """Do all that the other threads have left to do."""
        with self._changed:
            self._is_woken = False
            if not (self._is_ready and self._outgoing.is_open and self._incoming.is_open):
                return
            for delivery in self._handed_over:
                if delivery.connection == self._n_connections:
                    self._incoming.basic_ack(delivery.tag)
            self._handed_over.clear()
            while self._outbox and len(self._unconfirmed) < WINDOW:
                self._publish(self._outbox[0])
                self._outbox.popleft()
            for topic in self._inboxes.keys() - self._consumed:
                self._consumed.add(topic)
                self._declare(self._incoming, topic)
                self._incoming.basic_consume(self._prefix + topic, self._brought_on(topic))
            if self._closing:
                self._prepare_end()

    def _prepare_end(self) -> None:
        loop = self._connection.ioloop
        if not self._is_closing_due:
            self._is_closing_due = True
            loop.call_later(max(0.0, self._give_up_at - time.monotonic()), loop.stop)
        if self._is_done():
            if self._delete:
                for topic in {*TOPICS, *self._used}:
                    self._outgoing.queue_delete(self._prefix + topic)
            self._disconnect()

    def _is_done(self) -> bool:
        return not (self._outbox or self._unconfirmed)

    def _publish(self, message: _Message) -> None:
        if message.topic not in self._declared:
            self._declared.add(message.topic)
            self._declare(self._outgoing, message.topic)
        properties = pika.BasicProperties(delivery_mode=2, message_id=message.name.decode())
        self._outgoing.basic_publish("", self._prefix + message.topic, message.body, properties)
        self._n_published += 1
        self._unconfirmed[self._n_published] = message

    def _declare(self, channel: Any, topic: str) -> None:
        """Make the queue of ``topic``, without an answer: what follows on the channel comes after it."""
        channel.queue_declare(self._prefix + topic, durable=True, arguments=self._queue_arguments)

    def _brought_on(self, topic: str) -> Callable[[Any, Any, Any, bytes], None]:
        connection = self._n_connections

        def brought(_: Any, method: Any, properties: Any, body: bytes) -> None:
            name = properties.message_id.encode() if properties.message_id else None
            with self._changed:
                self._inboxes[topic].append(_Delivery(connection, method.delivery_tag, name, body))
                self._changed.notify_all()

        return brought

    def _confirmed(self, frame: Any) -> None:
        method = frame.method
        if isinstance(method, pika.spec.Basic.Nack):
            # The broker could not store it. Publishing all again on a new connection keeps the order.
            self._disconnect()
            return
        with self._changed:
            if method.multiple:
                for tag in [tag for tag in self._unconfirmed if tag <= method.delivery_tag]:
                    del self._unconfirmed[tag]
            else:
                self._unconfirmed.pop(method.delivery_tag, None)
            self._changed.notify_all()
        self._look_around()

    def _failure(self, error: BaseException) -> ServiceError:
        if isinstance(error, pika.exceptions.ProbableAuthenticationError | pika.exceptions.AuthenticationError):
            return ServiceError(f"the control bus at {self._shown} refuses the user or the password")
        if isinstance(error, pika.exceptions.ProbableAccessDeniedError):
            return ServiceError(f"the control bus at {self._shown} refuses the user this virtual host")
        if _is_refusal(error):
            return ServiceError(f"the control bus at {self._shown} refuses: {_said(error)}")
        return ServiceError(f"the control bus at {self._shown} does not answer: {_said(error)}")


def _parameters(url: str, heartbeat_s: int) -> Any:
    try:
        parameters = pika.URLParameters(url)
    except (ValueError, TypeError, AttributeError):
        raise JobError("bus", mask_url(url), "amqp://user:password@host:5672/vhost") from None
    parameters.heartbeat = heartbeat_s
    parameters.socket_timeout = parameters.stack_timeout = CONNECT_S
    parameters.blocked_connection_timeout = 6 * heartbeat_s
    return parameters


def _is_refusal(error: BaseException) -> bool:
    """Whether the broker is there and says no, for good."""
    if isinstance(error, pika.exceptions.AuthenticationError | pika.exceptions.ProbableAuthenticationError):
        return True
    if isinstance(error, pika.exceptions.ProbableAccessDeniedError):
        return True
    # 403 access refused, 406 a queue of this name has other properties (another ttl_s)
    return isinstance(error, pika.exceptions.ChannelClosedByBroker) and error.reply_code in (403, 406)


def _said(error: BaseException | None) -> str:
    """The innermost reason of one of pika's nested errors, in one line."""
    inner: list[BaseException | None] = [error]
    while inner:
        error = inner[-1]
        parts = getattr(error, "exceptions", None) or getattr(error, "args", None) or ()
        inner = [part for part in parts if isinstance(part, BaseException)]
    return (str(error).strip() or type(error).__name__).splitlines()[0]
