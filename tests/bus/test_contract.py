"""What every control bus promises, on memory, Redis, RabbitMQ and the object storage alike."""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pika
import pytest
import redis
from servers import S3_BACKEND

from mlless_nb.bus import MAX_MESSAGE_BYTES, Bus, open_bus
from mlless_nb.bus.rabbitmq import RabbitMqBus
from mlless_nb.bus.redis import RedisBus
from mlless_nb.errors import JobError, ServiceError
from mlless_nb.storage.objects import LithopsObjects, ObjectStore

#: Seconds in which a message that was sent has arrived, even on a busy machine.
SOON_S = 20.0
Opener = Callable[..., Bus]


@pytest.fixture(params=["memory", "redis", "rabbitmq", "folder", pytest.param("s3", marks=pytest.mark.long)])
def url(request: pytest.FixtureRequest) -> str:
    """URL of a server of each kind."""
    if request.param in ("folder", "s3"):
        return "storage://"
    return "memory://" if request.param == "memory" else request.getfixturevalue(f"{request.param}_url")


@pytest.fixture
def objects(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ObjectStore | None:
    """The object storage that carries messages, None if a server does."""
    kind = request.node.callspec.params["url"]
    if kind not in ("folder", "s3"):
        return None
    import lithops
    from lithops.storage.backends.localhost import localhost

    if kind == "s3":
        request.getfixturevalue("s3")
        return LithopsObjects(lithops.Storage(config=S3_BACKEND))
    monkeypatch.setattr(localhost, "LITHOPS_TEMP_DIR", str(tmp_path))
    return LithopsObjects(lithops.Storage(config={"lithops": {"backend": "localhost", "storage": "localhost"}}))


@pytest.fixture
def opener(url: str, objects: ObjectStore | None) -> Iterator[Opener]:
    """Opens buses of one new job, which are closed, and the job deleted, after the test."""
    job_id, buses = f"job-{secrets.token_hex(4)}", []

    def open_one(job_id: str = job_id, **options: bool) -> Bus:
        buses.append(open_bus(url, job_id, objects=objects, **options))
        return buses[-1]

    yield open_one
    for bus in buses:
        bus.close()
    for name in (job_id, "another-job"):
        open_bus(url, name, objects=objects).close(delete=True)
    if objects is not None:
        assert objects.list("") == []


def receive(bus: Bus, topic: str, n: int) -> list[bytes]:
    """The next ``n`` messages, or those that came soon."""
    messages: list[bytes] = []
    deadline = time.monotonic() + SOON_S
    while len(messages) < n and time.monotonic() < deadline:
        messages += bus.receive(topic, 1.0)
    return messages


def repeat(action: Callable[[], object]) -> None:
    """Do it again and again until it raises, or ought to have done so by now."""
    deadline = time.monotonic() + SOON_S
    while time.monotonic() < deadline:
        action()


def test_messages_keep_their_order(opener: Opener) -> None:
    sender, reader = opener(), opener()
    sent = [b"%d" % i for i in range(1500)]
    for body in sent:
        sender.send("driver", body)
    assert receive(reader, "driver", len(sent)) == sent
    assert reader.receive("driver", 0.0) == []


def test_each_sender_keeps_its_order(opener: Opener) -> None:
    reader, n = opener(), 200

    def send_all(name: bytes) -> None:
        bus = opener()
        for i in range(n):
            bus.send("odd", b"%s %d" % (name, i))

    threads = [threading.Thread(target=send_all, args=(name,)) for name in (b"a", b"b", b"c")]
    for thread in threads:
        thread.start()
    messages = receive(reader, "odd", 3 * n)
    for thread in threads:
        thread.join()
    for name in (b"a", b"b", b"c"):
        assert [m for m in messages if m.startswith(name)] == [b"%s %d" % (name, i) for i in range(n)]


def test_topics_are_apart(opener: Opener) -> None:
    bus = opener()
    bus.send("supervisor", b"stop")
    bus.send("driver", b"step 1")
    assert receive(bus, "driver", 1) == [b"step 1"]
    assert receive(bus, "supervisor", 1) == [b"stop"]


def test_jobs_are_apart(opener: Opener) -> None:
    one, other = opener(), opener("another-job")
    one.send("driver", b"of one")
    other.send("driver", b"of the other")
    assert receive(other, "driver", 1) == [b"of the other"]
    assert receive(one, "driver", 1) == [b"of one"]


def test_nothing_comes_when_nothing_was_sent(opener: Opener) -> None:
    assert opener().receive("driver", 0.05) == []


def test_what_is_sent_before_anyone_listens_is_kept(opener: Opener) -> None:
    sender = opener()
    sender.send("supervisor", b"first")
    sender.close()
    assert receive(opener(), "supervisor", 1) == [b"first"]


def test_a_waiting_reader_is_woken(opener: Opener) -> None:
    reader, sender, got = opener(), opener(), []
    thread = threading.Thread(target=lambda: got.extend(reader.receive("driver", SOON_S)))
    thread.start()
    sender.send("driver", b"now")
    thread.join()
    assert got == [b"now"]


@pytest.mark.parametrize("body", [b"", bytes(range(256)), b"x" * MAX_MESSAGE_BYTES], ids=["empty", "binary", "largest"])
def test_bodies_arrive_as_they_are(opener: Opener, body: bytes) -> None:
    bus = opener()
    bus.send("driver", body)
    assert receive(bus, "driver", 1) == [body]


def test_unfit_messages_are_refused(opener: Opener) -> None:
    bus = opener()
    with pytest.raises(ValueError, match="1048577 bytes on 'driver': must be at most 1048576"):
        bus.send("driver", b"x" * (MAX_MESSAGE_BYTES + 1))
    with pytest.raises(ValueError, match="topic='a:b'"):
        bus.send("a:b", b"")
    with pytest.raises(ValueError, match="topic=''"):
        bus.receive("", 0.0)


def test_a_closed_bus_says_so(opener: Opener) -> None:
    bus = opener()
    bus.close()
    bus.close(delete=True)
    with pytest.raises(ServiceError, match="closed"):
        bus.send("driver", b"late")
    with pytest.raises(ServiceError, match="closed"):
        bus.receive("driver", 0.0)


def test_closing_ends_a_wait(opener: Opener) -> None:
    bus, entered, got = opener(), threading.Event(), []

    def wait() -> None:
        entered.set()
        try:
            got.append(bus.receive("driver", 10 * SOON_S))
        except ServiceError:
            got.append([])

    thread = threading.Thread(target=wait)
    thread.start()
    entered.wait()
    bus.close()
    thread.join(SOON_S)
    assert got == [[]]


def test_deleting_removes_the_messages(opener: Opener) -> None:
    bus = opener()
    bus.send("driver", b"old")
    bus.send("odd-topic", b"old")
    bus.close(delete=True)
    later = opener()
    assert later.receive("driver", 0.2) == later.receive("odd-topic", 0.2) == []


@pytest.mark.parametrize("url", ["memory", "redis", "folder"], indirect=True)
def test_another_reader_reads_from_the_start_or_from_now(opener: Opener) -> None:
    sender = opener()
    sender.send("driver", b"1")
    assert receive(opener(), "driver", 1) == [b"1"]
    from_now = opener(from_start=False)
    assert from_now.receive("driver", 0.05) == []
    sender.send("driver", b"2")
    assert receive(opener(), "driver", 2) == [b"1", b"2"]
    assert receive(from_now, "driver", 1) == [b"2"]


# Losing the server


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


def test_rabbitmq_may_be_killed_and_restarted(rabbitmq_url: str, rabbitmq_server) -> None:
    job_id = secrets.token_hex(4)
    sender, reader = (RabbitMqBus(rabbitmq_url, job_id, patience_s=6 * SOON_S) for _ in range(2))
    sent = [b"%d" % i for i in range(600)]
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


# Leaving nothing behind


def test_redis_keys_expire_and_are_deleted(redis_url: str) -> None:
    client = redis.Redis.from_url(redis_url)
    bus = open_bus(redis_url, "tidy", ttl_s=1000)
    bus.send("driver", b"x")
    assert client.keys() == [b"mlless:tidy:bus:driver"]
    assert 0 < client.ttl("mlless:tidy:bus:driver") <= 1000
    bus.close(delete=True)
    assert client.keys() == []


def test_rabbitmq_queues_expire_and_are_deleted(rabbitmq_url: str) -> None:
    bus = open_bus(rabbitmq_url, "tidy", ttl_s=1000)
    bus.send("driver", b"x")
    assert receive(bus, "driver", 1) == [b"x"]
    with pika.BlockingConnection(pika.URLParameters(rabbitmq_url)) as connection:
        channel = connection.channel()
        # Declaring a queue that exists with other arguments is refused, with the argument in the reason.
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match=r"x-expires.*1000000"):
            channel.queue_declare("mlless.tidy.driver", durable=True, arguments={"x-expires": 5})
        bus.close(delete=True)
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="NOT_FOUND"):
            connection.channel().queue_declare("mlless.tidy.driver", passive=True)


def test_processes_of_one_job_must_agree_on_the_time_to_live(rabbitmq_url: str) -> None:
    one, other = open_bus(rabbitmq_url, "agree", ttl_s=1000), open_bus(rabbitmq_url, "agree", ttl_s=2000)
    one.send("driver", b"x")
    assert receive(one, "driver", 1) == [b"x"]
    with pytest.raises(ServiceError, match="x-expires"):
        repeat(lambda: other.receive("driver", 0.1))
    other.close()
    one.close(delete=True)


# What cannot be opened


@pytest.mark.parametrize("scheme", ["redis", "amqp"])
def test_an_unreachable_server_is_told_without_the_password(scheme: str) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        with pytest.raises(ServiceError, match="does not answer") as caught:
            open_bus(f"{scheme}://user:planted-secret@127.0.0.1:{port}", "job")
    assert "planted-secret" not in str(caught.value)
    assert f"127.0.0.1:{port}" in str(caught.value)


@pytest.mark.parametrize("scheme", ["redis", "amqp"])
def test_a_server_that_accepts_and_keeps_silent_is_told(scheme: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(ServiceError, match="does not answer"):
        open_bus(f"{scheme}://user:secret@127.0.0.1:{silent.getsockname()[1]}", "job")


def test_a_wrong_password_is_told(rabbitmq_url: str, redis_url: str) -> None:
    for url in (
        rabbitmq_url.replace("guest:guest", "guest:planted-secret"),
        redis_url.replace("//", "//:planted-secret@"),
    ):
        with pytest.raises(ServiceError) as caught:
            open_bus(url, "job")
        assert "planted-secret" not in str(caught.value)


def test_a_missing_virtual_host_is_told(rabbitmq_url: str) -> None:
    with pytest.raises(ServiceError, match=r"virtual host|vhost"):
        open_bus(rabbitmq_url.replace("%2F", "nowhere"), "job")


def test_an_unknown_scheme_is_named_with_the_valid_ones() -> None:
    with pytest.raises(JobError, match=r"bus='kafka://x': must be .* memory://, redis://.* amqps://"):
        open_bus("kafka://x", "job")


@pytest.mark.parametrize(
    "url", ["redis://:secret@10.9.8.7:6379", "amqp://a:secret@broker.example", "amqps://broker.example"]
)
def test_a_server_elsewhere_needs_tls_and_a_password(url: str) -> None:
    with pytest.raises(JobError, match="insecure=True") as caught:
        open_bus(url, "job")
    assert "secret@" not in str(caught.value)


def test_a_job_id_must_be_fit_for_a_key() -> None:
    with pytest.raises(ValueError, match="job_id='a b'"):
        open_bus("memory://", "a b")
