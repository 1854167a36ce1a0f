"""The control bus on RabbitMQ: a topic is a durable queue, and one thread owns the connection.

The other threads put messages, acknowledgements and topics to consume into the shared `Mail`, and wake that thread.
"""

from __future__ import annotations

import time
from collections import deque

from ..errors import ServiceError
from .base import MAX_BATCH, TOPICS, TTL_S, Numbers, Seen, check_message, check_name
from .rabbitmq_connection import ConnectionThread, connection_parameters
from .rabbitmq_errors import service_error
from .rabbitmq_mail import Mail, OutgoingMessage, Waiting
from .urls import CONNECT_S, mask_url

#: Seconds between heartbeats; a peer that misses two of them counts as lost.
HEARTBEAT_S = 10
#: Seconds that the broker may be away: messages wait for it, callers do not.
PATIENCE_S = 300.0
#: Seconds that `RabbitMqBus.close` waits for the broker to confirm what was sent, if it is to delete the queues: it may
#: just be restarted.
FLUSH_S = 12.0


class RabbitMqBus:
    """A control bus of durable queues on RabbitMQ; see `Bus`.

    The queue ``mlless.<job_id>.<topic>`` has one active consumer at a time and expires ``ttl_s`` seconds after its
    last consumer left. `receive` acknowledges each message that it returns, which removes it from the queue.
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
        parameters = connection_parameters(url, heartbeat_s)
        self._numbers, self._seen = Numbers(), Seen()
        self._mail = mail = Mail(mask_url(url), patience_s)
        self._connection = ConnectionThread(parameters, job_id, ttl_s, mail)
        with mail.changed:
            mail.changed.wait_for(lambda: mail.is_ready or mail.error is not None, CONNECT_S + 1.0)
            if mail.is_ready:
                return
            mail.is_closing, mail.give_up_at = True, 0.0
            raise mail.refusal or service_error(mail.error or TimeoutError("no answer"), mail.shown)

    def send(self, topic: str, body: bytes) -> None:
        """See `Bus`. The broker confirms later; `close` waits for that."""
        check_message(topic, body)
        mail = self._mail
        with mail.changed:
            deadline = time.monotonic() + mail.patience_s
            while mail.is_full:
                mail.check_fit()
                if not mail.changed.wait(deadline - time.monotonic()):
                    raise ServiceError(f"the control bus at {mail.shown} takes no more messages")
            mail.check_fit()
            mail.used_topics.add(topic)
            mail.outbox.append(OutgoingMessage(topic, self._numbers.next(), bytes(body)))
            self._connection.wake()

    def receive(self, topic: str, timeout_s: float) -> list[bytes]:
        """See `Bus`. Messages that were at the broker before this reader are waited for: they are under way."""
        return [body for _, body in self.receive_named(topic, timeout_s)]

    def receive_named(self, topic: str, timeout_s: float) -> list[tuple[bytes, bytes]]:
        """See `receive`: the messages' names, b"" for one without, and bodies."""
        check_name("topic", topic)
        mail, deadline = self._mail, time.monotonic() + timeout_s
        with mail.changed:
            mail.check_fit()
            if topic not in mail.inboxes:
                mail.inboxes[topic], mail.waiting[topic] = deque(), Waiting()
                mail.used_topics.add(topic)
                self._connection.wake()
            while True:
                named = self._hand_over(topic)
                left_s = max(deadline - time.monotonic(), mail.waiting[topic].left_s)
                if named or left_s <= 0 or mail.is_closing:
                    return named
                mail.changed.wait(min(left_s, 1.0))
                if not mail.inboxes[topic] and not mail.is_closing:
                    mail.check_fit()

    def _hand_over(self, topic: str) -> list[tuple[bytes, bytes]]:
        mail = self._mail
        inbox = mail.inboxes[topic]
        named: list[tuple[bytes, bytes]] = []
        while inbox and len(named) < MAX_BATCH:
            delivery = inbox.popleft()
            mail.handed_over.append(delivery)
            mail.waiting[topic].n -= 1
            if self._seen.is_new(delivery.name):
                named.append((delivery.name or b"", delivery.body))
        if mail.handed_over:
            self._connection.wake()
        return named

    def tells_again(self, topic: str) -> bool:
        """See `Bus`. The broker delivers each message once."""
        return False

    def discard(self, topic: str) -> None:
        """See `Bus`. The broker has removed it already."""

    def close(self, *, delete: bool = False) -> int:
        """See `Bus`. Waits until the broker has confirmed all of it: the last message says how a run ends.

        As long as others wait for the broker, but no longer than `FLUSH_S` seconds if the queues are to be deleted.
        """
        mail = self._mail
        with mail.changed:
            if not mail.is_closing:
                mail.is_closing, mail.left = True, {*TOPICS, *mail.used_topics} if delete else set()
                mail.give_up_at = time.monotonic() + (FLUSH_S if delete else mail.patience_s)
                mail.changed.notify_all()
                self._connection.wake()
            left_s = max(mail.give_up_at - time.monotonic(), 0.0)
        self._connection.join(left_s + 2.0)
        return len(mail.left)
