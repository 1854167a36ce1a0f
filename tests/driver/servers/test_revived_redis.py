"""The private Redis is started again where it was if it was killed, and ends with its owner all the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import redis
from driver.servers.test_embedded_redis import OWNER, ended, gone, linux, processes_of

from mlless_nb.driver.servers.embedded_redis import EmbeddedRedis


@pytest.mark.parametrize("victim", ["the server", "its watchdog"])
@linux
def test_a_server_that_was_killed_serves_again_at_the_same_place(victim: str, tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    with EmbeddedRedis() as server:
        server.add_path(tmp_path / "scratch")
        client = redis.Redis.from_url(server.url)
        process = client.info("server")["process_id"]
        server.revive()  # it lives
        assert client.info("server")["process_id"] == process
        client.set("key", "value")
        os.kill(process, signal.SIGSTOP)
        server.revive()  # it is slow
        os.kill(process, signal.SIGCONT)
        assert client.get("key") == b"value"
        (watchdog,) = (pid for pid in processes_of(server.folder) if pid != process)
        os.kill(process if victim == "the server" else watchdog, signal.SIGKILL)
        assert ended(process)
        while not server.is_alive:  # its other threads may hold the socket for a moment yet
            server.revive()
        client.connection_pool.disconnect()  # what it has is connected to the server that was killed
        assert client.get("key") is None
        assert client.info("server")["process_id"] != process
        folder = server.folder
    assert gone(folder)
    assert gone(tmp_path / "scratch")
    assert not processes_of(folder)


@linux
def test_a_server_that_was_killed_with_its_watchdog_ends_with_its_owner() -> None:
    then = "import os, signal; server = keep[0]; os.kill(server._finalizer.peek()[2][0].pid, signal.SIGKILL)\n"
    # Once it does not answer, its other threads may hold the socket for a moment yet.
    then += "while server.is_alive: pass\nwhile not server.is_alive: server.revive()\nprint('again', flush=True)"
    with subprocess.Popen(
        [sys.executable, "-c", OWNER.format(then=then)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        folder, worker, scratch, again = (owner.stdout.readline().strip() for _ in range(4))
        assert again == "again"
        assert processes_of(Path(folder))
        owner.kill()
    for path in (folder, scratch):
        assert gone(Path(path))
    assert ended(int(worker))
    assert all(map(ended, processes_of(Path(folder))))
