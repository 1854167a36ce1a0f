"""The thread that owns the connection of a RabbitMQ bus; no other thread calls pika.

It publishes, acknowledges and consumes when another thread wakes it. Messages that the broker has not confirmed are
kept, and published again in order over the next connection.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import pika

from ..errors import JobError
from .base import KEPT_MESSAGES, MAX_BATCH, Patience
from .rabbitmq_errors import refusal_of
from .rabbitmq_mail import Delivery, Mail, OutgoingMessage
from .urls import CONNECT_S, mask_url

#: Most messages published and not confirmed; the others wait here, not in the socket's buffer.
WINDOW = 1_000
#: Bytes from which on RabbitMQ keeps a body in a store of its own, beside the queue (``queue_index_embed_msgs_below``).
#: A broker that is killed may have written the later one of a large and a small body only, and the other one would come
#: after it once it is published again: what is published next to a large one waits for the confirmation.
LARGE = 4096

# pika logs each lost connection as an error with a traceback, which a notebook would show; we report it once.
if logging.getLogger("pika").level == logging.NOTSET:
    logging.getLogger("pika").setLevel(logging.CRITICAL)


class ConnectionThread:
    """Serves ``mail`` until the bus is closed, and reconnects when a connection is lost.

    Parameters
    ----------
    parameters
        Those of the connection, see `connection_parameters`.
    job_id : str
        The queues are called ``mlless.<job_id>.<topic>``.
    ttl_s : int
        Seconds that a queue outlives its last consumer.
    mail : Mail
    """

    def __init__(self, parameters: Any, job_id: str, ttl_s: int, mail: Mail) -> None:
        self._parameters, self._mail = parameters, mail
        self._prefix = f"mlless.{job_id}."
        self._queue_arguments = {
            "x-expires": ttl_s * 1000,
            "x-max-length": KEPT_MESSAGES,
            "x-single-active-consumer": True,
        }
        self._is_woken = False  # guarded by the mail's lock
        self._connection: Any = None
        self._outgoing: Any = None
        self._incoming: Any = None
        self._is_closing_due = False
        self._backoff = Patience(float("inf"))
        self._n_connections = self._n_opened = 0
        self._n_published = 0
        self._declared: set[str] = set()
        self._consumed: set[str] = set()
        self._is_deleting = False
        self._thread = threading.Thread(target=self._run, name=f"mlless-bus-{job_id}", daemon=True)
        self._thread.start()

    # For other threads.

    def wake(self) -> None:
        """Make the thread process the mail; to be called with the mail's lock held."""
        if self._mail.is_ready and not self._is_woken:
            self._is_woken = True
            self._connection.ioloop.add_callback_threadsafe(self._look_around)

    def join(self, timeout_s: float) -> None:
        """Wait until the thread has ended."""
        self._thread.join(timeout_s)

    # For this thread only.

    def _run(self) -> None:
        mail = self._mail
        while True:
            try:
                lost = self._serve()
            except Exception as error:  # if the thread ended silently, its users would wait for ever
                lost = error
            with mail.changed:
                self._is_woken = self._is_closing_due = False
                mail.disconnected(lost, refusal_of(lost, mail.shown))
                if self._n_opened == 0 or mail.is_over():
                    return
                mail.wait_before_retry(self._backoff.lost(mail.shown, lost))
                if mail.is_over():
                    return

    def _serve(self) -> BaseException:
        """Serve one connection until it ends; returns the reason."""
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
            with self._mail.changed:  # no other thread may wake a loop that is closed
                self._mail.is_ready = False
            connection.ioloop.close()
        return ends[0] if ends else ConnectionError("the connection was given up")

    def _opened(self, connection: Any) -> None:
        """Open one channel for publishing and one for consuming.

        pika publishes at once, but delays requests behind one that waits for its answer. On the publishing channel no
        request has an answer, so a message cannot be sent before the declaration of its queue.
        """
        self._declared, self._consumed, self._n_published = set(), set(), 0
        self._is_deleting = False

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
            with self._mail.changed:
                self._mail.connected()
            self._look_around()

        connection.channel(on_open_callback=outgoing_opened)

    def _channel_closed(self, channel: Any, reason: BaseException) -> None:
        if refusal := refusal_of(reason, self._mail.shown):
            with self._mail.changed:
                self._mail.refusal = refusal
                self._mail.changed.notify_all()
        self._disconnect()

    def _disconnect(self) -> None:
        if self._connection.is_open:
            self._connection.close()

    def _look_around(self) -> None:
        """Do all the work that other threads put into the mail."""
        mail = self._mail
        with mail.changed:
            self._is_woken = False
            if not (mail.is_ready and self._outgoing.is_open and self._incoming.is_open):
                return
            for delivery in mail.handed_over:
                if delivery.connection == self._n_connections:
                    self._incoming.basic_ack(delivery.tag)
            mail.handed_over.clear()
            while mail.outbox and self._keeps_order(mail.outbox[0]):
                self._publish(mail.outbox[0])
                mail.outbox.popleft()
            for topic in mail.inboxes.keys() - self._consumed:
                self._consumed.add(topic)
                self._declare(self._incoming, topic, self._counted(topic))
                self._incoming.basic_consume(self._prefix + topic, self._brought_on(topic))
            if mail.is_closing:
                self._prepare_end()

    def _keeps_order(self, message: OutgoingMessage) -> bool:
        """Whether ``message`` may be published before the broker has confirmed all those before it."""
        waiting = self._mail.unconfirmed
        if not waiting:
            return True
        last = next(reversed(waiting.values()))
        return len(waiting) < WINDOW and len(message.body) < LARGE and len(last.body) < LARGE

    def _prepare_end(self) -> None:
        loop, mail = self._connection.ioloop, self._mail
        if not self._is_closing_due:
            self._is_closing_due = True
            loop.call_later(max(0.0, mail.give_up_at - time.monotonic()), loop.stop)
        if mail.is_delivered:
            if not mail.left:
                self._disconnect()
            elif not self._is_deleting:
                self._is_deleting = True
                # The broker keeps a channel's order: no declaration on this one is carried out after the deletion.
                for topic in sorted(mail.left):
                    self._incoming.queue_delete(self._prefix + topic, callback=self._deleted(topic))

    def _deleted(self, topic: str) -> Callable[[Any], None]:
        mail = self._mail

        def deleted(_: Any) -> None:
            with mail.changed:
                mail.left.discard(topic)
                if not mail.left:
                    self._disconnect()

        return deleted

    def _publish(self, message: OutgoingMessage) -> None:
        if message.topic not in self._declared:
            self._declared.add(message.topic)
            self._declare(self._outgoing, message.topic)
        properties = pika.BasicProperties(delivery_mode=2, message_id=message.name.decode())
        self._outgoing.basic_publish("", self._prefix + message.topic, message.body, properties)
        self._n_published += 1
        self._mail.unconfirmed[self._n_published] = message

    def _declare(self, channel: Any, topic: str, answered: Callable[[Any], None] | None = None) -> None:
        """Declare the queue of ``topic``; the channel keeps the order of what follows, also without an answer."""
        channel.queue_declare(self._prefix + topic, durable=True, arguments=self._queue_arguments, callback=answered)

    def _counted(self, topic: str) -> Callable[[Any], None]:
        """What takes in how many messages wait at the broker, before the first of them is delivered."""
        mail = self._mail

        def counted(frame: Any) -> None:
            with mail.changed:
                mail.waiting[topic].n = min(mail.waiting[topic].n, frame.method.message_count)
                mail.changed.notify_all()

        return counted

    def _brought_on(self, topic: str) -> Callable[[Any, Any, Any, bytes], None]:
        connection, mail = self._n_connections, self._mail

        def brought(_: Any, method: Any, properties: Any, body: bytes) -> None:
            name = properties.message_id.encode() if properties.message_id else None
            with mail.changed:
                mail.inboxes[topic].append(Delivery(connection, method.delivery_tag, name, body))
                mail.changed.notify_all()

        return brought

    def _confirmed(self, frame: Any) -> None:
        method = frame.method
        if isinstance(method, pika.spec.Basic.Nack):
            # The broker could not store it. Publishing all again on a new connection keeps the order.
            self._disconnect()
            return
        with self._mail.changed:
            self._mail.confirm(method.delivery_tag, method.multiple)
        self._look_around()


def connection_parameters(url: str, heartbeat_s: int) -> Any:
    """Pika's parameters for ``url``; raises `JobError` if it is not a URL of RabbitMQ."""
    try:
        parameters = pika.URLParameters(url)
    except (ValueError, TypeError, AttributeError):
        raise JobError("bus", mask_url(url), "amqp://user:password@host:5672/vhost") from None
    parameters.heartbeat = heartbeat_s
    parameters.socket_timeout = parameters.stack_timeout = CONNECT_S
    parameters.blocked_connection_timeout = 6 * heartbeat_s
    return parameters
