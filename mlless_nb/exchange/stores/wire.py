"""The messages between a frame server (`python -m mlless_nb.server`) and its clients, over a socket.

A message is a header (kind, number of items, bytes of the body) and a body of items, each a key and a value with their
lengths before them. Frames are passed on as the bytes that they are: nothing is serialised, which is what limits the
parameter servers that LambdaML measured (section 4.3). A client first sends `hello`, and is answered or cut off.

`hello` names the prefix of a job's keys and proves the right to them: the *access* to a prefix is its HMAC-SHA256 under
the server's token. Functions get the access to their own job's frames, and cannot reach those of others.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
import socket
import struct
from collections.abc import Sequence

from ...errors import DecodeError

#: The first bytes of a client: protocol and version. The length of the prefix, one byte, and the prefix follow.
MAGIC = b"mlless-frames-2\n"
MOST_PREFIX_BYTES = 255
#: Bytes that a message's body takes at first: more only once so many have come.
STEP_BYTES = 16 << 20
#: From so many bytes a value is not copied to what is sent before it: a write of its own takes less time.
LONG_BYTES = 1 << 18
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


def access_to(prefix: str, token: str) -> str:
    """The access to the keys that begin with ``prefix`` on the server with ``token``."""
    return hmac.new(token.encode(), prefix.encode(), hashlib.sha256).hexdigest()


def hello(prefix: str, access: str) -> bytes:
    """The first bytes that a client sends."""
    name = prefix.encode()
    if not 0 < len(name) <= MOST_PREFIX_BYTES:
        raise ValueError(f"a prefix of {len(name)} bytes: must be 1 to {MOST_PREFIX_BYTES}")
    return MAGIC + bytes([len(name)]) + name + hashlib.sha256(access.encode()).digest()


def receive_hello(line: socket.socket, token: str) -> bytes | None:
    """The prefix that the client on the other end has access to; None if it proves none."""
    if receive_exactly(line, len(MAGIC)) != MAGIC:
        return None
    prefix = bytes(receive_exactly(line, receive_exactly(line, 1)[0]))
    proof = bytes(receive_exactly(line, hashlib.sha256().digest_size))
    try:
        due = hello(prefix.decode(), access_to(prefix.decode(), token))
    except ValueError:
        return None
    return prefix if hmac.compare_digest(proof, due[-len(proof) :]) else None


def send(line: socket.socket, kind: Kind, items: Sequence[Item] = ()) -> None:
    """Send a message. Long values are sent from where they are, all others in one write with what is before them."""
    n_bytes = sum(_ITEM.size + len(key) + len(value or b"") for key, value in items)
    gathered: list[bytes | memoryview] = [_HEADER.pack(kind, len(items), n_bytes)]
    for key, value in items:
        gathered += (_ITEM.pack(len(key), MISSING if value is None else len(value)), key)
        if value is not None and len(value) >= LONG_BYTES:
            line.sendall(b"".join(gathered))
            line.sendall(value)
            gathered.clear()
        elif value is not None:
            gathered.append(value)
    if gathered:
        line.sendall(b"".join(gathered))


class TooLong(DecodeError):  # noqa: N818 - it says what the message is
    """A message whose body, of ``n_bytes`` bytes, is not read: `skip` it, or close the connection."""

    def __init__(self, n_bytes: int, most_bytes: int) -> None:
        super().__init__(f"a message of {n_bytes} bytes; the most is {most_bytes}")
        self.n_bytes = n_bytes


def receive(line: socket.socket, most_bytes: int = MAX_BODY_BYTES) -> tuple[Kind, list[Item]]:
    """The next message; the values are views of one buffer.

    Raises
    ------
    ConnectionError
        The connection was closed.
    DecodeError
        It is no message; `TooLong` if its body has more than ``most_bytes`` bytes.
    """
    kind, n_items, n_bytes = _HEADER.unpack(receive_exactly(line, _HEADER.size))
    if n_bytes > most_bytes:
        raise TooLong(n_bytes, most_bytes)
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


def skip(line: socket.socket, n_bytes: int) -> None:
    """Read ``n_bytes`` bytes, at most those of the longest message, and forget them."""
    if n_bytes > MAX_BODY_BYTES:
        raise DecodeError(f"a message of {n_bytes} bytes")
    buffer = bytearray(min(n_bytes, 1 << 16))
    while n_bytes:
        n = line.recv_into(memoryview(buffer)[: min(n_bytes, len(buffer))])
        if not n:
            raise ConnectionError("the connection was closed")
        n_bytes -= n


def receive_exactly(line: socket.socket, n_bytes: int) -> bytearray:
    """The next ``n_bytes`` bytes; ConnectionError if the connection is closed before.

    Memory grows with what has come, so that a message that only says that it is long takes none.
    """
    received, at = bytearray(min(n_bytes, STEP_BYTES)), 0
    while True:
        with memoryview(received) as view:
            while at < len(view):
                n = line.recv_into(view[at:])
                if not n:
                    raise ConnectionError("the connection was closed")
                at += n
        if at == n_bytes:
            return received
        received.extend(bytes(min(at, n_bytes - at)))
