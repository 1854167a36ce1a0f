"""What a worker reads of a packed dataset: every minibatch as it was stored, in no more requests than were paid for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlless_nb import datasets
from mlless_nb.data import prepare
from mlless_nb.data import read_plan as runs_module
from mlless_nb.data.prepare import Manifest, pack
from mlless_nb.data.read_plan import Runs, most_gets
from mlless_nb.errors import RunError, ServiceError
from mlless_nb.storage.objects import MemoryObjects
from mlless_nb.worker import minibatch_loader as feed_module
from mlless_nb.worker.minibatch_loader import MinibatchFeed

RATINGS = datasets.synthetic_ratings(40, 30, 500, rank=3, seed=1)
EACH = list(RATINGS.minibatches(16, 0))


@pytest.fixture
def objects(monkeypatch: pytest.MonkeyPatch) -> MemoryObjects:
    """The ratings packed into small bundles, to be read in short runs."""
    monkeypatch.setattr(feed_module, "RETRY_S", 0.0)
    return MemoryObjects()


def packed(objects: MemoryObjects, monkeypatch: pytest.MonkeyPatch, bundle_bytes: int, run_bytes: int) -> Manifest:
    monkeypatch.setattr(prepare, "BUNDLE_BYTES", bundle_bytes)
    manifest = pack(RATINGS, 16, 0, objects)
    monkeypatch.setattr(runs_module, "FIRST_BYTES", run_bytes // 4)
    monkeypatch.setattr(runs_module, "RUN_BYTES", run_bytes)
    monkeypatch.setattr(feed_module, "SMALL_BYTES", 0)
    objects.gets = 0
    return manifest


def is_minibatch(found: Any, index: int) -> bool:
    return all(np.array_equal(getattr(found, name), array) for name, array in vars(EACH[index]).items())


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_every_minibatch_is_read_in_no_more_requests_than_were_foretold(data: st.DataObject) -> None:
    """Whatever is expected, read ahead, read, and dropped for want of room."""
    with pytest.MonkeyPatch.context() as patch:
        objects = MemoryObjects()
        bundle_bytes, run_bytes = data.draw(st.sampled_from([600, 3000, 10**6])), data.draw(st.integers(4, 8000))
        manifest = packed(objects, patch, bundle_bytes, run_bytes)
        patch.setattr(feed_module, "SMALL_BYTES", data.draw(st.sampled_from([0, 2000, 10**6])))
        patch.setattr(feed_module, "CACHE_BYTES", data.draw(st.sampled_from([1, 5000, 10**7])))
        feed = MinibatchFeed(objects, manifest)
        n = manifest.n_minibatches
        for _ in range(data.draw(st.integers(1, 3))):
            if data.draw(st.booleans()):
                feed.expect(data.draw(st.lists(st.integers(0, n - 1), max_size=2 * n)))
            wanted = data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=12, unique=True))
            before, most = objects.gets, feed.n_gets(wanted)
            ahead = feed_module.CACHE_BYTES == 10**7 and data.draw(st.booleans())
            for index in sorted(wanted):
                if ahead:
                    feed.prefetch(index)
                assert is_minibatch(feed.get(index), index)
                assert feed.has(index)
            feed._reading.submit(bool).result()  # after all that is on its way
            assert objects.gets - before <= most
        feed.close()


def test_a_worker_reads_its_share_in_few_requests(objects: MemoryObjects, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = packed(objects, monkeypatch, 10**6, 2000)
    feed = MinibatchFeed(objects, manifest)
    share = range(8, 24)
    feed.expect(share)
    assert [is_minibatch(feed.get(index), index) for index in share] == [True] * 16
    per_run = 2000 // manifest.minibatch_bytes
    assert objects.gets == 1 + 1 + -(-(16 - max(500 // manifest.minibatch_bytes, 1)) // per_run)
    assert objects.gets <= most_gets(manifest.n_minibatches, RATINGS.most_bytes, 2)
    assert feed.n_gets(share) == 0
    for index in share:
        feed.prefetch(index)
        feed.get(index)
    feed.close()
    assert objects.gets == 1 + 1 + -(-(16 - max(500 // manifest.minibatch_bytes, 1)) // per_run)


def test_a_small_bundle_is_read_in_one_request(objects: MemoryObjects, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = packed(objects, monkeypatch, 10**6, 2000)
    monkeypatch.setattr(feed_module, "SMALL_BYTES", 10**6)
    feed = MinibatchFeed(objects, manifest)
    feed.expect(range(8, 24))
    assert [is_minibatch(feed.get(index), index) for index in range(32)] == [True] * 32
    feed.close()
    assert objects.gets == 1


def test_what_is_at_hand_is_kept_when_others_are_expected(
    objects: MemoryObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = MinibatchFeed(objects, packed(objects, monkeypatch, 10**6, 10**6))
    feed.expect(range(10))
    feed.get(3)
    feed.expect(range(20))
    assert all(feed.has(index) for index in range(10))
    assert not feed.has(10)
    assert feed.n_gets([2, 15]) == 1
    feed.close()


def test_runs_lie_within_a_bundle_and_hold_only_what_is_expected() -> None:
    manifest = Manifest("k", "ratings", "n", False, 100, 1, 100, (1, 1), 0.0, (0, 100), (0, 40, 100), 1 << 20, 1)
    runs = Runs(manifest)
    runs.expect([*range(30, 60), 70, 71, 5])
    assert runs.of(30) == runs.of(33) == (0, 30, 34)  # the first is short: training can begin
    assert runs.of(34) == (0, 34, 40)
    assert runs.of(40) == (1, 40, 56)
    assert runs.of(59) == (1, 56, 60)
    assert runs.of(70) == (1, 70, 72)
    assert runs.of(80) == (1, 80, 81)
    following = [runs.of(30)]
    while (run := runs.after(following[-1])) not in (None, following[0]):
        following.append(run)
    assert [run.first for run in following] == [30, 34, 40, 56, 70, 5]


@pytest.mark.parametrize("place", ["index", "minibatch"])
@pytest.mark.parametrize("n_damaged", [1, 2, 3, 4])
def test_what_is_damaged_is_read_again_and_then_named(
    objects: MemoryObjects, monkeypatch: pytest.MonkeyPatch, place: str, n_damaged: int
) -> None:
    manifest = packed(objects, monkeypatch, 10**6, 10**6)
    whole, left = objects.get, [n_damaged]

    def damaged(key: str, first: int = 0, end: int | None = None) -> bytes:
        blob = bytearray(whole(key, first, end))
        if (first == 0) == (place == "index") and left[0]:
            left[0] -= 1
            blob[100] ^= 1
        return bytes(blob)

    monkeypatch.setattr(objects, "get", damaged)
    feed = MinibatchFeed(objects, manifest)
    feed.expect(range(8))
    if n_damaged < 3:
        assert is_minibatch(feed.get(0), 0)
    else:
        with pytest.raises(RunError, match=rf"'{manifest.object_key(0)}' is damaged .*CRC32C.*delete its folder"):
            feed.get(0)
    feed.close()


@pytest.mark.parametrize("failure", ["missing", "short", "unreachable"])
def test_what_cannot_be_read_is_named(objects: MemoryObjects, monkeypatch: pytest.MonkeyPatch, failure: str) -> None:
    manifest = packed(objects, monkeypatch, 10**6, 10**6)
    key = manifest.object_key(0)

    def unreachable(key: str, first: int = 0, end: int | None = None) -> bytes:
        raise ServiceError("no route to host")

    if failure == "missing":
        objects.delete([key])
    elif failure == "short":
        objects.blobs[key] = objects.blobs[key][:-20]
    else:
        monkeypatch.setattr(objects, "get", unreachable)
    feed = MinibatchFeed(objects, manifest)
    feed.expect(range(manifest.n_minibatches))
    what = {"missing": "is missing", "short": "it ends after", "unreachable": "no route to host"}[failure]
    with pytest.raises(RunError, match=rf"'{key}'.*{what}"):
        feed.get(manifest.n_minibatches - 1)
    feed.close()


def test_a_bundle_of_other_minibatches_is_refused(objects: MemoryObjects, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = packed(objects, monkeypatch, 3000, 10**6)
    objects.blobs[manifest.object_key(0)] = objects.blobs[manifest.object_key(1)]
    feed = MinibatchFeed(objects, manifest)
    with pytest.raises(RunError, match="is damaged"):
        feed.get(0)
    feed.close()
