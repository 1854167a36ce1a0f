"""The messages between a frame server (`python -m mlless_nb.server`) and its clients, over a socket.

A message is a header (kind, number of items, bytes of the body) and a body of items, each a key and a value with their
lengths before them. Frames are passed on as the bytes that they are: nothing is serialised, which is what limits the
parameter servers that LambdaML measured (section 4.3). A client first sends `hello`, and is answered or cut off.
"""

from __future__ import annotations

import enum
import hashlib
import socket
import struct
from collections.abc import Sequence

from ...errors import DecodeError

#: The first bytes of a client: protocol and version.
MAGIC = b"mlless-frames-1\n"
HELLO_BYTES = len(MAGIC) + hashlib.sha256().digest_size
#: Most bytes of a message's body.
MAX_BODY_BYTES = 4 << 30
_HEADER = struct.Struct("<BIQ")
#: Lengths of a key and of its value; `MISSING` in place of the second if there is no value.
_ITEM = struct.Struct("<HQ")
MISSING = (1 << 64) - 1

Item = tuple[bytes, bytes | memoryview | None]


class Kind(enum.IntEnum):
    """What a message asks for, or how it is answered."""

    PUT = 1
    GET = 2
    DELETE = 3
    CLEAR = 4  # all keys that begin with the key
    DONE = 16  # the items found, or as many as were deleted
    REFUSED = 17  # the key says why


def hello(token: str) -> bytes:
    """The first bytes that a client sends."""
    return MAGIC + hashlib.sha256(token.encode()).digest()


def send(line: socket.socket, kind: Kind, items: Sequence[Item] = ()) -> None:
    """Send a message."""
    buffers: list[bytes | memoryview] = []
    for key, value in items:
        buffers += (
            _ITEM.pack(len(key), MISSING if value is None else len(value)),
            key,
            b"" if value is None else value,
        )
    line.sendall(b"".join([_HEADER.pack(kind, len(items), sum(map(len, buffers))), *buffers]))


def receive(line: socket.socket, most_bytes: int = MAX_BODY_BYTES) -> tuple[Kind, list[Item]]:
    """The next message; the values are views of one buffer.

    Raises
    ------
    ConnectionError
        The connection was closed.
    DecodeError
        It is no message, or its body has more than ``most_bytes`` bytes.
    """
    kind, n_items, n_bytes = _HEADER.unpack(receive_exactly(line, _HEADER.size))
    if n_bytes > most_bytes:
        raise DecodeError(f"a message of {n_bytes} bytes; the most is {most_bytes}")
    body = memoryview(receive_exactly(line, n_bytes))
    try:
        return Kind(kind), _items(body, n_items)
    except (ValueError, struct.error):
        raise DecodeError("not a message of a frame server") from None


def _items(body: memoryview, n_items: int) -> list[Item]:
    items: list[Item] = []
    at = 0
    for _ in range(n_items):
        key_bytes, value_bytes = _ITEM.unpack_from(body, at)
        at += _ITEM.size
        key, value = bytes(body[at : at + key_bytes]), None
        at += key_bytes
        if value_bytes != MISSING:
            value = body[at : at + value_bytes]
            at += value_bytes
        if at > len(body):
            raise ValueError
        items.append((key, value))
    if at != len(body):
        raise ValueError
    return items


def receive_exactly(line: socket.socket, n_bytes: int) -> bytearray:
    """The next ``n_bytes`` bytes; ConnectionError if the connection is closed before."""
    received = bytearray(n_bytes)
    view, at = memoryview(received), 0
    while at < n_bytes:
        n = line.recv_into(view[at:])
        if not n:
            raise ConnectionError("the connection was closed")
        at += n
    return received
