"""The reply reader and the packer: any replies, however they are cut on their way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import hiredis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlless_nb.kernels.resp import LARGE, ReplyError, ReplyReader, pack

TEXT = st.text(st.characters(codec="ascii", exclude_characters="\r\n"), max_size=20)


def bulk(data: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(data), data)


def listed(kind: bytes, items: list[tuple[bytes, Any]], n_items: int) -> tuple[bytes, Any]:
    return b"%b%d\r\n" % (kind, n_items) + b"".join(wire for wire, _ in items), [value for _, value in items]


#: Replies as they travel, each with what it means: of both versions of the protocol.
SIMPLE: st.SearchStrategy[tuple[bytes, Any]] = st.one_of(
    st.integers(-(2**63), 2**63 - 1).map(lambda n: (b":%d\r\n" % n, n)),
    st.integers(-(10**40), 10**40).map(lambda n: (b"(%d\r\n" % n, n)),
    TEXT.map(lambda text: (b"+%b\r\n" % text.encode(), text.encode())),
    TEXT.map(lambda text: (b"-%b\r\n" % text.encode(), ReplyError(text))),
    st.binary(max_size=300).map(lambda data: (bulk(data), data)),
    st.binary(max_size=50).map(lambda data: (b"=%d\r\ntxt:%b\r\n" % (len(data) + 4, data), data)),
    TEXT.map(lambda text: (b"!%d\r\n%b\r\n" % (len(text), text.encode()), ReplyError(text))),
    st.sampled_from([(b"$-1\r\n", None), (b"*-1\r\n", None), (b"_\r\n", None), (b"#t\r\n", True), (b"#f\r\n", False)]),
    st.floats(allow_nan=False).map(lambda x: (b",%b\r\n" % repr(x).encode(), x)),
)
REPLIES = st.recursive(
    SIMPLE,
    lambda inner: st.one_of(
        st.lists(inner, max_size=5).map(lambda items: listed(b"*", items, len(items))),
        st.lists(inner, max_size=5).map(lambda items: listed(b"~", items, len(items))),
        st.lists(st.tuples(inner, inner), max_size=3).map(
            lambda pairs: listed(b"%", [item for pair in pairs for item in pair], len(pairs))
        ),
        st.tuples(inner, inner).map(lambda two: (b">1\r\n" + two[0][0] + two[1][0], two[1][1])),
    ),
    max_leaves=12,
)


class Pieces:
    """A socket that gives what was sent in pieces of the sizes given, over and over."""

    def __init__(self, wire: bytes, sizes: list[int]) -> None:
        self._wire, self._sizes, self._n_given = wire, sizes, 0

    def receive_into(self, view: memoryview) -> int:
        size = self._sizes[self._n_given % len(self._sizes)]
        self._n_given += 1
        part = self._wire[: min(size, len(view))]
        view[: len(part)] = part
        self._wire = self._wire[len(part) :]
        return len(part)


def plain(reply: Any) -> Any:
    """A reply without views, its errors comparable."""
    if isinstance(reply, list):
        return [plain(item) for item in reply]
    if isinstance(reply, memoryview):
        return bytes(reply)
    return ("error", str(reply)) if isinstance(reply, ReplyError) else reply


@given(st.lists(REPLIES, min_size=1, max_size=6), st.lists(st.integers(1, 40), min_size=1, max_size=5), st.booleans())
def test_replies_are_read_however_they_are_cut(replies: list[tuple[bytes, Any]], sizes: list[int], views: bool) -> None:
    reader = ReplyReader(Pieces(b"".join(wire for wire, _ in replies), sizes).receive_into)
    for number, (_, value) in enumerate(replies):
        if number % 2:
            reader.begin()
        assert plain(reader.read(views=views)) == plain(value)
    with pytest.raises(EOFError):
        reader.read()


@given(REPLIES, st.integers(0, 10**6), st.lists(st.integers(1, 40), min_size=1, max_size=5))
def test_a_reply_that_ends_early_is_noticed(reply: tuple[bytes, Any], cut: int, sizes: list[int]) -> None:
    wire = reply[0]
    reader = ReplyReader(Pieces(wire[: cut % len(wire)], sizes).receive_into)
    with pytest.raises(EOFError):
        reader.read()


@given(st.lists(st.integers(0, 200_000), min_size=1, max_size=4), st.integers(4_000, 300_000))
def test_views_of_one_batch_stay_valid_while_the_buffer_grows(lengths: list[int], size: int) -> None:
    values = [bytes([number]) * length for number, length in enumerate(lengths)]
    wire = b"*%d\r\n" % len(values) + b"".join(map(bulk, values))
    reader = ReplyReader(Pieces(wire * 3, [size]).receive_into)
    for _ in range(3):
        reader.begin()
        views = reader.read(views=True)
        assert all(isinstance(view, memoryview) for view in views)
        assert [bytes(view) for view in views] == values


@pytest.mark.parametrize("wire", [b"$3\r\nabcd\r\n", b"?1\r\n", b":x\r\n", b"$y\r\n", b"\r\n", b"*1\r\n$2\r\nabXY"])
def test_what_is_not_the_protocol_is_refused(wire: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - whatever the message
        ReplyReader(Pieces(wire + b"\r\n" * 9, [4096]).receive_into).read()


def test_another_source_begins_anew() -> None:
    reader = ReplyReader(Pieces(b":1\r\n:2\r\n", [100]).receive_into)
    assert reader.read() == 1
    reader.begin(Pieces(b":3\r\n", [100]).receive_into)
    assert reader.read() == 3


def batches() -> Iterator[list[tuple[Any, ...]]]:
    large = bytes(range(256)) * (LARGE // 256)
    yield [("SET", "key", large, "NX", "PX", 5), ("GET", "key")]
    yield [("SET", "key", large)]
    yield [("PING",), ("SET", "key", large[:-1]), ("SET", "other", large + b"\r\n", "NX"), ("SET", "third", b"")]


@pytest.mark.parametrize("batch", list(batches()))
def test_commands_are_packed_as_a_client_does(batch: list[tuple[Any, ...]]) -> None:
    assert b"".join(pack(batch)) == b"".join(hiredis.pack_command(command) for command in batch)
    large = [argument for command in batch for argument in command if isinstance(argument, bytes)]
    assert all(any(piece is argument for piece in pack(batch)) for argument in large if len(argument) >= LARGE)
