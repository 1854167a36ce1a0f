"""A Redis in cluster mode: a run's keys lie together on one of its servers, whichever the URL names."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from engine.jobs import finish, job
from redis_cluster import started

from mlless_nb.bus.cluster import node_of
from mlless_nb.exchange.protocol import key_prefix

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def cluster(redis_program: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """The URLs of its servers, on which nothing but these tests writes."""
    with started(redis_program, tmp_path_factory.mktemp) as urls:
        yield urls


def keys_of(url: str) -> set[Any]:
    with contextlib.closing(redis.Redis.from_url(url)) as client:
        return set(client.keys("*"))


def test_each_run_has_the_server_that_keeps_its_keys(cluster: list[str]) -> None:
    found = {node_of(cluster[0], key_prefix(f"job-{number}")) for number in range(20)}
    assert found == set(cluster)
    assert {node_of(cluster[1], key_prefix(f"job-{number}")) for number in range(20)} == found


def test_a_run_on_a_cluster_gives_the_same_model_and_leaves_nothing(cluster: list[str]) -> None:
    here = finish(job())
    for url in cluster:
        run = finish(job(redis=url))
        assert run.telemetry.state.status == "finished", run.reason
        assert all((run.model.params[name] == here.model.params[name]).all() for name in here.model.params)
    assert [keys_of(url) for url in cluster] == [set(), set()]
