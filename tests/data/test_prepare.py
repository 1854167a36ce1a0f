"""Packing: what lies in the object storage afterwards, and when nothing needs to be written."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from mlless_nb import datasets
from mlless_nb.data import prepare
from mlless_nb.data.bundle import encode_head
from mlless_nb.data.dataset import Dataset
from mlless_nb.data.minibatches import Minibatch
from mlless_nb.data.prepare import Manifest, most_bundles, pack, packed
from mlless_nb.errors import DataError, DecodeError, ServiceError
from mlless_nb.storage.objects import MemoryObjects
from mlless_nb.worker.minibatch_loader import MinibatchFeed


@pytest.fixture(params=["ratings", "csr"])
def dataset(request: pytest.FixtureRequest) -> Dataset:
    if request.param == "ratings":
        return datasets.synthetic_ratings(40, 30, 500, rank=3, seed=1)
    return datasets.synthetic_clicks(500, n_features=200, seed=1)


def stored(objects: MemoryObjects, manifest: Manifest) -> list[Minibatch]:
    """All minibatches as a worker reads them."""
    feed = MinibatchFeed(objects, manifest)
    feed.expect(range(manifest.n_minibatches))
    minibatches = [feed.get(index) for index in range(manifest.n_minibatches)]
    feed.close()
    return minibatches


def same_minibatches(some: Iterable[Minibatch], others: Iterable[Minibatch]) -> None:
    for one, other in zip(some, others, strict=True):
        for name, array in vars(other).items():
            np.testing.assert_array_equal(getattr(one, name), array)


def test_minibatches_and_a_manifest_are_written(dataset: Dataset) -> None:
    objects = MemoryObjects()
    manifest = pack(dataset, 64, 0, objects)
    assert (manifest.n, manifest.size, manifest.n_minibatches) == (500, 64, 8)
    assert (manifest.kind, manifest.shape, manifest.mean) == (dataset.kind, dataset.shape, dataset.mean)
    assert manifest.is_synthetic
    assert list(objects.blobs) == [f"datasets/{manifest.key}/last"]
    assert objects.puts == 1
    same_minibatches(stored(objects, manifest), dataset.minibatches(64, 0))


def test_large_data_is_in_several_bundles_and_the_manifest_in_the_last(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepare, "BUNDLE_BYTES", 3000)
    objects = MemoryObjects()
    manifest = pack(dataset, 16, 0, objects)
    n_bundles = len(manifest.bundles) - 1
    assert n_bundles > 2
    assert sorted(objects.blobs) == [manifest.object_key(number) for number in range(n_bundles)]
    assert list(objects.blobs)[-1].endswith("/last")
    assert all(3000 <= len(blob) < 3000 + 2 * manifest.minibatch_bytes for blob in list(objects.blobs.values())[:-1])
    assert objects.puts == n_bundles <= most_bundles(dataset, 16)
    assert packed(dataset, 16, 0, objects) == manifest
    same_minibatches(stored(objects, manifest), dataset.minibatches(16, 0))


@pytest.mark.parametrize(("n_cutters", "lot"), [(1, 1), (1, 4), (4, 1), (3, 5)])
def test_what_is_stored_does_not_depend_on_threads(
    dataset: Dataset, n_cutters: int, lot: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects, others = MemoryObjects(), MemoryObjects()
    pack(dataset, 16, 0, objects)
    monkeypatch.setattr(prepare, "N_CUTTERS", n_cutters)
    monkeypatch.setattr(prepare, "LOT", lot)
    pack(dataset, 16, 0, others)
    assert objects.blobs == others.blobs


def test_several_bundles_are_on_their_way_at_once(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(MemoryObjects):
        """Each of the first ones waits for the others."""

        def __init__(self) -> None:
            super().__init__()
            self.together = threading.Barrier(prepare.N_STORED)

        def put(self, key: str, blob: bytes) -> None:
            if any(key.endswith(f"/{number:06d}") for number in range(prepare.N_STORED)):
                self.together.wait(60)
            super().put(key, blob)

    monkeypatch.setattr(prepare, "BUNDLE_BYTES", 1000)
    monkeypatch.setattr(prepare, "LOT", 1)
    objects = Slow()
    manifest = pack(dataset, 16, 0, objects)
    assert len(manifest.bundles) - 2 >= prepare.N_STORED
    same_minibatches(stored(objects, manifest), dataset.minibatches(16, 0))


def test_a_manifest_that_lies_behind_a_long_index_is_found(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "GLANCE_BYTES", 64)
    objects = MemoryObjects()
    manifest = pack(dataset, 16, 0, objects)
    assert packed(dataset, 16, 0, objects) == manifest


def test_a_storage_that_fails_ends_packing(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(MemoryObjects):
        def put(self, key: str, blob: bytes) -> None:
            raise ServiceError("no space left")

    monkeypatch.setattr(prepare, "BUNDLE_BYTES", 3000)
    with pytest.raises(ServiceError, match="no space left"):
        pack(dataset, 16, 0, Full())


def test_packing_the_same_data_again_writes_nothing(dataset: Dataset) -> None:
    objects = MemoryObjects()
    assert packed(dataset, 64, 0, objects) is None
    manifest = pack(dataset, 64, 0, objects)
    puts = objects.puts
    assert packed(dataset, 64, 0, objects) == manifest
    assert pack(dataset, 64, 0, objects) == manifest
    assert objects.puts == puts


@pytest.mark.parametrize("other", [(32, 0), (64, 1), (64, None)])
def test_another_size_or_seed_is_packed_beside_it(dataset: Dataset, other: tuple[int, int | None]) -> None:
    objects = MemoryObjects()
    manifest = pack(dataset, 64, 0, objects)
    assert pack(dataset, *other, objects).key != manifest.key


def test_the_name_is_that_of_the_dataset_at_hand(dataset: Dataset) -> None:
    objects = MemoryObjects()
    manifest = pack(dataset, 64, 0, objects)
    dataset.name = "another name"
    again = pack(dataset, 64, 0, objects)
    assert (again.name, again.key) == ("another name", manifest.key)


def test_a_packing_that_was_cut_short_is_done_anew(dataset: Dataset) -> None:
    objects = MemoryObjects()
    manifest = pack(dataset, 64, 0, objects)
    blobs = dict(objects.blobs)
    objects.delete([manifest.object_key(0)])
    assert pack(dataset, 64, 0, objects) == manifest
    assert objects.blobs == blobs


HEAD = encode_head(0, [8] * 8)


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"MLLB",
        HEAD,
        *(encode_head(0, [8] * 8, told) for told in (b"{", b"[]", b"null", b"\xff\xfe", b'{"key": 1}')),
    ],
)
def test_a_damaged_manifest_is_packed_anew(dataset: Dataset, damage: bytes) -> None:
    objects = MemoryObjects()
    manifest = pack(dataset, 64, 0, objects)
    objects.put(f"datasets/{manifest.key}/last", damage)
    assert packed(dataset, 64, 0, objects) is None
    assert pack(dataset, 64, 0, objects) == manifest


def test_fewer_rows_than_a_minibatch_are_one_minibatch_of_their_own_size(dataset: Dataset) -> None:
    manifest = pack(dataset, 1000, 0, MemoryObjects())
    assert (manifest.size, manifest.n_minibatches) == (500, 1)


def test_a_size_that_makes_no_sense_is_refused(dataset: Dataset) -> None:
    with pytest.raises(DataError, match="minibatch=0"):
        pack(dataset, 0, 0, MemoryObjects())


def test_a_manifest_comes_back_from_json(dataset: Dataset) -> None:
    manifest = pack(dataset, 64, 0, MemoryObjects())
    assert Manifest.from_json(json.loads(json.dumps(manifest.to_json()))) == manifest


@pytest.mark.parametrize(
    "change",
    [
        {"n": 0},
        {"n": -5},
        {"n": "500"},
        {"n": True},
        {"n_minibatches": 9},
        {"size": 0},
        {"shape": [40]},
        {"shape": [40, 0]},
        {"kind": "other"},
        {"kind": ["ratings"]},
        {"mean": None},
        {"key": 5},
        {"minibatch_bytes": 0},
        {"bundles": [0]},
        {"bundles": [0, 9]},
        {"bundles": [0, 3, 3, 8]},
        {"bundles": [0, 5, 3, 8]},
        {"bundles": [0, "3", 8]},
        {"is_synthetic": 1},
        {"more": 1},
    ],
)
def test_a_manifest_that_makes_no_sense_is_refused(change: dict[str, Any]) -> None:
    ratings = datasets.synthetic_ratings(40, 30, 500, rank=3, seed=1)
    spec = pack(ratings, 64, 0, MemoryObjects()).to_json()
    with pytest.raises(DecodeError):
        Manifest.from_json({**spec, **change})


@pytest.mark.parametrize("n_shards", [2, 3, 7])
def test_ratings_partitioned_by_user_are_packed_a_shard_after_the_other(n_shards: int) -> None:
    ratings = datasets.synthetic_ratings(40, 30, 500, rank=3, seed=1)
    owners, objects = ratings.owners(n_shards), MemoryObjects()
    manifest = pack(ratings, 16, 0, objects, owners)
    assert (manifest.n_shards, manifest.shards[0], manifest.shards[-1]) == (n_shards, 0, manifest.n_minibatches)
    assert Manifest.from_json(json.loads(json.dumps(manifest.to_json()))) == manifest
    assert packed(ratings, 16, 0, objects, owners) == manifest
    assert packed(ratings, 16, 0, objects) is None
    counts, all_stored = [], stored(objects, manifest)
    for shard in range(n_shards):
        minibatches = [all_stored[index] for index in manifest.shard(shard)]
        users = np.concatenate([minibatch.ids[minibatch.user] for minibatch in minibatches])
        assert set(owners[users]) == {shard}
        counts.append(len(users))
    assert sum(counts) == 500
    assert max(counts) - min(counts) <= 0.2 * 500


@pytest.mark.parametrize("shards", [[], [0], [1, 8], [0, 7], [0, 5, 3, 8], [0, 1.5, 8], "08", None, [0, True, 8]])
def test_a_manifest_with_wrong_shards_is_refused(shards: Any) -> None:
    manifest = pack(datasets.synthetic_ratings(40, 30, 500, rank=3, seed=1), 64, 0, MemoryObjects())
    with pytest.raises(DecodeError, match="shards"):
        Manifest.from_json({**manifest.to_json(), "shards": shards})
