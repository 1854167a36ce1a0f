"""A TCP relay that delivers what it gets some time later: the latency of a link, where ``tc`` knows no netem.

    python benchmarks/delaying_relay.py FROM_HOST FROM_PORT TO_HOST TO_PORT SECONDS

``SECONDS`` is the time of one way, half a round trip. It prints a line once it listens.
"""

from __future__ import annotations

import contextlib
import ctypes
import select
import socket
import sys
import time
from collections import deque

#: Most bytes that are read at once.
MOST_BYTES = 1 << 18
#: Linux wakes a process up to so many nanoseconds late unless it asks for less.
PR_SET_TIMERSLACK, SLACK_NS = 29, 1000


class _Side:
    """One of the two connections of a client: what is read from it goes to ``other``."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setblocking(False)
        self.connection, self.other = connection, self
        self.unsent: deque[memoryview] = deque()
        self.is_open = True


class Relay:
    """The connections of one relay; all of them are served by one thread.

    Parameters
    ----------
    listener : socket.socket
    target : (str, int)
        Host and port of the server.
    one_way_s : float
        Seconds between reading something and delivering it.
    """

    def __init__(self, listener: socket.socket, target: tuple[str, int], one_way_s: float) -> None:
        self._listener, self._target, self._one_way_s = listener, target, one_way_s
        self._waiting = select.epoll()
        self._waiting.register(listener, select.EPOLLIN)
        self._sides: dict[int, _Side] = {}
        # In the order of their times, since all are held for the same time. Nothing to deliver is the end.
        self._held: deque[tuple[float, _Side, bytes]] = deque()

    def serve(self) -> None:
        """Serve for ever."""
        while True:
            # Its own timeouts are whole milliseconds; those of select are as fine as the system's.
            left_s = max(self._held[0][0] - time.monotonic(), 0.0) if self._held else None
            select.select([self._waiting], [], [], left_s)
            for number, event in self._waiting.poll(0):
                if number == self._listener.fileno():
                    self._accept()
                elif (side := self._sides.get(number)) is not None:
                    if event & select.EPOLLOUT:
                        self._send(side)
                    if event & ~select.EPOLLOUT and side.is_open:
                        self._read(side)
            now = time.monotonic()
            while self._held and self._held[0][0] <= now:
                _, side, blob = self._held.popleft()
                self._deliver(side, blob)

    def _accept(self) -> None:
        near = _Side(self._listener.accept()[0])
        far = _Side(socket.create_connection(self._target))
        near.other, far.other = far, near
        for side in (near, far):
            self._sides[side.connection.fileno()] = side
            self._waiting.register(side.connection, select.EPOLLIN)

    def _read(self, side: _Side) -> None:
        try:
            blob = side.connection.recv(MOST_BYTES)
        except BlockingIOError:
            return
        except OSError:
            blob = b""
        self._held.append((time.monotonic() + self._one_way_s, side.other, blob))
        if not blob:
            side.is_open = False
            self._waiting.modify(side.connection, select.EPOLLOUT if side.unsent else 0)

    def _deliver(self, side: _Side, blob: bytes) -> None:
        if not blob:
            self._end(side)
        elif side.connection.fileno() in self._sides:
            side.unsent.append(memoryview(blob))
            if len(side.unsent) == 1:
                self._send(side)

    def _send(self, side: _Side) -> None:
        """Send what is due, as far as the connection takes it."""
        try:
            while side.unsent:
                n_sent = side.connection.send(side.unsent[0])
                rest = side.unsent.popleft()[n_sent:]
                if rest:
                    side.unsent.appendleft(rest)
        except BlockingIOError:
            pass
        except OSError:
            return self._end(side)
        wanted = select.EPOLLIN if side.is_open else 0
        self._waiting.modify(side.connection, wanted | (select.EPOLLOUT if side.unsent else 0))
        return None

    def _end(self, side: _Side) -> None:
        """Close both connections of a client."""
        for one in (side, side.other):
            if self._sides.pop(one.connection.fileno(), None) is not None:
                with contextlib.suppress(OSError):
                    self._waiting.unregister(one.connection)
                one.connection.close()


def main(from_host: str, from_port: str, to_host: str, to_port: str, one_way_s: str) -> None:
    """Listen and serve."""
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, SLACK_NS, 0, 0, 0)
    listener = socket.create_server((from_host, int(from_port)), backlog=256)
    print("listening", flush=True)
    Relay(listener, (to_host, int(to_port)), float(one_way_s)).serve()


if __name__ == "__main__":
    main(*sys.argv[1:])
