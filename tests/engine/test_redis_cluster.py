"""A Redis in cluster mode: a run's keys lie together on one of its servers, whichever the URL names."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from engine.jobs import finish, job
from servers import PrivateRedisProcess

from mlless_nb.bus.cluster import node_of
from mlless_nb.exchange.protocol import key_prefix

pytestmark = pytest.mark.long

PASSWORD = "s3cret"
#: Longest wait for two servers to agree, seconds.
AGREE_S = 60.0


@pytest.fixture(scope="module")
def cluster(redis_program: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """The URLs of the two servers of a cluster; each has half of the keys."""
    servers = []
    for _ in range(2):
        server = PrivateRedisProcess(redis_program, tmp_path_factory.mktemp("cluster"), PASSWORD)
        server.command += ["--cluster-enabled", "yes"]
        server.start()
        servers.append(server)
    clients = [redis.Redis.from_url(server.url) for server in servers]
    for client, slots in zip(clients, ((0, 8191), (8192, 16383)), strict=True):
        client.execute_command("CLUSTER ADDSLOTSRANGE", *slots)
    clients[0].execute_command("CLUSTER MEET", "127.0.0.1", servers[1].port)
    give_up_at = time.monotonic() + AGREE_S
    while not all(client.execute_command("CLUSTER INFO")["cluster_state"] == "ok" for client in clients):
        assert time.monotonic() < give_up_at
        time.sleep(0.05)
    yield [server.url for server in servers]
    for server in servers:
        server.kill()


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
