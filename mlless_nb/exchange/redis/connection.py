"""One connection that sends all commands of a step in a single write: the hot path of the exchange.

The server queues the commands behind a blocking command until that is done. So a worker can publish, arrive, wait for
its peers and request their frames in one write, and then only read: one round trip a step instead of three.

redis-py opens the connection, with the authentication and TLS that the URL requires. From then on this class reads and
writes the socket itself, so that frames are neither joined before they are sent nor copied when they are received.
"""

from __future__ import annotations

import ssl
from typing import Any

import redis
from redis import exceptions

from ...kernels.resp import ReplyError, ReplyReader, pack

#: Seconds for which the commands of a step are sent again, over new connections, while the server is away; all are
#: safe to repeat. A paused or restarted server is back sooner.
PATIENCE_S = 60.0
#: Pauses between two of these tries, seconds; the last one is repeated.
PAUSES_S = (0.02, 0.04, 0.08, 0.16, 0.32, 0.5)
#: Buffers passed to one ``sendmsg``; systems allow 1024.
_MOST_PIECES = 512
#: Errors by the first word of the server's message; all others are a plain ``ResponseError``.
_ERRORS: dict[str, type[exceptions.RedisError]] = {
    "NOSCRIPT": exceptions.NoScriptError,
    "LOADING": exceptions.BusyLoadingError,
    "OOM": exceptions.OutOfMemoryError,
    "READONLY": exceptions.ReadOnlyError,
    "NOPERM": exceptions.NoPermissionError,
}


class PipelinedConnection:
    """A connection with the settings of ``client``, for one thread.

    Parameters
    ----------
    client : redis.Redis
        Its pool has the settings of the connection and the timeout of a reply.
    """

    def __init__(self, client: redis.Redis) -> None:
        self._pool = client.connection_pool
        self._connection: Any = None
        self._socket: Any = None
        self._reader = ReplyReader(lambda view: 0)

    def send(self, commands: list[tuple[Any, ...]]) -> None:
        """Send ``commands`` in one write; views that were read before become invalid.

        Each command has one reply: `read` all replies, or `drop` the connection.

        Raises
        ------
        redis.ConnectionError, redis.TimeoutError
            The connection was lost or could not be opened; the commands may have been carried out.
        """
        if self._socket is None:
            self._connect()
        else:
            self._reader.begin()
        try:
            self._write(pack(commands))
        except BaseException as error:
            raise self._lost(error) from None

    def read(self, *, views: bool = False) -> Any:
        """The next reply; with ``views``, strings are memoryviews that are valid until the next `send`.

        Raises
        ------
        redis.ResponseError
            The command failed; the replies after it can still be read.
        redis.ConnectionError, redis.TimeoutError
            The connection was lost.
        """
        if self._socket is None:
            raise redis.ConnectionError("the connection was closed")
        try:
            reply = self._reader.read(views=views)
        except BaseException as error:
            raise self._lost(error) from None
        if isinstance(reply, ReplyError):
            kind, _, message = str(reply).partition(" ")
            raise _ERRORS[kind](message) if kind in _ERRORS else exceptions.ResponseError(str(reply))
        return reply

    def drop(self) -> None:
        """Close the connection, with all replies that were not read. The next `send` opens a new one."""
        self._socket = None
        if self._connection is not None:
            self._connection.disconnect()

    def close(self) -> None:
        """Close the connection. Idempotent."""
        self.drop()
        self._connection = None

    def _connect(self) -> None:
        if self._connection is None:
            self._connection = self._pool.connection_class(**self._pool.connection_kwargs)
        self._connection.connect()
        self._socket = self._connection._sock
        self._reader.begin(self._socket.recv_into)

    def _write(self, pieces: list[bytes]) -> None:
        if isinstance(self._socket, ssl.SSLSocket) or not hasattr(self._socket, "sendmsg"):
            for piece in pieces:
                self._socket.sendall(piece)
            return
        n_sent = self._socket.sendmsg(pieces[:_MOST_PIECES])
        if n_sent == sum(map(len, pieces)):
            return
        rest: list[bytes | memoryview] = [*pieces]
        while True:
            n_whole = 0
            while n_whole < len(rest) and n_sent >= len(rest[n_whole]):
                n_sent -= len(rest[n_whole])
                n_whole += 1
            del rest[:n_whole]
            if not rest:
                return
            rest[0] = memoryview(rest[0])[n_sent:]
            n_sent = self._socket.sendmsg(rest[:_MOST_PIECES])

    def _lost(self, error: BaseException) -> BaseException:
        """Close the connection; returns ``error`` as an exception of redis-py."""
        self.drop()
        if isinstance(error, TimeoutError):
            error = redis.TimeoutError("Redis did not answer in time")
        elif isinstance(error, (OSError, EOFError, ValueError)):
            error = redis.ConnectionError(f"the connection to Redis was lost: {error}")
        return error
