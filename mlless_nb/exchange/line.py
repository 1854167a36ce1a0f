"""One connection that carries a whole step's commands in a single write: the hot path of the exchange.

The server keeps what comes behind a blocking command until that is done. So a worker can publish, arrive, wait for its
peers and ask for their frames in one go, and only read from then on: one round trip a step instead of three.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import redis

#: Times that the commands of a step are sent again over a new connection when one is lost; all are safe to repeat.
TRIES = 5


class Line:
    """A connection of ``client`` kept for one thread.

    Parameters
    ----------
    client : redis.Redis
        Its pool makes the connection, with whatever authentication and TLS its URL asks for.
    """

    def __init__(self, client: redis.Redis) -> None:
        self._pool = client.connection_pool
        self._connection: Any = None

    def send(self, commands: list[tuple[Any, ...]]) -> Iterator[Any]:
        """Send ``commands`` in one write; iterate over their replies, read as they come.

        Read all of them, or `drop` the line. A lost connection raises ``redis.ConnectionError``; so does the next
        reply after one that was an error.
        """
        if self._connection is None:
            self._connection = self._pool.get_connection()
        connection = self._connection
        connection.send_packed_command(connection.pack_commands(commands))
        return (connection.read_response() for _ in commands)

    def drop(self) -> None:
        """Close the connection: replies that were not read are lost with it. The next `send` opens another."""
        if self._connection is not None:
            self._connection.disconnect()

    def close(self) -> None:
        """Give the connection back. Idempotent."""
        if self._connection is not None:
            self._connection.disconnect()
            self._pool.release(self._connection)
            self._connection = None
