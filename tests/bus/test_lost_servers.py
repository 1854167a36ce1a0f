"""Servers of the bus that are killed, restarted, full, silent or gone: no message is lost, and what is away is told."""

from __future__ import annotations

import secrets
import threading
from concurrent.futures import ThreadPoolExecutor

import pika
import pytest
import redis
from bus.receiving import SOON_S, receive, repeat

from mlless_nb.bus import open_bus, rabbitmq
from mlless_nb.bus.base import MAX_BATCH
from mlless_nb.bus.rabbitmq import RabbitMqBus
from mlless_nb.bus.redis import RedisBus
from mlless_nb.errors import ServiceError
from mlless_nb.storage.conditional import MemoryConditional
from mlless_nb.storage.objects import MemoryObjects


def test_redis_may_drop_the_connections(redis_url: str) -> None:
    sender, reader = open_bus(redis_url, "drops"), open_bus(redis_url, "drops")
    killer = redis.Redis.from_url(redis_url)
    stop = threading.Event()

    def drop() -> None:
        while not stop.wait(0.005):
            killer.client_kill_filter(_type="normal", skipme=True)

    thread = threading.Thread(target=drop)
    thread.start()
    sent, got = [b"%d" % i for i in range(300)], []
    try:
        for body in sent:
            sender.send("driver", body)
            got += reader.receive("driver", 0.0)
        got += receive(reader, "driver", len(sent) - len(got))
    finally:
        stop.set()
        thread.join()
    assert got == sent
    sender.close()
    reader.close(delete=True)


def test_redis_may_restart_between_messages(redis_url: str, redis_server) -> None:
    bus = RedisBus(redis_url, "restarts", patience_s=SOON_S)
    bus.send("driver", b"before")
    assert receive(bus, "driver", 1) == [b"before"]
    redis_server.kill()
    assert bus.receive("driver", 0.05) == []
    redis_server.start()
    bus.send("driver", b"after")
    assert receive(bus, "driver", 1) == [b"after"]
    bus.close(delete=True)


def test_a_full_redis_is_told_at_once(redis_url: str) -> None:
    client, bus = redis.Redis.from_url(redis_url), open_bus(redis_url, "full")
    client.config_set("maxmemory", "100kb")
    try:
        with pytest.raises(ServiceError, match=r"refuses: .*maxmemory"):
            bus.send("driver", b"x" * 200_000)
    finally:
        client.config_set("maxmemory", "0")
        bus.close(delete=True)


@pytest.mark.long
def test_rabbitmq_may_be_killed_and_restarted(rabbitmq_url: str, rabbitmq_server) -> None:
    job_id = secrets.token_hex(4)
    sender, reader = (RabbitMqBus(rabbitmq_url, job_id, patience_s=6 * SOON_S) for _ in range(2))
    # The broker keeps large ones apart: killed, it may have written a later one alone.
    sent = [b"%d" % i + bytes(5000 * (i % 5 == 0)) for i in range(600)]
    for body in sent[:100]:
        sender.send("driver", body)
    got = receive(reader, "driver", 50)
    # A broker that is killed may forget a queue that was declared a moment ago; once restarted in peace it cannot.
    rabbitmq_server.end()
    rabbitmq_server.start()
    for body in sent[100:200]:
        sender.send("driver", body)
    got += receive(reader, "driver", 150 - len(got))
    rabbitmq_server.kill()
    for body in sent[200:400]:
        sender.send("driver", body)
    got += reader.receive("driver", 0.05)
    rabbitmq_server.start()
    for body in sent[400:]:
        sender.send("driver", body)
    try:
        while len(got) < len(sent) and (more := receive(reader, "driver", len(sent) - len(got))):
            got += more
        assert got == sent
    finally:
        sender.close()
        reader.close(delete=True)


@pytest.mark.long
def test_rabbitmq_restarts_before_anything_was_read(rabbitmq_url: str, rabbitmq_server) -> None:
    job_id = secrets.token_hex(4)
    sender = open_bus(rabbitmq_url, job_id)
    for i in range(50):
        sender.send("supervisor", b"%d" % i)
    sender.close()  # waits for the confirmations
    # Not killed: see test_rabbitmq_may_be_killed_and_restarted.
    rabbitmq_server.end()
    rabbitmq_server.start()
    reader = open_bus(rabbitmq_url, job_id)
    try:
        assert receive(reader, "supervisor", 50) == [b"%d" % i for i in range(50)]
    finally:
        reader.close(delete=True)


@pytest.mark.long
def test_the_queues_are_deleted_once_a_broker_that_is_away_is_back(
    rabbitmq_url: str, rabbitmq_server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were left, where the run had ended before the broker was back, and every message was delivered."""
    monkeypatch.setattr(rabbitmq, "FLUSH_S", 6 * SOON_S)
    job_id = secrets.token_hex(4)
    bus = open_bus(rabbitmq_url, job_id)
    bus.send("driver", b"the end")
    assert receive(bus, "driver", 1) == [b"the end"]
    rabbitmq_server.kill()
    assert bus.receive("driver", 0.5) == []
    with ThreadPoolExecutor(1) as pool:
        closing = pool.submit(bus.close, delete=True)
        rabbitmq_server.start()
        assert closing.result() == 0
    with (
        pika.BlockingConnection(pika.URLParameters(rabbitmq_url)) as connection,
        pytest.raises(pika.exceptions.ChannelClosedByBroker, match="NOT_FOUND"),
    ):
        connection.channel().queue_declare(f"mlless.{job_id}.driver", passive=True)


class Refusing(MemoryObjects):
    """Refuses every second read, as a storage that is asked too often."""

    n_asked = 0

    def get(self, key: str, first: int = 0, end: int | None = None) -> bytes:
        self.n_asked += 1
        if not self.n_asked % 2:
            raise ServiceError("object storage: slow down (503)")
        return super().get(key, first, end)


@pytest.mark.parametrize("has_local_objects", [True, False])
def test_a_storage_that_refuses_reads_loses_nothing(has_local_objects: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The messages that were read before the refused one were lost."""
    monkeypatch.setattr(MemoryConditional, "has_local_objects", has_local_objects)
    objects = Refusing()
    sender, reader = (open_bus("storage://", "job", objects=objects) for _ in range(2))
    sent = [b"%d" % number for number in range(5)]
    for body in sent:
        sender.send("driver", body)
    assert receive(reader, "driver", len(sent)) == sent


@pytest.mark.parametrize("has_local_objects", [True, False])
def test_a_reader_of_the_storage_that_does_not_wait_gets_more_than_a_batch(
    has_local_objects: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A supervisor that took over took the rest for new, and carried commands out again."""
    monkeypatch.setattr(MemoryConditional, "has_local_objects", has_local_objects)
    objects = MemoryObjects()
    sender, reader = (open_bus("storage://", "job", objects=objects) for _ in range(2))
    for number in range(2 * MAX_BATCH + 1):
        sender.send("supervisor", b"%d" % number)
    assert [len(reader.receive("supervisor", 0.0)) for _ in range(4)] == [MAX_BATCH, MAX_BATCH, 1, 0]


@pytest.mark.parametrize("kind", ["redis", pytest.param("rabbitmq", marks=pytest.mark.long)])
def test_a_server_that_stays_away_is_told(kind: str, request: pytest.FixtureRequest) -> None:
    url, server = request.getfixturevalue(f"{kind}_url"), request.getfixturevalue(f"{kind}_server")
    make = RedisBus if kind == "redis" else RabbitMqBus
    bus = make(url, "away", patience_s=0.3)
    try:
        server.kill()
        with pytest.raises(ServiceError, match=r"has been away for \d+ s"):
            repeat(lambda: bus.receive("driver", 0.1))
        with pytest.raises(ServiceError, match="away"):
            repeat(lambda: bus.send("driver", b"lost"))
    finally:
        server.start()
        bus.close(delete=True)


@pytest.mark.parametrize("kind", ["redis", pytest.param("rabbitmq", marks=pytest.mark.long)])
def test_a_network_that_falls_silent_loses_nothing(kind: str, relay, request: pytest.FixtureRequest) -> None:
    url, server = request.getfixturevalue(f"{kind}_url"), request.getfixturevalue(f"{kind}_server")
    network = relay(server.port)
    url, job_id = url.replace(str(server.port), str(network.port)), secrets.token_hex(4)
    options = {"patience_s": 6 * SOON_S} | ({"heartbeat_s": 1} if kind == "rabbitmq" else {})
    make = RedisBus if kind == "redis" else RabbitMqBus
    sender, reader = make(url, job_id, **options), make(url, job_id, **options)
    sender.send("driver", b"before")
    assert receive(reader, "driver", 1) == [b"before"]
    network.go_silent()
    thread = threading.Thread(target=lambda: [sender.send("driver", b"%d" % i) for i in range(20)])
    thread.start()
    assert reader.receive("driver", 0.2) == []
    network.come_back()
    assert receive(reader, "driver", 20) == [b"%d" % i for i in range(20)]
    thread.join()
    sender.close()
    reader.close(delete=True)


def test_rabbitmq_hands_the_rest_to_the_next_reader(rabbitmq_url: str) -> None:
    job_id = secrets.token_hex(4)
    sender, first = open_bus(rabbitmq_url, job_id), open_bus(rabbitmq_url, job_id)
    sender.send("driver", b"1")
    assert receive(first, "driver", 1) == [b"1"]
    second = open_bus(rabbitmq_url, job_id)
    assert second.receive("driver", 0.1) == []  # there is one reader a topic; it waits for its turn
    for body in (b"2", b"3"):
        sender.send("driver", body)
    first.close()
    # What one reader gives back the broker may hand to the next in another order; nothing is lost.
    assert sorted(receive(second, "driver", 2)) == [b"2", b"3"]
    sender.close()
    second.close(delete=True)
