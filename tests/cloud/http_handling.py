"""What the box's servers share of HTTP/1.1."""

from __future__ import annotations

import json
import ssl
import sys
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.broken: list[str] = []

    def handle_error(self, *_: Any) -> None:
        """Connections that are given up say nothing about the box; what TLS finds wrong in them does."""
        error = sys.exception()
        if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
            self.broken.append(str(error))


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer is one packet
    disable_nagle_algorithm = True

    def log_message(self, *_: Any) -> None:
        pass

    def handle_expect_100(self) -> bool:
        """Tell the client now that it may send: it waits for that."""
        may_send = super().handle_expect_100()
        self.wfile.flush()
        return may_send

    def body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", "").lower():
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while n_bytes := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(n_bytes))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return b"".join(parts)

    def answer(self, status: int, body: Any = b"", headers: Iterable[tuple[str, str]] = ()) -> None:
        blob = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        if self.command != "HEAD" and status != 204:
            self.send_header("Content-Length", str(len(blob)))
        self.end_headers()
        if self.command != "HEAD" and status != 204:
            self.wfile.write(blob)
