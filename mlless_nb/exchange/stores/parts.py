"""Frames in parts, for a store that limits the size of an item. Pure.

The first item of a frame has the frame's size and number of items before its first bytes, so that one read finds out
whether there are more. It is to be written last: who finds it finds the others, unless the store has lost them.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from ...errors import ServiceError
from ..protocol import Frame

#: Number of items, bytes of the frame.
_HEAD = struct.Struct("<IQ")
#: Most items of a frame.
MOST_ITEMS = 1 << 16


def item_key(key: str, number: int) -> str:
    """The key of item ``number`` of the frame of ``key``."""
    return f"{key}/{number}" if number else key


def cut(key: str, frame: bytes, item_bytes: int) -> dict[str, bytes]:
    """The items of a frame, each at most ``item_bytes`` long, by key; the first item comes last."""
    first_bytes = item_bytes - _HEAD.size
    n_items = 1 + -(-max(len(frame) - first_bytes, 0) // item_bytes)
    if n_items > MOST_ITEMS:
        raise ServiceError(
            f"a frame of {len(frame)} bytes in items of {item_bytes}: must be at most {MOST_ITEMS} items"
        )
    items = {}
    for number in range(1, n_items):
        begin = first_bytes + (number - 1) * item_bytes
        items[item_key(key, number)] = frame[begin : begin + item_bytes]
    items[key] = _HEAD.pack(n_items, len(frame)) + frame[:first_bytes]
    return items


def further_keys(key: str, first: bytes) -> list[str]:
    """The keys of the items after the ``first`` one."""
    n_items, n_bytes = _HEAD.unpack_from(first) if len(first) >= _HEAD.size else (1, 0)
    if n_items > min(MOST_ITEMS, 1 + n_bytes):  # each has a byte at least
        return []
    return [item_key(key, number) for number in range(1, n_items)]


def joined(key: str, items: Mapping[str, bytes]) -> Frame | None:
    """The frame of ``key`` from its ``items``; None if one is missing or was cut short."""
    first = items.get(key)
    if first is None or len(first) < _HEAD.size:
        return None
    n_items, n_bytes = _HEAD.unpack_from(first)
    if not 1 <= n_items <= min(MOST_ITEMS, 1 + n_bytes):
        return None
    if n_items == 1:
        frame: Frame = memoryview(first)[_HEAD.size :]
    else:
        keys = [item_key(key, number) for number in range(1, n_items)]
        if not all(one in items for one in keys):
            return None
        frame = b"".join([memoryview(first)[_HEAD.size :], *(items[one] for one in keys)])
    return frame if len(frame) == n_bytes else None
