"""Packing: what lies in the object storage afterwards, and when nothing needs to be written."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from mlless_nb import datasets
from mlless_nb.data.dataset import Dataset
from mlless_nb.data.minibatches import decode_minibatch
from mlless_nb.data.prepare import Manifest, pack, packed
from mlless_nb.errors import DataError, DecodeError
from mlless_nb.objects import MemoryObjects


@pytest.fixture(params=["ratings", "csr"])
def dataset(request: pytest.FixtureRequest) -> Dataset:
    if request.param == "ratings":
        return datasets.synthetic_ratings(40, 30, 500, rank=3, seed=1)
    return datasets.synthetic_clicks(500, n_features=200, seed=1)


def test_minibatches_and_a_manifest_are_written(dataset: Dataset) -> None:
    objects = MemoryObjects()
    manifest = pack(dataset, 64, 0, objects)
    assert (manifest.n, manifest.size, manifest.n_minibatches) == (500, 64, 8)
    assert (manifest.kind, manifest.shape, manifest.mean) == (dataset.kind, dataset.shape, dataset.mean)
    assert manifest.is_synthetic
    assert sorted(objects.blobs) == [
        *(f"datasets/{manifest.key}/{index:06d}" for index in range(8)),
        f"datasets/{manifest.key}/manifest.json",
    ]
    n_rows = sum(dataset.shape) if dataset.kind == "ratings" else dataset.shape[0] + 1
    for index, minibatch in enumerate(dataset.minibatches(64, 0)):
        stored = decode_minibatch(objects.get(manifest.object_key(index)), n_rows)
        for name, array in vars(minibatch).items():
            np.testing.assert_array_equal(getattr(stored, name), array)


def test_the_manifest_is_written_last(dataset: Dataset) -> None:
    objects = MemoryObjects()
    pack(dataset, 64, 0, objects)
    assert list(objects.blobs)[-1].endswith("/manifest.json")


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
    objects.delete([f"datasets/{manifest.key}/manifest.json", manifest.object_key(3)])
    assert pack(dataset, 64, 0, objects) == manifest
    assert objects.blobs == blobs


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"key": 1}'])
def test_a_damaged_manifest_is_packed_anew(dataset: Dataset, damage: bytes) -> None:
    objects = MemoryObjects()
    manifest = pack(dataset, 64, 0, objects)
    objects.put(f"datasets/{manifest.key}/manifest.json", damage)
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
    counts = []
    for shard in range(n_shards):
        minibatches = [decode_minibatch(objects.get(manifest.object_key(index)), 70) for index in manifest.shard(shard)]
        users = np.concatenate([minibatch.rows[minibatch.user] for minibatch in minibatches])
        assert set(owners[users]) == {shard}
        counts.append(len(users))
    assert sum(counts) == 500
    assert max(counts) - min(counts) <= 0.2 * 500


@pytest.mark.parametrize("shards", [[], [0], [1, 8], [0, 7], [0, 5, 3, 8], [0, 1.5, 8], "08", None, [0, True, 8]])
def test_a_manifest_with_wrong_shards_is_refused(shards: Any) -> None:
    manifest = pack(datasets.synthetic_ratings(40, 30, 500, rank=3, seed=1), 64, 0, MemoryObjects())
    with pytest.raises(DecodeError, match="shards"):
        Manifest.from_json({**manifest.to_json(), "shards": shards})
