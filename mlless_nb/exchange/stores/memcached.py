"""Frames on one or more memcached servers, sharded by key; ``store="memcached://host:11211"``.

Memcached may evict items when its memory is full, and loses all of them when it is restarted. A frame is deleted once
all workers have read it, and only then may it be missing: a worker that misses one ends the run.
"""

from __future__ import annotations

import contextlib
import socket
import time
import zlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote_to_bytes

from ...errors import JobError, ServiceError
from ...storage.objects import ObjectStore
from ..protocol import Frame
from . import parts
from .base import FrameStore, register_store, shown

PORT = 11211
#: Seconds until an item expires, also if the run's processes were killed.
TTL_S = 86_400
#: Bytes of an item beside its value: the server's header and the key.
ITEM_OVERHEAD_BYTES = 512
#: Most bytes of items that are asked for at once: a reply is held in memory as a whole.
ASKED_BYTES = 64 << 20
CONNECT_S, ANSWER_S = 5.0, 15.0
#: Tries of a request if the connection is lost, and the first pause between two, seconds.
TRIES, PAUSE_S = 4, 0.02


@register_store("memcached")
class MemcachedStore(FrameStore):
    """Frames above the server's item limit (`memcached -I`, 1 MiB by default) are stored in parts."""

    max_frame_bytes = 1 << 31
    form = "'memcached://host:11211'"
    component = extra = "memcached"
    package = "pymemcache"
    goes_missing = "memcached, which evicts items when its memory is full (-m) and loses them when it is restarted"

    def __init__(self, prefix: str, objects: ObjectStore, address: str = "") -> None:
        super().__init__(prefix, objects, address)
        self._servers = [_Server(*host_and_port(one)) for one in address.split(",")]
        self._item_bytes = 0  # not asked yet
        self._further: dict[str, list[str]] = {}  # by the key of a frame in parts, those of its further items

    @classmethod
    def check_address(cls, store: str, address: str) -> None:
        """See `FrameStore`."""
        try:
            for one in address.split(","):
                host_and_port(one)
        except ValueError:
            valid = f"{cls.form}, or several servers: 'memcached://host:11211,other:11211'"
            raise JobError("store", shown(store), valid) from None

    @classmethod
    def hosts(cls, address: str) -> list[str]:
        """See `FrameStore`. All of them are open: there is neither TLS nor a password."""
        return [host_and_port(one)[0] for one in address.split(",")]

    def check(self) -> None:
        """See `FrameStore`."""
        self._limit()

    def _limit(self) -> int:
        """Size of the largest value that every server takes, bytes."""
        if not self._item_bytes:
            limits = [server.ask("stats", "settings") for server in self._servers]
            self._item_bytes = min(int(limit.get(b"item_size_max", 1 << 20)) for limit in limits) - ITEM_OVERHEAD_BYTES
        return self._item_bytes

    def _by_server(self, keys: Sequence[str]) -> dict[_Server, list[str]]:
        """``keys`` by the server that keeps them."""
        placed: defaultdict[_Server, list[str]] = defaultdict(list)
        for key in keys:
            placed[self._servers[zlib.crc32(key.encode()) % len(self._servers)]].append(key)
        return placed

    def put_many(self, frames: Mapping[str, bytes]) -> None:
        """See `FrameStore`."""
        items = {
            name: item for key, frame in frames.items() for name, item in parts.cut(key, frame, self._limit()).items()
        }
        for key in frames:
            if further := parts.further_keys(key, items[key]):
                self._further[key] = further
        # The first item of a frame tells of the others: it is stored once all servers have these.
        for some in ([name for name in items if name not in frames], list(frames)):
            for server, names in self._by_server(some).items():
                server.put({name: items[name] for name in names})
        self.count(n_puts=len(frames), put_bytes=sum(map(len, frames.values())))

    def get_many(self, keys: Sequence[str]) -> list[Frame | None]:
        """See `FrameStore`."""
        items = self._items(keys)
        further = [one for key in keys if key in items for one in parts.further_keys(key, items[key])]
        items |= self._items(further)
        found = [parts.joined(key, items) for key in keys]
        self.count(n_gets=len(keys), got_bytes=sum(len(frame) for frame in found if frame is not None))
        return found

    def _items(self, keys: Sequence[str]) -> dict[str, bytes]:
        at_once = max(ASKED_BYTES // self._limit(), 1) if keys else 1
        items: dict[str, bytes] = {}
        for server, names in self._by_server(keys).items():
            for first in range(0, len(names), at_once):
                some = names[first : first + at_once]
                items |= server.ask("get_many", some)
        return items

    def delete_many(self, keys: Sequence[str]) -> None:
        """See `FrameStore`. Of a frame that another process stored, the first item is deleted: the rest is useless."""
        further = [one for key in keys for one in self._further.pop(key, ())]
        for server, names in self._by_server([*keys, *further]).items():
            server.ask("delete_many", names)
        self.count(n_deletes=len(keys))

    def clear(self) -> int:
        """See `FrameStore`. A server that does not list its items lets them expire within a day."""
        prefix = self.prefix.encode()
        deleted: set[bytes] = set()
        for server in self._servers:
            n_empty = 0
            # A listing may miss an item that the server moves meanwhile: two in a row find none before this ends.
            while n_empty < 2:
                names = [key for key in server.names() if key.startswith(prefix) and key not in deleted]
                if names:
                    server.ask("delete_many", names, noreply=False)
                deleted.update(names)
                n_empty = 0 if names else n_empty + 1
        return sum(b"/" not in key for key in deleted)

    def close(self) -> None:
        """See `FrameStore`."""
        for server in self._servers:
            server.close()


class _Server:
    """The connection to one server."""

    def __init__(self, host: str, port: int) -> None:
        from pymemcache.client.base import Client  # an extra
        from pymemcache.exceptions import MemcacheError, MemcacheUnexpectedCloseError

        self._place, self._name = (host, port), f"{host}:{port}"
        self._losses: tuple[type[Exception], ...] = (OSError, MemcacheUnexpectedCloseError)
        self._refusals: type[Exception] = MemcacheError
        self._client = Client(self._place, connect_timeout=CONNECT_S, timeout=ANSWER_S, no_delay=True)

    def ask(self, method: str, *arguments: Any, **options: Any) -> Any:
        """The result of the client's ``method``, which is called again if the connection was lost.

        Raises
        ------
        ServiceError
            The server does not answer, or refuses the request.
        """
        for attempt in range(TRIES):
            try:
                return getattr(self._client, method)(*arguments, **options)
            except self._losses as error:
                self._client.close()
                lost = str(error) or type(error).__name__
            except self._refusals as error:
                self._client.close()
                said = error.args[0] if error.args else type(error).__name__
                said = said.decode(errors="replace") if isinstance(said, bytes) else said
                raise ServiceError(f"memcached at {self._name} refuses a request: {said}") from None
            if attempt < TRIES - 1:
                time.sleep(PAUSE_S * 2**attempt)
        raise ServiceError(f"memcached at {self._name} does not answer: {lost}") from None

    def put(self, items: Mapping[str, bytes]) -> None:
        """Store ``items``."""
        refused = self.ask("set_many", items, expire=TTL_S, noreply=False)
        if refused:
            n_bytes = len(items[refused[0]])
            raise ServiceError(f"memcached at {self._name} does not store an item of {n_bytes} bytes: is it full (-m)?")

    def names(self) -> list[bytes]:
        """The keys of all items; [] if the server does not list them."""
        for attempt in range(TRIES):
            # Items move between the lists that "all" walks, not in the hash table, which older servers do not walk.
            for walked in (b"hash", b"all"):
                with contextlib.suppress(OSError):
                    *items, end = self._listing(walked)
                    if end == b"END":
                        words = [item.split(b" ", 1)[0] for item in items]
                        return [unquote_to_bytes(word.removeprefix(b"key=")) for word in words]
            time.sleep(PAUSE_S * 2**attempt)  # it is busy with another listing
        return []

    def _listing(self, walked: bytes) -> list[bytes]:
        """The lines of the server's reply: one for each item, and END; or only why it does not list them."""
        with socket.create_connection(self._place, CONNECT_S) as line:
            line.settimeout(ANSWER_S)
            line.sendall(b"lru_crawler metadump " + walked + b"\r\n")
            lines: list[bytes] = []
            with line.makefile("rb") as reply:
                for text in reply:
                    lines.append(text.strip())
                    if not text.startswith(b"key="):
                        break
        return lines or [b""]

    def close(self) -> None:
        """Close the connection. Idempotent."""
        self._client.close()


def host_and_port(address: str) -> tuple[str, int]:
    """The host and port in ``address``, ``host[:port]`` or ``[host]:port``; ValueError if it is neither."""
    host, colon, port = address.rpartition(":")
    if not colon or address.endswith("]"):
        host, port = address, str(PORT)
    host = host.removeprefix("[").removesuffix("]")
    is_host = bool(host) and not set(host) & set("/@?#[] \t\n")
    if not is_host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(address)
    return host, int(port)
