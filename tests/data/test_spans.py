"""Byte ranges of text files: every line is in one range, whatever the ranges, and the digests do not depend on them."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlless_nb.data import spans
from mlless_nb.data.spans import Chunks, leaf_bytes, line_chunks, shares
from mlless_nb.storage.objects import MemoryObjects

#: Lines of any length, blank ones too, with ends of both kinds; the last may have none.
TEXTS = st.lists(st.sampled_from([b"a", b"bc" * 20, b"\n", b"\r\n", b"defgh"]), min_size=1, max_size=60).map(b"".join)


def stored(texts: list[bytes]) -> tuple[MemoryObjects, list[tuple[str, int]]]:
    objects = MemoryObjects()
    for number, text in enumerate(texts):
        objects.put(f"part-{number}", text)
    return objects, [(f"part-{number}", len(text)) for number, text in enumerate(texts)]


def read(texts: list[bytes], n: int) -> tuple[list[bytes], list[bytes]]:
    """(text of each share, digests of the leaves) with ``n`` shares."""
    objects, files = stored(texts)
    leaf, digests = leaf_bytes(map(len, texts)), []
    found = []
    for share in shares(files, n):
        found.append(b"".join(b"".join(line_chunks(objects, span, leaf, digests.append)) for span in share))
    return found, digests


@given(texts=st.lists(TEXTS, min_size=1, max_size=4), n=st.integers(1, 12), block=st.integers(1, 40))
def test_every_line_is_in_the_range_where_it_begins(texts: list[bytes], n: int, block: int) -> None:
    whole = [text if text.endswith(b"\n") else text + b"\n" for text in texts]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spans, "BLOCK_BYTES", block)
        patch.setattr(spans, "TAIL_BYTES", block)
        found, digests = read(texts, n)
    assert b"".join(found) == b"".join(whole)
    assert all(not part or part.endswith(b"\n") for part in found)
    assert digests == read(texts, 1)[1]


@given(texts=st.lists(TEXTS, min_size=1, max_size=4), n=st.integers(1, 12))
def test_shares_are_all_files_in_order_and_about_even(texts: list[bytes], n: int) -> None:
    _, files = stored(texts)
    cut, leaf = shares(files, n), leaf_bytes(map(len, texts))
    assert 1 <= len(cut) <= n
    flat = list(itertools.chain.from_iterable(cut))
    for key, size in files:
        ranges = [(span.begin, span.end) for span in flat if span.key == key]
        assert ranges[0][0] == 0
        assert ranges[-1][1] == size
        assert all(before[1] == after[0] for before, after in itertools.pairwise(ranges))
    leaves = [sum(-(-(span.end - span.begin) // leaf) for span in share) for share in cut]
    assert max(leaves) - min(leaves) <= 1


def test_a_file_that_has_become_shorter_is_noticed() -> None:
    objects, files = stored([b"a line\n" * 10])
    [share] = shares(files, 1)
    objects.put("part-0", b"a line\n")
    with pytest.raises(EOFError, match="part-0 is shorter than 70 bytes"):
        list(line_chunks(objects, share[0], 16, lambda _: None))


@given(chunks=st.lists(st.binary(min_size=1, max_size=9), max_size=9), n=st.integers(1, 20))
def test_chunks_are_read_as_a_file(chunks: list[bytes], n: int) -> None:
    file = Chunks(chunks)
    line = file.readline()
    parts = list(iter(lambda: file.read(n), b""))
    text = b"".join(chunks)
    assert line == text[: text.find(b"\n") + 1 or len(text)]
    assert line + b"".join(parts) == text
    assert all(len(part) == n for part in parts[:-1])
