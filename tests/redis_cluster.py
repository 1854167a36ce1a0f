"""A Redis in cluster mode of two servers, each with half of the keys and a password."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import redis
from servers import PrivateRedisProcess

PASSWORD = "s3cret"
#: Longest wait for two servers to agree, seconds.
AGREE_S = 60.0


@contextlib.contextmanager
def started(program: str, new_folder: Callable[[str], Path]) -> Iterator[list[str]]:
    """The URLs of both servers."""
    servers = []
    for _ in range(2):
        server = PrivateRedisProcess(program, new_folder("cluster"), PASSWORD)
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
