"""Frames in parts: cut and joined they are the same, and no part of a frame passes for the whole."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mlless_nb.exchange.stores import parts


@given(st.binary(max_size=300), st.integers(13, 64), st.data())
def test_a_frame_is_whole_or_missing(frame: bytes, item_bytes: int, data: st.DataObject) -> None:
    items = parts.cut("key", frame, item_bytes)
    assert list(items)[-1] == "key"
    assert all(len(item) <= item_bytes for item in items.values())
    assert {"key", *parts.further_keys("key", items["key"])} == set(items)
    assert parts.joined("key", items) == frame
    lost = data.draw(st.sampled_from(sorted(items)))
    assert parts.joined("key", {name: item for name, item in items.items() if name != lost}) is None
    short = items | {lost: items[lost][:-1]}
    assert parts.joined("key", short) is None or not items[lost]


def test_a_frame_that_fits_is_one_item() -> None:
    for n_bytes in (0, 1, 88, 89, 188, 189):
        assert len(parts.cut("key", bytes(n_bytes), 100)) == 1 + (n_bytes > 88) + (n_bytes > 188)
