"""What a supervisor has received from a broker, the next one receives again."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator
from typing import cast

import pytest
import redis
from bus.receiving import receive

from mlless_nb.bus import Bus, open_bus
from mlless_nb.bus.recorded import BEGIN, Broker, RecordedBus, begin_record
from mlless_nb.errors import ServiceError

TOPIC = "supervisor"
Opening = Callable[..., RecordedBus]


@pytest.fixture
def opened(rabbitmq_url: str, redis_url: str) -> Iterator[Opening]:
    """Opens the bus as supervisors of one job do."""
    job_id, made = uuid.uuid4().hex, list[RecordedBus]()

    def of_job() -> RecordedBus:
        made.append(RecordedBus(cast(Broker, open_bus(rabbitmq_url, job_id)), lambda: open_bus(redis_url, job_id)))
        return made[-1]

    with contextlib.closing(open_bus(rabbitmq_url, job_id)) as bus:
        begin_record(bus, [redis_url], job_id, insecure=False)
    yield of_job
    for bus in made:
        bus.close(delete=True)
    client = redis.Redis.from_url(redis_url)
    for key in client.scan_iter(match=f"mlless:{{{job_id}}}:*"):
        assert client.ttl(key) > 0  # from the moment of its creation
        client.delete(key)
    client.close()


def whole(bus: Bus, n: int) -> list[bytes]:
    """The ``n`` messages that are there, and what comes beside them."""
    return receive(bus, TOPIC, n) + bus.receive(TOPIC, 0.1)


def test_each_later_reader_receives_what_those_before_it_have_received_and_then_the_rest(opened: Opening) -> None:
    sender, first = opened(), opened()
    bodies = [b"%d" % number for number in range(600)]  # more than one batch
    for body in bodies[:400]:
        sender.send(TOPIC, body)
    assert whole(first, 400) == bodies[:400]
    assert first.tells_again(TOPIC)
    first.close()
    for body in bodies[400:500]:
        sender.send(TOPIC, body)
    second = opened()
    assert second.tells_again(TOPIC)
    assert whole(second, 500) == bodies[:500]
    second.close()
    for body in bodies[500:]:
        sender.send(TOPIC, body)
    assert whole(opened(), 600) == bodies


def test_a_reader_after_one_that_has_received_nothing_is_told_all(opened: Opening) -> None:
    assert opened().tells_again(TOPIC)
    nobody = opened()
    assert nobody.tells_again("driver") is False
    nobody.send("driver", b"news")
    assert nobody.receive("driver", 5.0) == [b"news"]


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_record_whose_redis_has_lost_its_data_is_not_taken_for_whole(
    goes_on: bool, opened: Opening, redis_url: str
) -> None:
    sender, first = opened(), opened()
    sender.send(TOPIC, b"one")
    assert whole(first, 1) == [b"one"]
    with redis.Redis.from_url(redis_url) as client:
        client.flushall()
    if goes_on:
        sender.send(TOPIC, b"two")
        assert whole(first, 1) == [b"two"]
    first.close()
    sender.send(TOPIC, b"three")
    second = opened()
    assert not second.tells_again(TOPIC)
    assert whole(second, 1) == [b"three"]


def test_messages_that_could_not_be_recorded_are_received_once_the_server_answers(
    opened: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender, first = opened(), opened()
    assert first.receive(TOPIC, 0.0) == []
    assert first._record is not None
    send, answers = first._record.send, iter([True, False, True, True, True])

    def sometimes(topic: str, body: bytes) -> None:
        send(topic, body)
        if not next(answers):  # it was recorded, but nobody knows
            raise ServiceError("the server is away")

    monkeypatch.setattr(first._record, "send", sometimes)
    for body in (b"one", b"two", b"three"):
        sender.send(TOPIC, body)
    received: list[bytes] = []
    for _ in range(100):
        try:
            received += first.receive(TOPIC, 0.2)
        except ServiceError:
            assert received in ([], [b"one"])
        if len(received) == 3:
            break
    assert received == [b"one", b"two", b"three"]
    assert whole(opened(), 3) == received


def test_a_record_that_cannot_be_read_is_not_taken_for_empty(opened: Opening, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bus returns nothing while its server is away: the rest of what was recorded was lost."""
    sender, first = opened(), opened()
    bodies = [b"%d" % number for number in range(600)]
    for body in bodies:
        sender.send(TOPIC, body)
    assert whole(first, 600) == bodies
    first.close()
    second = opened()
    for n_read in (0, 1):
        record = second._opened()
        parts = [record.receive(TOPIC, 1.0) for _ in range(n_read)]
        monkeypatch.setattr(record, "receive", lambda *_, parts=parts: parts.pop() if parts else [])
        with pytest.raises(ServiceError, match="could not be read"):
            second.tells_again(TOPIC)
    assert second.tells_again(TOPIC)
    assert whole(second, 600) == bodies


def test_what_could_not_be_recorded_is_recorded_as_the_reader_ends(
    opened: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender, first = opened(), opened()
    assert first.receive(TOPIC, 0.0) == []
    record = first._opened()
    send, answers = record.send, iter([False, True])

    def sometimes(topic: str, body: bytes) -> None:
        if not next(answers):
            raise ServiceError("the server is away")
        send(topic, body)

    monkeypatch.setattr(record, "send", sometimes)
    sender.send(TOPIC, b"one")
    with pytest.raises(ServiceError):
        first.receive(TOPIC, 10.0)
    first.close()
    assert whole(opened(), 1) == [b"one"]


class Unconfirmed:
    """A broker that delivers what was not acknowledged again, with its name."""

    def __init__(self, *batches: list[tuple[bytes, bytes]]) -> None:
        self._batches = list(batches)

    def receive_named(self, topic: str, timeout_s: float) -> list[tuple[bytes, bytes]]:
        """See `Broker`."""
        return self._batches.pop(0) if self._batches else []


def test_a_message_that_the_broker_delivers_again_is_received_once_and_an_equal_one_too(redis_url: str) -> None:
    """A reader died after it had recorded one, and before it had acknowledged it; a command was sent twice."""

    def opened(*batches: list[tuple[bytes, bytes]]) -> RecordedBus:
        return RecordedBus(cast(Broker, Unconfirmed(*batches)), lambda: open_bus(redis_url, "again"))

    open_bus(redis_url, "again").send(TOPIC, BEGIN)
    first = opened([(b"a:1", b"one"), (b"a:2", b"stop")])
    assert whole(first, 2) == [b"one", b"stop"]
    second = opened([(b"a:1", b"one"), (b"a:2", b"stop")], [(b"a:3", b"stop"), (b"a:4", b"two")])
    # What is known already does not end what is there.
    assert whole(second, 4) == [b"one", b"stop", b"stop", b"two"]
    assert whole(opened(), 4) == [b"one", b"stop", b"stop", b"two"]
    open_bus(redis_url, "again").close(delete=True)


def test_what_a_reader_records_that_was_only_paused_is_received_by_the_one_in_its_place(redis_url: str) -> None:
    def opened(*batches: list[tuple[bytes, bytes]]) -> RecordedBus:
        return RecordedBus(cast(Broker, Unconfirmed(*batches)), lambda: open_bus(redis_url, "paused"))

    open_bus(redis_url, "paused").send(TOPIC, BEGIN)
    paused = opened([(b"a:1", b"one")], [(b"a:2", b"two")])
    assert paused.receive(TOPIC, 0.0) == [b"one"]
    second = opened([(b"a:3", b"three")])
    assert second.receive(TOPIC, 0.0) == [b"one"]
    assert paused.receive(TOPIC, 0.0) == [b"two"]
    assert second.receive(TOPIC, 0.0) == [b"two"]
    assert second.receive(TOPIC, 0.0) == [b"three"]
    open_bus(redis_url, "paused").close(delete=True)
