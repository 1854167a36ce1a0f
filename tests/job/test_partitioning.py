"""Rows or users: which of them are sharded where a job leaves it open, and what is then exchanged."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from engine.jobs import job, ratings
from scipy.sparse import csr_array

from mlless_nb import BSP, ISP, SGD, SSP, AdaGrad, Adam, JobError, LogisticRegression, datasets
from mlless_nb.data.prepare import Manifest
from mlless_nb.driver.launch.data_preparation import JobData
from mlless_nb.job.partitioning import exchanged_bytes, growth, is_by_user
from mlless_nb.storage.objects import MemoryObjects

N_USERS, N_ITEMS = 200, 100
CLICKS = {"model": LogisticRegression(), "data": datasets.synthetic_clicks(4000, n_features=300, seed=2)}


def one_user_rates_most() -> Any:
    """Ratings of 50 users x 100 items; the first user rated all items, the others four each."""
    users = np.concatenate([np.zeros(100, int), np.repeat(np.arange(1, 50), 4)])
    items = np.concatenate([np.arange(100), np.tile(np.arange(4), 49)])
    return datasets.ratings(users, items, users % 5)


def packed(**changes: Any) -> Manifest:
    """How the data of a job is packed."""
    manifests = JobData(job(**changes)).pack(MemoryObjects(), lambda: False)
    assert manifests is not None
    return manifests[0]


@pytest.mark.parametrize("workers", [2, 4, 7])
def test_users_are_sharded_where_that_is_the_same_descent(workers: int) -> None:
    assert is_by_user(job(workers=workers, minibatch=50))
    assert packed(workers=workers, minibatch=50).n_shards == workers


@pytest.mark.parametrize(
    "changes",
    [
        {"workers": 1},
        {"partition": "rows"},
        {"optimizer": Adam(0.01)},
        {"optimizer": AdaGrad(0.1)},
        {"optimizer": SGD(0.02, per_sample=True)},
        {"local_steps": 2},
        {"sync": SSP(2)},
        {"sync": ISP(0.7, staleness=2)},
        CLICKS | {"optimizer": SGD(0.1)},
        {"data": one_user_rates_most(), "minibatch": 20},
        {"minibatch": 450},  # of 900 rows a worker: a few more, and an epoch takes three steps instead of two
    ],
    ids=str,
)
def test_else_rows_are(changes: dict[str, Any]) -> None:
    assert not is_by_user(job(**changes))
    assert packed(**changes).n_shards == 1


def test_users_are_not_sharded_where_their_residual_has_no_room() -> None:
    users = np.arange(1_000_000)
    fields = {"data": datasets.ratings(users, users % 100, users % 5), "sync": BSP(), "validation": None}
    least = {is_user: job(**fields).needed_mb(is_by_user=is_user) for is_user in (False, True)}
    assert least[False] < least[True]
    assert is_by_user(job(**fields, memory_mb=least[True]))
    assert not is_by_user(job(**fields, memory_mb=least[True] - 1))


@pytest.mark.parametrize("changes", [{"workers": 1}, {"optimizer": Adam(0.01)}, {}], ids=str)
def test_users_are_sharded_where_the_job_says_so(changes: dict[str, Any]) -> None:
    assert is_by_user(job(partition="user", **changes)) == (changes != {"workers": 1})


def test_a_worker_without_a_user_to_train_on_is_refused() -> None:
    few = datasets.ratings(np.append(np.repeat(np.arange(5), 4), 5), np.append(np.arange(20) % 4, 0), np.arange(21) % 5)
    held_out = [seed for seed in range(50) if few.split(0.2, seed)[0].n_raters == 5]
    fields = {"data": few, "workers": 6, "minibatch": 1, "validation": 0.2, "partition": "user"}
    with pytest.raises(JobError, match="at most 5, the users with ratings that are not held out"):
        JobData(job(seed=held_out[0], **fields))
    assert JobData(job(seed=next(seed for seed in range(50) if seed not in held_out), **fields))


def test_only_items_are_exchanged_while_users_have_owners() -> None:
    dense = {"sync": ISP(0.0), "optimizer": SGD(1.0, momentum=0.9)}
    _, width = job().model.table_shape(ratings().shape)
    for partition, n_rows in (("rows", N_USERS + N_ITEMS), ("user", N_ITEMS)):
        given = job(partition=partition, **dense)
        update, whole = exchanged_bytes(given, packed(partition=partition, **dense))
        assert whole == 4 * n_rows * width
        assert 0 < update <= whole


def test_updates_together_have_fewer_rows_than_their_growth_says() -> None:
    fields = {**CLICKS, "data": datasets.synthetic_clicks(4000, n_features=20_000, seed=2), "minibatch": 50}
    given = job(**fields)
    power = growth(given, packed(**fields))
    assert 0 < power < 1
    X, n = given.data.X, given.minibatch
    alone = len(np.unique(X[:n].indices))
    for n_workers in (2, 4):
        together = len(np.unique(X[: n_workers * n].indices))
        assert alone < together < alone * n_workers**power


@pytest.mark.parametrize(("per_row", "expected"), [(1, 1.0), (100, 0.0)], ids=["no id twice", "all ids in all rows"])
def test_growth_is_between_that_of_equal_and_of_different_rows(per_row: int, expected: float) -> None:
    columns = np.arange(100).repeat(per_row) if per_row == 1 else np.tile(np.arange(100), 100)
    X = csr_array((np.ones(len(columns), np.float32), columns, np.arange(0, len(columns) + 1, per_row)), (100, 100))
    given = {**CLICKS, "data": datasets.csr(X, np.arange(100) % 2), "validation": None}
    for minibatch in (1, 20):
        found = growth(job(**given, minibatch=minibatch), packed(**given, minibatch=minibatch))
        assert found == pytest.approx(expected if minibatch > 1 else 1.0)


@pytest.mark.parametrize("optimizer", [SGD(1.0, momentum=0.9), SGD(1.0, momentum=0.9, lazy=True)], ids=str)
def test_isp_with_threshold_0_is_expected_to_exchange_what_bsp_does(optimizer: SGD) -> None:
    bsp, isp_0, isp = (
        exchanged_bytes(job(sync=sync, optimizer=optimizer), packed(optimizer=optimizer))
        for sync in (BSP(), ISP(0.0), ISP(0.7))
    )
    assert isp_0 == bsp
    assert isp[0] < bsp[0]
