"""The frame server: only who has the token is served, only by the right server, and no message brings it down."""

from __future__ import annotations

import contextlib
import socket
import struct
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from servers import FrameServerProcess

from mlless_nb import ServiceError
from mlless_nb.errors import DecodeError
from mlless_nb.exchange.stores import FrameStore, for_functions, open_store, wire
from mlless_nb.exchange.stores.server import Address
from mlless_nb.exchange.stores.wire import Kind
from mlless_nb.server import TTL_S, FrameTable, main
from mlless_nb.storage.objects import MemoryObjects


def client(url: str) -> FrameStore:
    """A store of one job on the server."""
    store = open_store(url, "mlless:job:", MemoryObjects())
    assert store is not None
    return store


@given(
    st.sampled_from(list(Kind)),
    st.lists(st.tuples(st.binary(max_size=40), st.none() | st.binary(max_size=3000)), max_size=8),
)
def test_a_message_comes_back_as_it_was_sent(kind: Kind, items: list[wire.Item]) -> None:
    near, far = socket.socketpair()
    with near, far:
        wire.send(near, kind, items)
        assert wire.receive(far) == (kind, items)


@given(st.binary(min_size=13, max_size=200), st.integers(0, 200))
def test_what_is_no_message_is_an_error(noise: bytes, n_bytes: int) -> None:
    near, far = socket.socketpair()
    with near, far:
        near.sendall(noise[:5] + struct.pack("<Q", n_bytes) + noise[13:])
        near.close()
        try:
            kind, items = wire.receive(far)
        except (DecodeError, ConnectionError):
            return
        assert n_bytes <= 200
        assert isinstance(kind, Kind)
        assert all(len(key) + len(value or b"") <= n_bytes for key, value in items)


def test_a_message_that_is_too_long_is_refused_before_it_is_read() -> None:
    near, far = socket.socketpair()
    with near, far:
        near.sendall(struct.pack("<BIQ", Kind.PUT, 1, 1 << 40))
        with pytest.raises(DecodeError, match=f"a message of {1 << 40} bytes"):
            wire.receive(far)


def test_only_who_has_the_token_is_served(frame_server: FrameServerProcess) -> None:
    store = client(frame_server.url)
    store.check()
    store.close()
    token = Address.of(frame_server.url.removeprefix("server://")).token
    stranger = client(frame_server.url.replace(token, "another"))
    with pytest.raises(ServiceError, match=r"the frame server at 127.0.0.1:\d+ does not answer, or refuses the token"):
        stranger.check()


def test_functions_reach_the_frames_of_their_own_job_only(frame_server: FrameServerProcess) -> None:
    token = Address.of(frame_server.url.removeprefix("server://")).token
    told = for_functions(frame_server.url, "mlless:job:")
    assert token not in told
    assert for_functions(told, "mlless:job:") == told
    own, others = client(told), client(frame_server.url)
    own.put_many({"mlless:job:frame:1:0": b"frame"})
    assert others.get_many(["mlless:job:frame:1:0"]) == [b"frame"]
    for refused in (
        lambda: own.get_many(["mlless:jo"]),
        lambda: own.put_many({"mlless:other:frame:1:0": b"frame"}),
        lambda: own._ask(Kind.CLEAR, [(b"mlless:", None)]),  # type: ignore[attr-defined]
    ):
        with pytest.raises(ServiceError, match="a key of another job"):
            refused()
    stranger = open_store(told, "mlless:other:", MemoryObjects())
    assert stranger is not None
    with pytest.raises(ServiceError, match="refuses the token"):
        stranger.check()
    assert own.clear() == 1


def test_a_message_that_says_it_is_long_takes_no_memory() -> None:
    near, far = socket.socketpair()
    with near, far:
        near.sendall(struct.pack("<BIQ", Kind.PUT, 1, 4 << 30) + b"short")
        near.close()
        tracemalloc.start()
        with pytest.raises(ConnectionError):
            wire.receive(far)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert most < 2 * wire.STEP_BYTES


def test_a_long_message_comes_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "STEP_BYTES", 7)
    near, far = socket.socketpair()
    with near, far:
        wire.send(near, Kind.PUT, [(b"key", bytes(range(200)))])
        assert wire.receive(far) == (Kind.PUT, [(b"key", bytes(range(200)))])


def test_a_long_value_is_sent_from_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    frame, sent = bytes(range(200)), []

    class Line:
        def sendall(self, blob: bytes) -> None:
            sent.append(blob)

    monkeypatch.setattr(wire, "LONG_BYTES", len(frame))
    wire.send(Line(), Kind.PUT, [(b"short", b"one"), (b"long", frame), (b"none", None), (b"short", b"two")])  # type: ignore[arg-type]
    assert len(sent) == 3
    assert sent[1] is frame
    near, far = socket.socketpair()
    with near, far:
        near.sendall(b"".join(sent))
        assert wire.receive(far)[1] == [(b"short", b"one"), (b"long", frame), (b"none", None), (b"short", b"two")]


@pytest.mark.parametrize(("n_others", "is_copied"), [(0, False), (3, True)])
def test_a_frame_is_kept_as_it_came_unless_that_keeps_others(n_others: int, is_copied: bool) -> None:
    n_bytes, table = 1 << 20, FrameTable(1 << 30)
    message = bytearray(13 + n_bytes * (1 + n_others))
    tracemalloc.start()
    table.answer(Kind.PUT, [(b"key", memoryview(message)[13 : 13 + n_bytes])])
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert (taken > n_bytes) == is_copied
    assert table.answer(Kind.GET, [(b"key", None)]) == (Kind.DONE, [(b"key", bytes(n_bytes))])


def test_the_token_is_sent_to_no_other_server(frame_server: FrameServerProcess) -> None:
    *rest, fingerprint = frame_server.url.rpartition("/")
    other = "0" * 64 if fingerprint != "0" * 64 else "1" * 64
    with pytest.raises(ServiceError, match="has another certificate than the one of this fingerprint"):
        client("".join(rest) + other).check()


@pytest.mark.parametrize("noise", [b"", b"GET / HTTP/1.0\r\n\r\n", bytes(100)], ids=["nothing", "http", "zeros"])
def test_noise_is_cut_off_and_others_are_served(frame_server: FrameServerProcess, noise: bytes) -> None:
    # OSError: it was cut off already.
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", frame_server.port), 10) as line:
        line.sendall(noise)
        line.shutdown(socket.SHUT_WR)
        while line.recv(1000):
            pass
    store = client(frame_server.url)
    store.check()
    store.close()


def test_a_lost_connection_is_made_again(frame_server: FrameServerProcess) -> None:
    store = client(frame_server.url)
    store.put_many({"mlless:job:frame:1:0": b"frame"})
    store._line.close()  # type: ignore[attr-defined]
    assert store.get_many(["mlless:job:frame:1:0"]) == [b"frame"]
    assert store.clear() == 1
    store.close()


def test_a_full_server_refuses_a_push_and_takes_none_of_it() -> None:
    table = FrameTable(1000)
    assert table.answer(Kind.PUT, [(b"a", bytes(500))]) == (Kind.DONE, [])
    kind, items = table.answer(Kind.PUT, [(b"b", bytes(100)), (b"c", bytes(500))])
    assert kind == Kind.REFUSED
    assert items[0][0].startswith(b"full")
    assert table.answer(Kind.GET, [(b"b", None)]) == (Kind.DONE, [(b"b", None)])
    assert table.answer(Kind.DELETE, [(b"a", None), (b"z", None)]) == (Kind.DONE, [(b"a", None)])
    assert table.answer(Kind.PUT, [(b"b", bytes(100)), (b"c", bytes(500))]) == (Kind.DONE, [])


def test_a_frame_replaces_an_older_one_and_expires() -> None:
    now = 0.0
    table = FrameTable(1000, lambda: now)
    table.answer(Kind.PUT, [(b"a", b"first")])
    table.answer(Kind.PUT, [(b"a", b"second")])
    assert table.answer(Kind.GET, [(b"a", None)]) == (Kind.DONE, [(b"a", b"second")])
    assert table.answer(Kind.PUT, [(b"a", bytes(999))]) == (Kind.DONE, [])  # the room of the older one is free
    assert table.answer(Kind.PUT, [(b"a", bytes(1000))])[0] == Kind.REFUSED
    now = TTL_S + 1.0
    table.answer(Kind.PUT, [(b"b", bytes(990))])
    assert table.answer(Kind.GET, [(b"a", None)]) == (Kind.DONE, [(b"a", None)])
    assert table.answer(Kind.CLEAR, [(b"", None)])[0] == Kind.REFUSED  # of every job


def test_a_refusal_is_one_line_that_says_why(tmp_path: Any) -> None:
    server = FrameServerProcess(tmp_path, "--memory-mb", "1", "--plain")
    server.start()
    store = client(server.url)
    with pytest.raises(ServiceError, match=r"the frame server at 127.0.0.1:\d+: full: its frames may take 1 MiB"):
        store.put_many({"mlless:job:frame:1:0": bytes(2 << 20)})
    store.close()
    server.end()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--plain"], "--plain: only with --listen 127.0.0.1"),
        (["--certificate", "nothing.pem"], "--certificate and --key: give both or none"),
        (["--certificate", "nothing.pem", "--key", "nothing.pem"], "cannot serve: "),
        (["--plain", "--listen", "127.0.0.1", "--port", "99999"], "cannot serve: "),
    ],
)
def test_a_wrong_option_is_one_line(options: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--port", "0", *options]) in (1, 2)
    told = capsys.readouterr()
    assert told.err.startswith(said)
    assert told.err.count("\n") == 1
    assert told.out == ""
