"""A frame server over gRPC, the peer of `frame_server.py`: generic handlers of bytes, without Protocol Buffers.

    python benchmarks/grpc_frames.py threads|asyncio CERTIFICATE KEY

It keeps frames in the same table under the same lock as `mlless_nb.server`. A unary call has the key in its metadata
and the frame as its message, so that no frame is copied into another message. A stream stays open: its messages have
the key before the frame, and no request pays for the headers of a call.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import os
import queue
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from mlless_nb.exchange.stores.wire import Kind
from mlless_nb.server import FrameTable

#: Where a server finds the token that calls must have in their metadata.
TOKEN = "FRAMES_TOKEN"
SERVICE, HOST, COMMON_NAME = "frames", "127.0.0.1", "mlless-frames"
#: Messages of any length. Larger HTTP/2 frames, windows and chunks of reading bring nothing here.
OPTIONS = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
MEMORY_BYTES, THREADS = 4000 << 20, 8
PUSH, PULL = b"\1", b"\2"
#: What `client` opens and `serving` starts: a kind of call, a kind of server.
WAYS = [(call, server) for call in ("unary", "stream") for server in ("threads", "asyncio")]


class Frames:
    """Answers calls from a table; for servers of either kind."""

    def __init__(self) -> None:
        self._table, self._token = FrameTable(MEMORY_BYTES), os.environ[TOKEN]

    def _key(self, context: Any) -> bytes:
        """The key in a call's metadata, which must have the token, too."""
        told = dict(context.invocation_metadata())
        if not hmac.compare_digest(str(told.get("token", "")), self._token):
            raise PermissionError("another token")
        return str(told.get("key", "")).encode()

    def _pull(self, key: bytes) -> bytes:
        _, [(_, frame)] = self._table.answer(Kind.GET, [(key, None)])
        return bytes(frame or b"")

    def push(self, frame: bytes, context: Any) -> bytes:
        """Unary: keep ``frame``."""
        self._table.answer(Kind.PUT, [(self._key(context), frame)])
        return b""

    def pull(self, _: bytes, context: Any) -> bytes:
        """Unary: the frame of a key."""
        return self._pull(self._key(context))

    def _answer(self, message: bytes) -> bytes:
        end = 2 + message[1]
        key = message[2:end]
        if message[:1] == PULL:
            return self._pull(key)
        self._table.answer(Kind.PUT, [(key, message[end:])])
        return b""

    def talk(self, messages: Iterator[bytes], context: Any) -> Iterator[bytes]:
        """Streams: an answer to each message."""
        self._key(context)
        for message in messages:
            yield self._answer(message)

    async def push_asyncio(self, frame: bytes, context: Any) -> bytes:
        """See `push`."""
        return self.push(frame, context)

    async def pull_asyncio(self, message: bytes, context: Any) -> bytes:
        """See `pull`."""
        return self.pull(message, context)

    async def talk_asyncio(self, _: Any, context: Any) -> None:
        """See `talk`. With `read` and `write`, which are quicker than iterators."""
        self._key(context)
        while (message := await context.read()) is not grpc.aio.EOF:
            await context.write(self._answer(message))

    def handlers(self, is_asyncio: bool) -> Any:
        """The handlers of a server: messages are bytes as they are."""
        push, pull, talk = (
            (self.push_asyncio, self.pull_asyncio, self.talk_asyncio)
            if is_asyncio
            else (self.push, self.pull, self.talk)
        )
        methods = {
            "Push": grpc.unary_unary_rpc_method_handler(push),
            "Pull": grpc.unary_unary_rpc_method_handler(pull),
            "Talk": grpc.stream_stream_rpc_method_handler(talk),
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)


def serve(credentials: grpc.ServerCredentials) -> None:
    """Serve by a pool of threads until the process is terminated."""
    server = grpc.server(ThreadPoolExecutor(THREADS), [Frames().handlers(False)], options=OPTIONS)
    port = server.add_secure_port(f"{HOST}:0", credentials)
    server.start()
    print(port, flush=True)
    server.wait_for_termination()


async def serve_asyncio(credentials: grpc.ServerCredentials) -> None:
    """Serve by an event loop until the process is terminated."""
    server = grpc.aio.server(handlers=[Frames().handlers(True)], options=OPTIONS)
    port = server.add_secure_port(f"{HOST}:0", credentials)
    await server.start()
    print(port, flush=True)
    await server.wait_for_termination()


@contextlib.contextmanager
def serving(server: str, certificate: Path, key: Path, token: str) -> Iterator[str]:
    """The port of a server of this kind, until the end."""
    command = [sys.executable, __file__, server, str(certificate), str(key)]
    with subprocess.Popen(command, env={**os.environ, TOKEN: token}, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            port = process.stdout.readline().strip()
            if not port:
                raise SystemExit("the gRPC server did not start")
            yield port
        finally:
            process.terminate()


class Client:
    """Pushes and pulls frames; this one by unary calls."""

    def __init__(self, port: str, certificate: Path, token: str) -> None:
        options = [*OPTIONS, ("grpc.ssl_target_name_override", COMMON_NAME)]
        credentials = grpc.ssl_channel_credentials(certificate.read_bytes())
        self._channel = grpc.secure_channel(f"{HOST}:{port}", credentials, options)
        self._token = ("token", token)
        self._push, self._pull = (self._channel.unary_unary(f"/{SERVICE}/{name}") for name in ("Push", "Pull"))

    def push(self, key: str, frame: bytes) -> None:
        """Push ``frame``; the server has it when this returns."""
        self._push(frame, metadata=(self._token, ("key", key)))

    def pull(self, key: str) -> bytes:
        """The frame of ``key``."""
        return self._pull(b"", metadata=(self._token, ("key", key)))


class StreamClient(Client):
    """By the messages of one stream."""

    def __init__(self, port: str, certificate: Path, token: str) -> None:
        super().__init__(port, certificate, token)
        self._messages = queue.SimpleQueue[bytes | None]()
        talk = self._channel.stream_stream(f"/{SERVICE}/Talk")
        self._answers = talk(iter(self._messages.get, None), metadata=[self._token])

    def _ask(self, what: bytes, key: str, frame: bytes = b"") -> bytes:
        name = key.encode()
        self._messages.put(b"".join((what, bytes([len(name)]), name, frame)))
        return next(self._answers)

    def push(self, key: str, frame: bytes) -> None:
        """See `Client`."""
        self._ask(PUSH, key, frame)

    def pull(self, key: str) -> bytes:
        """See `Client`."""
        return self._ask(PULL, key)


def client(call: str, port: str, certificate: Path, token: str) -> Client:
    """A client of this kind of call."""
    return (StreamClient if call == "stream" else Client)(port, certificate, token)


def main(server: str, certificate: str, key: str) -> None:
    """Serve."""
    pair = (Path(key).read_bytes(), Path(certificate).read_bytes())
    credentials = grpc.ssl_server_credentials([pair])
    if server == "asyncio":
        asyncio.run(serve_asyncio(credentials))
    else:
        serve(credentials)


if __name__ == "__main__":
    main(*sys.argv[1:])
