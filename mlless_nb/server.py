"""A frame server on a VM: workers push updates to it and pull their peers' (``store="server://..."``).

``python -m mlless_nb.server`` says the address to give to jobs, and serves until it is terminated. As in the hybrid
design of Cirrus and LambdaML (section 3.2.2), functions compute, and one VM keeps what they exchange. It is not their
parameter server, which holds the model, applies the updates that are pushed to it (by gRPC or Thrift in LambdaML), and
hands out the new model. This one keeps frames as they are: the workers apply each other's updates.

Nor does it speak gRPC: small frames would take three times as long, those of megabytes about as long as they do,
and functions would carry 18 MB more (`benchmarks/frame_server.py`).

Frames are in its memory; a push is carried out under one lock, so that whoever pulls sees all of it or nothing.

The connection is over TLS with a certificate of the server's own, whose fingerprint is part of the address; the token
is, too. Treat the address as a password: who has it reaches the frames of all jobs. Functions get the access to those
of their own job only.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import secrets
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import quote

from .errors import DecodeError
from .exchange.stores import wire
from .exchange.stores.server import PORT
from .exchange.stores.wire import Item, Kind

#: Seconds that a frame is kept if no job removes it.
TTL_S = 86_400.0
#: Seconds that a client may take to prove itself, and that a connection may be silent.
HELLO_S, SILENT_S = 10.0, 3600.0
#: Most connections at once; a function has one.
MOST_CONNECTIONS = 8192
#: Bytes of a message beside its frames.
SLACK_BYTES = 1 << 20
#: Bytes that are kept with a frame because they came in the same message, as a share of its own.
SPARE_SHARE = 0.01
#: Share of the machine's memory that frames may take, unless the user says how much.
MEMORY_SHARE = 0.75


class FrameTable:
    """The frames of all jobs; for any thread.

    Parameters
    ----------
    most_bytes : int
        Most bytes of all frames together.
    clock : callable
        Seconds.
    """

    def __init__(self, most_bytes: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.most_bytes, self._clock = most_bytes, clock
        self._frames: dict[
            bytes, tuple[float, bytes | memoryview]
        ] = {}  # with the time when it was pushed, oldest first
        self._n_bytes = 0
        self._lock = threading.Lock()

    @property
    def refusal(self) -> tuple[Kind, list[Item]]:
        """The answer to a push that does not fit."""
        return Kind.REFUSED, [(f"full: its frames may take {self.most_bytes >> 20} MiB".encode(), None)]

    def answer(self, kind: Kind, items: Sequence[Item]) -> tuple[Kind, list[Item]]:
        """Carry a request out, all of it or nothing."""
        with self._lock:
            if kind == Kind.PUT:
                return self._put(items)
            if kind == Kind.GET:
                return Kind.DONE, [(key, self._frames[key][1] if key in self._frames else None) for key, _ in items]
            if kind == Kind.DELETE:
                return Kind.DONE, self._delete([key for key, _ in items])
            if kind == Kind.CLEAR and len(items) == 1 and items[0][0]:
                prefix = items[0][0]
                return Kind.DONE, self._delete([key for key in self._frames if key.startswith(prefix)])
        return Kind.REFUSED, [(b"no such request", None)]

    def _put(self, items: Sequence[Item]) -> tuple[Kind, list[Item]]:
        now = self._clock()
        while self._frames and (oldest := next(iter(self._frames.items())))[1][0] < now - TTL_S:
            self._delete([oldest[0]])
        new = {key: _kept(value) for key, value in items if value is not None}
        n_bytes = sum(len(key) + len(value) for key, value in new.items())
        n_replaced = sum(len(key) + len(self._frames[key][1]) for key in new if key in self._frames)
        if self._n_bytes + n_bytes - n_replaced > self.most_bytes:
            return self.refusal
        self._delete(list(new))
        self._frames |= {key: (now, value) for key, value in new.items()}
        self._n_bytes += n_bytes
        return Kind.DONE, []

    def _delete(self, keys: Sequence[bytes]) -> list[Item]:
        deleted: list[Item] = []
        for key in keys:
            if (found := self._frames.pop(key, None)) is not None:
                self._n_bytes -= len(key) + len(found[1])
                deleted.append((key, None))
        return deleted


def _kept(value: bytes | memoryview) -> bytes | memoryview:
    """``value`` to keep: itself, or a copy if it is a view of a message with much else in it, which it would keep."""
    if isinstance(value, memoryview):
        with memoryview(value.obj) as message:
            if message.nbytes - len(value) > SPARE_SHARE * len(value):
                return bytes(value)
    return value


class FrameServer:
    """Listens, and serves each client in a thread.

    Parameters
    ----------
    listener : socket.socket
    table : FrameTable
    token : str
    context : ssl.SSLContext or None
        None: plain connections.
    """

    def __init__(
        self, listener: socket.socket, table: FrameTable, token: str, context: ssl.SSLContext | None = None
    ) -> None:
        self._listener, self._table, self._context, self._token = listener, table, context, token
        self._room = threading.BoundedSemaphore(MOST_CONNECTIONS)

    def serve(self) -> None:
        """Serve until the listener is closed."""
        while True:
            try:
                line, _ = self._listener.accept()
            except OSError:
                return
            if not self._room.acquire(blocking=False):
                line.close()
                continue
            threading.Thread(target=self._serve, args=(line,), daemon=True).start()

    def _serve(self, line: socket.socket) -> None:
        try:
            self._answer(line)
        finally:
            self._room.release()

    def _answer(self, line: socket.socket) -> None:
        with contextlib.suppress(OSError, DecodeError), contextlib.ExitStack() as open_lines:
            open_lines.enter_context(line)
            line.settimeout(HELLO_S)
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._context is not None:
                line = open_lines.enter_context(self._context.wrap_socket(line, server_side=True))
            prefix = wire.receive_hello(line, self._token)
            if prefix is None:
                return
            line.settimeout(SILENT_S)
            while True:
                try:
                    kind, items = wire.receive(line, self._table.most_bytes + SLACK_BYTES)
                except wire.TooLong as error:
                    wire.skip(line, error.n_bytes)
                    wire.send(line, *self._table.refusal)
                    continue
                if all(key.startswith(prefix) for key, _ in items):
                    wire.send(line, *self._table.answer(kind, items))
                else:
                    wire.send(line, Kind.REFUSED, [(b"a key of another job", None)])


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """Write a self-signed certificate and its key, by the ``openssl`` program, into ``folder``."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "3650", "-subj", "/CN=mlless-frames", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key


def tls(certificate: Path, key: Path) -> tuple[ssl.SSLContext, str]:
    """The server's TLS context, and its certificate's fingerprint."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(certificate, key)
    first = ssl.PEM_cert_to_DER_cert(certificate.read_text("ascii").partition("-----END CERTIFICATE-----")[0] + _END)
    return context, hashlib.sha256(first).hexdigest()


_END = "-----END CERTIFICATE-----\n"


def _memory_mib() -> int:
    return int(MEMORY_SHARE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")) >> 20


def _arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m mlless_nb.server", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--listen", default="0.0.0.0", metavar="HOST", help="address to listen on (default: all)")
    parser.add_argument("--port", type=int, default=PORT, help=f"port, 0 for any free one (default {PORT})")
    parser.add_argument("--name", metavar="HOST", help="name or address by which functions reach this machine")
    parser.add_argument("--certificate", type=Path, metavar="PEM", help="certificate (default: a new one of its own)")
    parser.add_argument("--key", type=Path, metavar="PEM", help="the certificate's key")
    parser.add_argument("--memory-mb", type=int, default=_memory_mib(), help="most memory of frames, MiB (default 3/4)")
    parser.add_argument("--plain", action="store_true", help="no TLS: only with --listen 127.0.0.1")
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or Ctrl-C. The token is that in MLLESS_SERVER_TOKEN, or a new one."""
    options = _arguments(given)
    if options.plain and options.listen not in ("127.0.0.1", "::1", "localhost"):
        print("--plain: only with --listen 127.0.0.1; everybody in the network could read the token", file=sys.stderr)
        return 2
    if (options.certificate is None) != (options.key is None):
        print("--certificate and --key: give both or none", file=sys.stderr)
        return 2
    token = os.environ.get("MLLESS_SERVER_TOKEN") or secrets.token_urlsafe(24)
    context, fingerprint = None, ""
    try:
        if not options.plain:
            with tempfile.TemporaryDirectory() as folder:
                files = (options.certificate, options.key) if options.key else make_certificate(Path(folder))
                context, fingerprint = tls(*files)
        listener = socket.create_server((options.listen, options.port), backlog=512)
    except (OSError, OverflowError, ValueError, subprocess.CalledProcessError) as error:
        print(f"cannot serve: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    host, port = options.name or _own_name(options.listen), listener.getsockname()[1]
    path = f"/{fingerprint}" if fingerprint else ""
    print(f"store=server://:{quote(token, safe='')}@{host}:{port}{path}", flush=True)
    print(f"serving at most {options.memory_mb} MiB of frames; ends with Ctrl-C or SIGTERM", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        FrameServer(listener, FrameTable(options.memory_mb << 20), token, context).serve()
    return 0


def _own_name(listen: str) -> str:
    return socket.gethostname() if listen in ("0.0.0.0", "::") else listen


if __name__ == "__main__":
    sys.exit(main())
