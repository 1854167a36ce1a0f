"""A Redis server in virtual time: requests queue for the incoming link, its one thread and the outgoing link."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .cores import Cores
from .timeline import Timeline


@dataclass(frozen=True)
class Link:
    """The network between a function and a server.

    Parameters
    ----------
    latency_s : float
        One way, seconds.
    server_bytes_s, function_bytes_s : float
        Bandwidth of the server, shared by all functions, and of one function, bytes/s in either direction.
    """

    latency_s: float = 0.0
    server_bytes_s: float = math.inf
    function_bytes_s: float = math.inf


class FunctionLink:
    """A function's own link to all servers: it sends one message after another, and receives likewise."""

    __slots__ = ("received_s", "sent_s")

    def __init__(self) -> None:
        #: When the messages in transit will be sent, and received.
        self.sent_s = self.received_s = 0.0


class Shard:
    """One server: three queues, each in order of arrival.

    Parameters
    ----------
    timeline : Timeline
    link : Link
    cores : Cores or None
        Cores shared with other processes; None if the server has its own core.
    """

    def __init__(self, timeline: Timeline, link: Link, cores: Cores | None) -> None:
        self._timeline, self._link, self._cores = timeline, link, cores
        self._in_free_s = self._out_free_s = self._cpu_free_s = 0.0
        self._waiting: list[tuple[float, Callable[..., None], tuple[Any, ...]]] = []
        self._first = 0  # index of the first waiting request
        self._is_busy = False
        #: Processor time of its thread, seconds, and bytes moved in and out.
        self.cpu_s = 0.0
        self.bytes_in = self.bytes_out = 0.0

    def request(
        self, own_link: FunctionLink, cpu_s: float, n_bytes: float, action: Callable[..., None], *arguments: Any
    ) -> None:
        """Send ``n_bytes`` to the server, which works ``cpu_s`` seconds on them and then calls ``action``."""
        self.bytes_in += n_bytes
        link, now = self._link, self._timeline.now
        own_link.sent_s = max(now, own_link.sent_s) + n_bytes / link.function_bytes_s
        self._in_free_s = max(now + link.latency_s, self._in_free_s) + n_bytes / link.server_bytes_s
        arrived_s = max(self._in_free_s, own_link.sent_s + link.latency_s)
        if arrived_s > now:
            self._timeline.at(arrived_s, self.serve, cpu_s, action, *arguments)
        else:
            self.serve(cpu_s, action, *arguments)

    def serve(self, cpu_s: float, action: Callable[..., None], *arguments: Any) -> None:
        """Work ``cpu_s`` seconds on data that is at the server already, then call ``action``."""
        self.cpu_s += cpu_s
        if self._cores is None:
            self._cpu_free_s = max(self._timeline.now, self._cpu_free_s) + cpu_s
            self._timeline.at(self._cpu_free_s, action, *arguments)
        elif self._is_busy:
            self._waiting.append((cpu_s, action, arguments))
        else:
            self._is_busy = True
            self._cores.run(cpu_s, self._served, action, arguments)

    def _served(self, action: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        if self._first < len(self._waiting):
            cpu_s, following, its = self._waiting[self._first]
            self._first += 1
            assert self._cores is not None
            self._cores.run(cpu_s, self._served, following, its)
        else:
            self._waiting.clear()
            self._first, self._is_busy = 0, False
        action(*arguments)

    def reply(self, own_link: FunctionLink, n_bytes: float, action: Callable[..., None], *arguments: Any) -> None:
        """Send ``n_bytes`` back; ``action`` is called once the function has them."""
        self.bytes_out += n_bytes
        link, now = self._link, self._timeline.now
        self._out_free_s = max(now, self._out_free_s) + n_bytes / link.server_bytes_s
        own_link.received_s = max(now, own_link.received_s) + n_bytes / link.function_bytes_s
        self._timeline.at(max(self._out_free_s, own_link.received_s) + link.latency_s, action, *arguments)
