"""What every control bus promises, on memory, Redis, RabbitMQ and the object storage alike."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pika
import pytest
import redis
from bus.receiving import SOON_S, receive, repeat
from servers import S3_BACKEND

from mlless_nb.bus import MAX_MESSAGE_BYTES, Bus, open_bus
from mlless_nb.errors import ServiceError
from mlless_nb.exchange.protocol import key_prefix
from mlless_nb.storage.objects import LithopsObjects, ObjectStore

Opener = Callable[..., Bus]


#: Servers for longer runs of the tests.
LONG = ("s3", "tls_redis", "redis_cluster", "tls_rabbitmq")


@pytest.fixture(
    params=["memory", "redis", "rabbitmq", "folder", *(pytest.param(kind, marks=pytest.mark.long) for kind in LONG)]
)
def url(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Gives a job's URL of a server of each kind."""
    kind = request.param
    if kind in ("tls_redis", "redis_cluster"):
        of_kind = request.getfixturevalue("redis_of_kind")
        return lambda job_id: str(of_kind(kind, key_prefix(job_id)))
    if kind == "tls_rabbitmq":
        address, authority = request.getfixturevalue("tls_rabbitmq")
        monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    elif kind in ("folder", "s3"):
        address = "storage://"
    else:
        address = "memory://" if kind == "memory" else request.getfixturevalue(f"{kind}_url")
    return lambda _: str(address)


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
def opener(url: Callable[[str], str], objects: ObjectStore | None) -> Iterator[Opener]:
    """Opens buses of one new job, which are closed, and the job deleted, after the test."""
    job_id, buses = f"job-{secrets.token_hex(4)}", []

    def open_one(job_id: str = job_id, **options: bool) -> Bus:
        buses.append(open_bus(url(job_id), job_id, objects=objects, **options))
        return buses[-1]

    yield open_one
    for bus in buses:
        bus.close()
    for name in (job_id, "another-job"):
        open_bus(url(name), name, objects=objects).close(delete=True)
    if objects is not None:
        assert objects.list("") == []


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


def test_all_that_waits_comes_to_a_reader_that_does_not_wait(opener: Opener) -> None:
    """Who takes over a run reads so what others were told, and took what came later for new."""
    sender = opener()
    sent = [b"%d" % number for number in range(600)]
    for body in sent:
        sender.send("supervisor", body)
    sender.close()
    reader, received = opener(), list[bytes]()
    while batch := reader.receive("supervisor", 0.0):
        received += batch
    assert received == sent


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
    assert bus.close(delete=True) == 0
    assert bus.close(delete=True) == 0
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


# Leaving nothing behind


def test_what_was_received_may_be_discarded_and_later_messages_stay(opener: Opener) -> None:
    sender, reader = opener(), opener()
    reader.discard("driver")  # nothing was received
    for number in range(300):
        sender.send("driver", b"%d" % number)
    received = receive(reader, "driver", 300)
    reader.discard("driver")
    for number in range(300, 310):
        sender.send("driver", b"%d" % number)
    received += receive(reader, "driver", 10)
    assert received == [b"%d" % number for number in range(310)]
    reader.close()
    reader.discard("driver")


def test_redis_forgets_what_was_discarded(redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        sender, reader = open_bus(redis_url, "job"), open_bus(redis_url, "job")
        for _ in range(20):
            for _ in range(10):
                sender.send("driver", bytes(5000))
            receive(reader, "driver", 10)
            reader.discard("driver")
        assert client.xlen("mlless:{job}:bus:driver") < 30  # whole blocks are removed
        for bus in (sender, reader):
            bus.close(delete=True)


def test_redis_keys_expire_and_are_deleted(redis_url: str) -> None:
    client = redis.Redis.from_url(redis_url)
    bus = open_bus(redis_url, "tidy", ttl_s=1000)
    bus.send("driver", b"x")
    assert client.keys() == [b"mlless:{tidy}:bus:driver"]
    assert 0 < client.ttl("mlless:{tidy}:bus:driver") <= 1000
    bus.close(delete=True)
    assert client.keys() == []


def test_topics_that_redis_has_not_removed_may_be_left(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run's last line said that everything was shut down."""
    bus = open_bus(redis_url, "tidy")

    def refuse(*_: object) -> None:
        raise redis.exceptions.ConnectionError("gone")

    monkeypatch.setattr(redis.Redis, "unlink", refuse)
    assert bus.close(delete=True) == 2


def test_rabbitmq_queues_expire_and_are_deleted(rabbitmq_url: str) -> None:
    bus = open_bus(rabbitmq_url, "tidy", ttl_s=1000)
    bus.send("driver", b"x")
    assert receive(bus, "driver", 1) == [b"x"]
    with pika.BlockingConnection(pika.URLParameters(rabbitmq_url)) as connection:
        channel = connection.channel()
        # Declaring a queue that exists with other arguments is refused, with the argument in the reason.
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match=r"x-expires.*1000000"):
            channel.queue_declare("mlless.tidy.driver", durable=True, arguments={"x-expires": 5})
        assert bus.close(delete=True) == 0
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
