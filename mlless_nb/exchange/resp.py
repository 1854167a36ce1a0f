"""The Redis protocol (RESP 2 and 3) without copies: large replies are views into one buffer that is used over and over.

A worker's step reads the frames of all its peers, hundreds of kilobytes each. A client that makes a `bytes` of each
reads them twice and allocates as much every step; here the kernel writes them where the decoder reads them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hiredis import pack_command

#: Bytes of the buffer to begin with; it grows to the largest batch of replies.
_SMALLEST = 1 << 16
#: Bytes from which an argument is handed to the socket as it is; shorter ones are cheaper copied together.
LARGE = 1 << 14

#: First bytes of the replies that are frequent.
BULK, INTEGER, ARRAY, SIMPLE = b"$:*+"


class ReplyError(Exception):
    """An error that the server replied with; the message is the server's, its first word the kind."""


def pack(commands: list[tuple[Any, ...]]) -> list[bytes]:
    """``commands`` as the protocol has them, in pieces to be sent one behind the other.

    Parameters
    ----------
    commands : list of tuple
        Arguments are bytes, str, int or float. A third one (what a SET sets) of `LARGE` bytes or more is a piece of
        its own, not copied.
    """
    pieces: list[bytes] = []
    small: list[bytes] = []
    for command in commands:
        value = command[2] if len(command) > 2 else None
        if isinstance(value, bytes) and len(value) >= LARGE:
            # Packed with nothing in the value's place, and taken apart there.
            before = pack_command(command[:2])
            head = b"*%d%b$%d\r\n" % (len(command), before[before.index(b"\r\n") :], len(value))
            after = pack_command(command[3:])
            pieces += [b"".join([*small, head]), value]
            small = [b"\r\n" + after[after.index(b"\r\n") + 2 :]]
        else:
            small.append(pack_command(command))
    if small:
        pieces.append(b"".join(small))
    return pieces


class ReplyReader:
    """Reads replies from a socket, or from whatever fills a buffer.

    Parameters
    ----------
    receive_into : callable
        Fills a memoryview from its beginning, returns how many bytes it wrote; 0 means the end, and ``EOFError``.
    """

    def __init__(self, receive_into: Callable[[memoryview], int]) -> None:
        self._receive_into = receive_into
        self._buffer = bytearray(_SMALLEST)
        self._view = memoryview(self._buffer)
        self._begin = self._end = 0  # what was received and not read yet

    def begin(self, receive_into: Callable[[memoryview], int] | None = None) -> None:
        """Use the buffer over again: views handed out so far lose their meaning. What was received and not read stays.

        ``receive_into`` is another source, of which nothing was received yet.
        """
        if receive_into is not None:
            self._receive_into = receive_into
            self._begin = self._end
        if self._begin < self._end:
            rest = bytes(self._view[self._begin : self._end])
            self._view[: len(rest)] = rest
            self._end -= self._begin
        else:
            self._end = 0
        self._begin = 0

    def read(self, *, views: bool = False) -> Any:
        """The next reply: int, float, bool, bytes, None, or a list of these; a map is a flat list, as in RESP 2.

        Parameters
        ----------
        views : bool
            Bulk strings as memoryviews, valid until `begin`, instead of bytes.

        Returns
        -------
        object
            A `ReplyError` is returned, not raised: it may be one of several replies, or inside a list.

        Raises
        ------
        EOFError
            The connection ended within a reply.
        ValueError
            What came is not the protocol.
        """
        end = self._buffer.find(b"\r\n", self._begin, self._end)
        if end < 0:
            end = self._rest_of_line()
        buffer, begin = self._buffer, self._begin
        kind, text = buffer[begin], buffer[begin + 1 : end]
        self._begin = end + 2
        if kind == BULK:
            n_bytes = int(text)
            return None if n_bytes < 0 else self._bulk(n_bytes, views)
        if kind == INTEGER:
            return int(text)
        if kind == ARRAY:
            n_items = int(text)
            return None if n_items < 0 else [self.read(views=views) for _ in range(n_items)]
        if kind == SIMPLE:
            return bytes(text)
        return self._rare(chr(kind), bytes(text), views)

    def _rare(self, kind: str, text: bytes, views: bool) -> Any:
        """A reply of the kinds that seldom come, or that only RESP 3 has."""
        if kind == "-":
            return ReplyError(text.decode("utf-8", "replace"))
        if kind == "_":
            return None
        if kind == "#":
            return text == b"t"
        if kind in ",(":
            return float(text) if kind == "," else int(text)
        if kind == "!":
            return ReplyError(str(self._bulk(int(text), True), "utf-8", "replace"))
        if kind == "=":
            return self._bulk(int(text), views)[4:]  # what the text's format is stands before it
        if kind in "~%":
            return [self.read(views=views) for _ in range(int(text) * (2 if kind == "%" else 1))]
        if kind in ">|":  # news pushed by the server, or attributes of the reply that follows
            for _ in range(int(text) * (2 if kind == "|" else 1)):
                self.read()
            return self.read(views=views)
        raise ValueError(f"a reply of an unknown kind {kind!r}")

    def _bulk(self, n_bytes: int, views: bool) -> Any:
        """The next ``n_bytes``, the line's end behind them removed."""
        missing = n_bytes + 2 - (self._end - self._begin)
        while missing > 0:
            missing -= self._more(missing)
        begin, end = self._begin, self._begin + n_bytes
        if not self._buffer.startswith(b"\r\n", end):
            raise ValueError("a bulk reply without its end")
        self._begin = end + 2
        return self._view[begin:end] if views else bytes(self._view[begin:end])

    def _rest_of_line(self) -> int:
        """Receive until the line is complete; returns where it ends."""
        while True:
            n_waiting = self._end - self._begin
            self._more(1)
            end = self._buffer.find(b"\r\n", self._begin + max(n_waiting - 1, 0), self._end)
            if end >= 0:
                return end

    def _more(self, wanted: int) -> int:
        """Receive something, with room for ``wanted`` bytes; returns how many bytes came."""
        if len(self._buffer) - self._end < wanted:
            # Views may point into the old buffer: it is left to them.
            rest = self._view[self._begin : self._end]
            buffer = bytearray(max(2 * len(self._buffer), len(rest) + wanted + _SMALLEST))
            buffer[: len(rest)] = rest
            self._begin, self._end = 0, len(rest)
            self._buffer, self._view = buffer, memoryview(buffer)
        received = self._receive_into(self._view[self._end :])
        if received == 0:
            raise EOFError("the connection ended")
        self._end += received
        return received
