"""What is left of a run is counted, on a real server and real processes, and told with what removes it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import redis

from mlless_nb.driver.ending import remains, teardown
from mlless_nb.driver.ending.remains import Remains
from mlless_nb.telemetry.left import words

KEYS = ("mlless:{run}:job", "mlless:{run}:bus:driver")


@pytest.fixture
def function() -> Iterator[subprocess.Popen[bytes]]:
    """A process in a group of its own, as functions are."""
    asleep = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(asleep, stdin=subprocess.PIPE, start_new_session=True) as process:
        yield process
        process.kill()


def services(tmp_path: Path, urls: tuple[str, ...] = (), *, is_local: bool = True, **launcher: Any) -> Any:
    """Those of a run whose functions, or whose objects, are on this machine."""
    known = {"process_groups": [], "temporary_paths": [], "place": ("localhost" if is_local else "aws_s3", "bucket")}
    there = SimpleNamespace(is_local=is_local, folder_of=lambda key: str(tmp_path / key), **(known | launcher))
    return SimpleNamespace(launcher=there, redis_urls=list(urls), bus_url=urls[0] if urls else "", embedded=None)


def test_what_is_there_is_counted_by_its_kind(
    redis_url: str, tmp_path: Path, function: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = redis.Redis.from_url(redis_url)
    for key in (*KEYS, "mlless:{another}:job"):
        client.set(key, "")
    (tmp_path / "runs" / "run" / "frames").mkdir(parents=True)
    (tmp_path / "runs" / "run" / "frames" / "1").touch()
    (tmp_path / "runs" / "run" / "model").touch()
    (tmp_path / "job.done").touch()
    paths = [str(tmp_path / "job.done"), str(tmp_path / "job.log")]
    monkeypatch.setattr(remains, "GONE_S", 0.0)
    monkeypatch.setattr(redis.Redis, "unlink", lambda *_: 0)  # they are written again and again
    there = Remains(services(tmp_path, (redis_url,), process_groups=[function.pid], temporary_paths=paths), "run")
    left = {"processes": 1, "keys": 2, "queues": 0, "objects": 2, "files": 1}  # topics on Redis are keys
    assert there.count(1, with_objects=True) == left
    del left["objects"]  # they stay on purpose
    assert there.count(1, with_objects=False) == left


def test_processes_that_were_killed_and_keys_that_came_late_are_not_left(
    redis_url: str, tmp_path: Path, function: subprocess.Popen[bytes]
) -> None:
    client = redis.Redis.from_url(redis_url)
    for key in (*KEYS, "mlless:{another}:job"):
        client.set(key, "")
    there = Remains(services(tmp_path, (redis_url,), process_groups=[function.pid]), "run")
    function.kill()
    assert set(there.count(0, with_objects=True).values()) == {0}
    assert client.keys("*") == [b"mlless:{another}:job"]


def test_elsewhere_only_what_answers_at_once_is_looked_for(
    redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = services(tmp_path, (redis_url,), is_local=False)
    assert Remains(there, "run").count(0, with_objects=True) == {"keys": 0, "queues": 0}
    redis.Redis.from_url(redis_url).set("another", "")
    monkeypatch.setattr(remains, "MOST_KEYS", 0)
    assert Remains(there, "run").count(0, with_objects=True) == {"queues": 0}
    without = services(tmp_path, ("redis://127.0.0.1:1",), is_local=False)
    assert Remains(without, "run").count(2, with_objects=True) == {"queues": 2}
    without.bus_url = "amqp://127.0.0.1:1"
    assert Remains(without, "run").count(1, with_objects=True) == {"queues": 1}
    without.embedded = SimpleNamespace(is_alive=False)  # the keys are gone with their private server
    assert Remains(without, "run").count(0, with_objects=True) == {"keys": 0, "queues": 0}


@pytest.mark.parametrize(
    ("failed", "left", "said"),
    [
        ([], {"processes": 0, "keys": 0}, "Everything is shut down"),
        ([], {}, "Everything is shut down"),
        ([], {"keys": 1}, "All functions are shut down; 1 key is left: %mlless clean removes it"),
        (
            ["objects could not be removed (ServiceError)"],
            {"processes": 2, "keys": 0, "files": 1},
            "Not everything is shut down; objects could not be removed (ServiceError); 2 processes and 1 temporary file"
            " are left: %mlless clean removes them",
        ),
        (["the bus"], {"queues": 0}, "All functions are shut down; the bus"),
    ],
)
def test_the_last_line_says_what_is_left_and_what_removes_it(
    failed: list[str], left: dict[str, int], said: str
) -> None:
    assert teardown.outcome(failed, left) == said


def test_all_that_was_looked_for_in_words() -> None:
    assert words({"files": 0, "keys": 0, "processes": 1}, zeros=True) == "1 process, 0 keys and 0 temporary files"
    assert words({"keys": 0}) == words({}, zeros=True) == ""
