"""Writes on a condition, on every storage that has them: one of many writers wins, nothing is lost or read in part."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from servers import S3_BACKEND

from mlless_nb.errors import JobError
from mlless_nb.storage.clock import ServerClock, date_of
from mlless_nb.storage.conditional import Conditional, S3Conditional, check, conditional
from mlless_nb.storage.folder import Folder
from mlless_nb.storage.objects import LithopsObjects, MemoryObjects

WRITERS = 4
TESTS = Path(__file__).parents[1]


def in_folder(path: str) -> Conditional:
    """The conditional writes of a folder, as another process opens it."""
    import lithops
    from lithops.storage.backends.localhost import localhost

    localhost.LITHOPS_TEMP_DIR = path
    return conditional(
        LithopsObjects(lithops.Storage(config={"lithops": {"backend": "localhost", "storage": "localhost"}}))
    )


@pytest.fixture(params=["memory", "folder", "s3"])
def storage(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Conditional:
    """An empty storage."""
    if request.param == "memory":
        return conditional(MemoryObjects())
    import lithops
    from lithops.storage.backends.localhost import localhost

    if request.param == "s3":
        request.getfixturevalue("s3")
        return conditional(LithopsObjects(lithops.Storage(config=S3_BACKEND), "mlless-nb-test/"))
    monkeypatch.setattr(localhost, "LITHOPS_TEMP_DIR", str(tmp_path))
    return in_folder(str(tmp_path))


def test_an_object_is_made_once_and_replaced_by_who_has_read_it(storage: Conditional) -> None:
    assert storage.read("runs/a") is None
    tag = storage.swap("runs/a", b"1")
    assert tag is not None
    assert storage.swap("runs/a", b"2") is None
    found = storage.read("runs/a")
    assert found == (b"1", tag)
    newer = storage.swap("runs/a", b"3", tag)
    assert newer is not None
    assert storage.swap("runs/a", b"4", tag) is None
    assert storage.swap("runs/b", b"4", tag) is None  # there is none to replace
    assert storage.read("runs/a") == (b"3", newer)
    assert (storage.objects.gets, storage.objects.puts) == (3, 5)  # all are billed
    assert storage.objects.get("runs/a") == b"3"
    assert storage.objects.list("runs/") == ["runs/a"]


def test_the_clock_of_a_folder_goes_on_though_the_time_of_day_is_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Functions that started after it were billed from their first line on, and leases seemed to have run out."""
    monkeypatch.setattr("lithops.storage.backends.localhost.localhost.LITHOPS_TEMP_DIR", "")  # to be put back
    storage = in_folder(str(tmp_path))
    before_s = storage.now_s()
    monkeypatch.setattr(time, "time", lambda: before_s - 3600.0)
    assert 0.0 <= storage.now_s() - before_s < 60.0


def test_the_conditions_are_tried_out_and_nothing_is_left(storage: Conditional) -> None:
    check(storage, "runs/x/")
    assert storage.objects.list("") == []


def test_a_storage_that_ignores_conditions_is_refused(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import lithops

    monkeypatch.setattr(S3Conditional, "_add_headers", lambda self, params, **_: None)
    storage = conditional(LithopsObjects(lithops.Storage(config=S3_BACKEND)))
    with pytest.raises(JobError, match="aws_s3 writes no object on a condition"):
        check(storage, "runs/x/")
    assert storage.objects.list("") == []


def test_any_other_storage_is_refused_in_one_line() -> None:
    class Other:
        bucket, backend = "bucket", "swift"

    with pytest.raises(JobError, match=r"'storage' with redis='redis://\.\.\.': swift writes no object on a condition"):
        conditional(LithopsObjects(Other()))


def add(path: str, n: int) -> None:
    """Add 1 to the number in an object, ``n`` times."""
    storage = in_folder(path)
    for _ in range(n):
        while True:
            found = storage.read("runs/number")
            tag, number = (None, 0) if found is None else (found.tag, int(found.blob))
            # The same number never comes again, so that an equal tag is an equal state.
            if storage.swap("runs/number", str(number + 1).encode(), tag) is not None:
                break


def test_no_change_of_processes_that_write_at_once_is_lost(tmp_path: Path) -> None:
    script = f"import sys; sys.path.insert(0, {str(TESTS)!r}); from storage.test_conditional import add; "
    command = [sys.executable, "-c", script + f"add({str(tmp_path)!r}, 100)"]
    writers = [subprocess.Popen(command, cwd=TESTS) for _ in range(WRITERS)]
    assert [writer.wait(120) for writer in writers] == [0] * WRITERS
    folder = Folder(str(next(tmp_path.iterdir())))
    assert int(folder.get("mlless-nb/runs/number")) == 100 * WRITERS
    assert folder.list("") == ["mlless-nb/runs/number"]
    assert [name for _, _, names in os.walk(tmp_path) for name in names] == ["number"]  # no draft either


def test_one_of_many_makes_an_object_whose_folder_others_remove(tmp_path: Path) -> None:
    folder, made, start = Folder(str(tmp_path)), [], threading.Barrier(WRITERS + 1, timeout=60)

    def make(writer: int) -> None:
        for number in range(100):
            start.wait()
            if folder.swap(f"runs/{number}/one", str(writer).encode(), None):
                made.append((number, writer))
            folder.put(f"runs/{number}/own-{writer}", b"")
            folder.delete(f"runs/{number}/own-{writer}")

    def remove() -> None:
        for number in range(100):
            start.wait()
            folder.put(f"runs/{number}/x", b"")
            folder.delete(f"runs/{number}/x")

    together([*(lambda writer=writer: make(writer) for writer in range(WRITERS)), remove])
    assert sorted(number for number, _ in made) == list(range(100))
    assert all(folder.get(f"runs/{number}/one") == str(writer).encode() for number, writer in made)


def test_a_folder_that_is_removed_while_it_is_made_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = os.mkdir

    def removed_at_once(path: str, mode: int = 0o777) -> None:
        monkeypatch.setattr(os, "mkdir", make)
        raise FileExistsError(path)  # another process had made it, and removes it again now

    monkeypatch.setattr(os, "mkdir", removed_at_once)
    folder = Folder(str(tmp_path))
    folder.put("runs/a", b"1")
    assert folder.get("runs/a") == b"1"


def test_an_object_that_is_removed_while_sizes_are_looked_up_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Folder(str(tmp_path))
    folder.put("runs/a", b"1")
    monkeypatch.setattr(folder, "list", lambda _: ["runs/a", "runs/b"])
    assert folder.sizes("runs/") == {"runs/a": 1}


def test_a_file_in_the_place_of_a_folder_is_told(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    folder.put("runs", b"1")
    with pytest.raises(NotADirectoryError):
        folder.put("runs/a", b"1")


def test_a_reader_sees_whole_objects(tmp_path: Path) -> None:
    folder, done = Folder(str(tmp_path)), threading.Event()
    folder.put("a", b"x" * 100_000)
    seen = set()

    def read() -> None:
        while not done.is_set():
            seen.add(folder.get("a"))

    def write() -> None:
        try:
            for letter in b"abcdefgh" * 25:
                folder.put("a", bytes([letter]) * 100_000)
        finally:
            done.set()

    together([read, write])
    assert all(len(blob) == 100_000 and len(set(blob)) == 1 for blob in seen)


def together(works: list[Callable[[], None]]) -> None:
    """Do all ``works`` at once; raises what one of them raises."""
    with ThreadPoolExecutor(len(works)) as threads:
        for done in [threads.submit(work) for work in works]:
            done.result(120)


# The clock


@given(st.floats(0, 1e6), st.lists(st.tuples(st.floats(0, 3), st.floats(1e-3, 0.3), st.floats(0, 1)), min_size=1))
def test_the_clock_is_within_the_bounds_of_all_answers(
    ahead_s: float, requests: list[tuple[float, float, float]]
) -> None:
    """The server's clock is ``ahead_s`` ahead; requests come after pauses, take a time, and are dated in the middle."""
    own_s = [0.0]
    clock = ServerClock(lambda: own_s[0])
    for pause_s, took_s, share in requests:
        own_s[0] += pause_s
        sent_s = own_s[0]
        own_s[0] += took_s
        clock.note(sent_s, own_s[0], float(int(sent_s + share * took_s + ahead_s)))
    shortest_s = min(took_s for _, took_s, _ in requests)
    assert abs(clock.now_s() - (own_s[0] + ahead_s)) <= (1 + shortest_s) / 2 + 1e-3 + own_s[0] * 1e-4


def test_a_clock_that_was_set_is_believed() -> None:
    clock = ServerClock(lambda: 100.0)
    clock.note(99.0, 99.1, 5000.0)
    clock.note(99.9, 100.0, 9000.0)
    assert abs(clock.now_s() - 9000.5) < 0.6


@pytest.mark.parametrize(("text", "date_s"), [("Thu, 01 Jan 1970 00:01:00 GMT", 60.0), ("", None), ("noon", None)])
def test_dates_are_read(text: str, date_s: float | None) -> None:
    assert date_of(text) == date_s


def test_two_processes_agree_on_the_time_of_a_storage(s3: Any) -> None:
    import lithops

    clocks = [conditional(LithopsObjects(lithops.Storage(config=S3_BACKEND))) for _ in range(2)]
    for clock in clocks:
        for _ in range(5):
            clock.read("nothing")
    assert abs(clocks[0].now_s() - clocks[1].now_s()) <= 1.0
