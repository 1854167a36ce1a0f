"""A job's Redis user: functions reach the job's keys and nothing else, and it goes when the run does."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from engine.jobs import PATIENCE_S, digest, finish, job, wait_for_step
from folders import paths_below
from servers import PrivateRedisProcess, RedisProcess

import mlless_nb
from mlless_nb import JobError, Stop
from mlless_nb.driver.servers import redis_user
from mlless_nb.driver.servers.redis_user import RedisUser, remove_left
from mlless_nb.driver.servers.services import Services
from mlless_nb.exchange import RedisCoordinator
from mlless_nb.exchange.redis.client import connect

PASSWORD = "planted-redis-password"


@pytest.fixture(scope="module")
def private_redis(redis_program: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateRedisProcess]:
    """A Redis with a password."""
    server = PrivateRedisProcess(redis_program, tmp_path_factory.mktemp("private-redis"), PASSWORD)
    server.start()
    yield server
    server.kill()


def users(url: str) -> set[str]:
    """The users that this package has made on the server."""
    with redis.Redis.from_url(url) as client:
        return {str(name) for name in client.acl_users() if str(name).startswith(redis_user.PREFIX)}


def is_in(path: Path, text: str) -> bool:
    """Whether ``path`` is a file with ``text`` in it; its owner may remove it meanwhile."""
    with contextlib.suppress(OSError):
        return path.is_file() and text.encode() in path.read_bytes()
    return False


def test_a_job_reaches_its_own_keys_and_no_other(private_redis: PrivateRedisProcess) -> None:
    job_id, url = uuid.uuid4().hex, private_redis.url
    user = RedisUser(job_id)
    assert user.make(url) == ""
    told = user.url_for_functions(url)
    assert PASSWORD not in told
    with redis.Redis.from_url(url) as client:
        client.set("mlless:{other}:job", "theirs")
        client.set("somebody's", "theirs")
    own = RedisCoordinator([told], job_id, "1", "nonce")
    RedisCoordinator([url], job_id, "1", "driver").create(cap_nusd=100, reserved_nusd=1)
    assert own.claim(0)
    assert own.reserve(5) == 5
    assert own.read_plan().version == 0
    own.renew("0", 5.0)
    own.abort("why", 1)
    assert own.aborted() == ("failed", "why")
    own.close()
    with redis.Redis.from_url(told) as client:
        for command in (
            ("GET", "mlless:{other}:job"),
            ("SET", "somebody's", "ours"),
            ("EVAL", "return redis.call('GET', KEYS[1])", "1", "mlless:{other}:job"),
            ("EVAL", "return redis.call('GET', 'mlless:{other}:job')", "0"),
            ("KEYS", "*"),
            ("SCAN", "0"),
            ("RANDOMKEY",),
            ("FLUSHALL",),
            ("FLUSHDB",),
            ("CONFIG", "GET", "*"),
            ("ACL", "LIST"),
            ("ACL", "SETUSER", "me", "on"),
            ("CLIENT", "LIST"),
            ("MONITOR",),
            ("SHUTDOWN",),
            ("DEBUG", "SLEEP", "0"),
            ("SCRIPT", "FLUSH"),
            ("SWAPDB", "0", "1"),
            ("MOVE", f"mlless:{{{job_id}}}:job", "1"),
            ("PUBLISH", "channel", "message"),
            ("REPLICAOF", "NO", "ONE"),
        ):
            with pytest.raises(redis.ResponseError, match=r"(?i)permission|access|not allowed"):
                client.execute_command(*command)
    user.remove()
    assert not users(url)
    with redis.Redis.from_url(told) as client, pytest.raises(redis.AuthenticationError):
        client.ping()
    RedisCoordinator([url], job_id, "1").delete()


def test_a_run_has_a_user_while_it_is_there(private_redis: PrivateRedisProcess) -> None:
    run = mlless_nb.train(job(redis=private_redis.url, stop=Stop(steps=10**6), pattern="broadcast"))
    wait_for_step(run, 3)
    assert users(private_redis.url) == {f"mlless-0-{run.id}"}
    with redis.Redis.from_url(private_redis.url) as client:
        named = {entry.get("user") for entry in client.client_list()}
    assert f"mlless-0-{run.id}" in named
    run.stop()
    run.wait(PATIENCE_S)
    assert run.status == "stopped", run.reason
    assert not users(private_redis.url)
    with redis.Redis.from_url(private_redis.url) as client:
        assert not client.keys(f"mlless:{{{run.id}}}:*")


@pytest.mark.long
def test_it_has_the_bits_of_a_run_on_the_private_server(private_redis: PrivateRedisProcess) -> None:
    """Seals and the job's user change nothing else."""
    private, given = finish(job(pattern="broadcast")), finish(job(pattern="broadcast", redis=private_redis.url))
    assert given.status == "finished", given.reason
    assert digest(given) == digest(private)


def test_where_no_user_can_be_made_it_is_said_once(private_redis: PrivateRedisProcess) -> None:
    with redis.Redis.from_url(private_redis.url) as client:
        client.execute_command("ACL SETUSER", "given", "on", ">given-password", "~*", "&*", "+@all", "-acl")
    host = private_redis.url.rpartition("@")[2]
    run = finish(job(redis=f"redis://given:given-password@{host}", stop=Stop(steps=5)))
    assert run.status == "finished", run.reason
    told = [event.text for event in run.telemetry.state.events if "makes no user for the run" in event.text]
    assert len(told) == 1
    assert "given:***@" in told[0]
    assert "functions have the given one" in told[0]
    assert not users(private_redis.url)
    with redis.Redis.from_url(private_redis.url) as client:
        client.acl_deluser("given")


def test_users_of_old_jobs_are_removed_by_the_next(private_redis: PrivateRedisProcess) -> None:
    url, old, live = private_redis.url, RedisUser("old"), RedisUser("live")
    assert (old.make(url), live.make(url)) == ("", "")
    with redis.Redis.from_url(url) as client:
        client.delete("mlless:{old}:user")  # it has expired
        assert remove_left(client) == ["mlless-0-old"]
    assert users(url) == {"mlless-0-live"}
    live.remove()
    live.remove()
    with redis.Redis.from_url(url) as client:
        client.delete("mlless:{other}:job", "somebody's")


def test_a_user_that_a_restarted_server_has_lost_is_made_again(redis_program: str, tmp_path: Path) -> None:
    server = RedisProcess(redis_program, tmp_path)
    server.start()
    user = RedisUser("restarted")
    assert user.make(server.url) == ""
    told = user.url_for_functions(server.url)
    server.kill()
    user.keep()  # there is no server: nothing happens
    server.start()
    assert not users(server.url)
    user.keep()
    with redis.Redis.from_url(told) as client:
        assert client.ping()
    user.remove()
    server.kill()


def test_a_killed_driver_leaves_no_user(private_redis: PrivateRedisProcess, tmp_path: Path) -> None:
    """The watchdog removes it with the keys; the password is in no file and no command line."""
    code = (
        "import sys, time; sys.path[:0] = sys.argv[2:]\n"
        "from engine.jobs import job\nimport mlless_nb\nfrom mlless_nb import Stop\n"
        "run = mlless_nb.train(job(redis=sys.argv[1], stop=Stop(steps=100000)))\n"
        "seen = 0\n"
        "while run.telemetry.state.step < 3: seen = run.telemetry.wait_for_change(seen, 60)\n"
        "print(run.id, flush=True); time.sleep(600)\n"
    )
    folder = tmp_path / "temporary"
    folder.mkdir()
    driver = subprocess.Popen(
        [sys.executable, "-P", "-c", code, private_redis.url, str(Path(__file__).parents[2])],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(folder)},
    )
    assert driver.stdout is not None
    run_id = driver.stdout.readline().strip()
    try:
        assert users(private_redis.url) == {f"mlless-0-{run_id}"}
        # What is on disk now: Lithops' payload, with the job's own user.
        assert not [path for path in paths_below(folder) if is_in(path, PASSWORD)]
    finally:
        driver.send_signal(signal.SIGKILL)
        driver.wait()
    give_up_after = 600
    with redis.Redis.from_url(private_redis.url) as client:
        while (users(private_redis.url) or client.keys(f"mlless:{{{run_id}}}:*")) and give_up_after:
            give_up_after -= 1
            client.blpop(["nothing"], 0.1)
    assert give_up_after, (users(private_redis.url), json.dumps(run_id))


def test_a_redis_without_room_is_refused_with_numbers(private_redis: PrivateRedisProcess) -> None:
    with redis.Redis.from_url(private_redis.url) as client:
        client.config_set("maxmemory", "8mb")
        try:
            services = Services(job(redis=private_redis.url), "room")
            with pytest.raises(JobError, match=r"redis=.*room for 20\.0 MB.*MB left of 8\.\d MB"):
                services.check_room(20_000_000)
            services.close()
            run = finish(job(redis=private_redis.url, stop=Stop(steps=5)))
            assert run.status == "failed"
            assert "room for" in run.reason
            assert PASSWORD not in run.reason
            client.config_set("maxmemory", "200mb")
            assert finish(job(redis=private_redis.url, stop=Stop(steps=5))).status == "finished"
        finally:
            client.config_set("maxmemory", "0")
    assert not users(private_redis.url)
    with connect(private_redis.url) as client:
        assert not client.keys("mlless:*")
