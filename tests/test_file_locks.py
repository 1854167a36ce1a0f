"""Locks that processes share: a process that is stopped while it holds one is named, in one line, after a limit."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mlless_nb.errors import ServiceError
from mlless_nb.file_locks import holder_of, locked
from mlless_nb.money.sqlite_file import opened
from mlless_nb.storage import folder
from mlless_nb.storage.conditional import FolderConditional
from mlless_nb.storage.objects import LithopsObjects
from mlless_nb.tracking import ledger

ON_LINUX = pytest.mark.skipif(not Path("/proc/locks").exists(), reason="the system does not say who holds a lock")
HOLD_FOLDER = "import fcntl, os; fcntl.flock(os.open(path, os.O_RDONLY), fcntl.LOCK_EX)"
HOLD_SQLITE = "import sqlite3; c = sqlite3.connect(path, isolation_level=None); c.execute('BEGIN IMMEDIATE')"

READ_SQLITE = "import sqlite3; c = sqlite3.connect(path, isolation_level=None); c.execute('BEGIN'); "
READ_SQLITE += "c.execute('SELECT * FROM t').fetchall()"


@contextlib.contextmanager
def stopped_holder(path: Path, hold: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that holds the lock of ``path`` and is stopped."""
    script = f"path = {str(path)!r}; {hold}; print('held', flush=True); import time; time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", script, *arguments], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"held\n"
            process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED)
            yield process
        finally:
            process.kill()


@ON_LINUX
def test_a_stopped_process_that_holds_a_folder_is_named_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import lithops
    from lithops.storage.backends.localhost import localhost

    monkeypatch.setattr(localhost, "LITHOPS_TEMP_DIR", str(tmp_path))
    monkeypatch.setattr(folder, "LOCK_S", 0.1)
    objects = LithopsObjects(lithops.Storage(config={"lithops": {"backend": "localhost", "storage": "localhost"}}))
    storage = FolderConditional(objects)
    storage.swap("runs/a/state", b"1")
    held = next(tmp_path.rglob("state")).parent
    with stopped_holder(held, HOLD_FOLDER) as holder:
        with pytest.raises(ServiceError) as caught:
            storage.swap("runs/a/other", b"2")
        text = str(caught.value)
        assert f"has been locked for 0.1 s by process {holder.pid} (" in text
        assert f"which is stopped: end it by kill -9 {holder.pid}, or let it go on by kill -CONT {holder.pid}" in text
        assert "\n" not in text
        assert os.listdir(held) == ["state"]
    assert storage.swap("runs/a/other", b"2") is not None  # the lock has ended with its process


@ON_LINUX
def test_a_function_that_is_stopped_while_it_holds_a_folder_is_killed_after_a_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "LEASE_S", 0.1)
    objects = folder.Folder(str(tmp_path))
    objects.put("a/state", b"1")
    with stopped_holder(tmp_path / "a", HOLD_FOLDER, folder.FUNCTION) as holder:
        assert objects.swap("a/state", b"2", folder.tag_of(b"1"))
        assert holder.wait(60) == -signal.SIGKILL
    assert objects.get("a/state") == b"2"


@ON_LINUX
def test_a_stopped_process_that_holds_a_file_of_budgets_or_runs_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "runs.sqlite"
    runs = ledger.RunLedger(path)
    assert runs.read() == []
    monkeypatch.setattr(ledger, "BUSY_S", 0.1)
    with stopped_holder(path, HOLD_SQLITE) as holder:
        with pytest.raises(ServiceError, match=rf"it is locked by process {holder.pid} \(.*\), which is stopped"):
            runs.read()
        with pytest.raises(sqlite3.OperationalError, match=f"it is locked by process {holder.pid} "):
            opened(path, 0.1, "FULL")
    assert runs.read() == []


def refused(path: Path) -> str:
    """What is said of a file that cannot be opened."""
    with pytest.raises(sqlite3.OperationalError) as caught:
        opened(path, 0.1, "FULL")
    return str(caught.value)


@ON_LINUX
def test_of_a_file_with_a_write_ahead_log_the_writer_is_named_and_no_reader(tmp_path: Path) -> None:
    path = tmp_path / "budgets.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as first:
        first.execute("PRAGMA journal_mode = WAL")
        first.execute("CREATE TABLE t (n)")
        with stopped_holder(path, READ_SQLITE), stopped_holder(path, HOLD_SQLITE) as writer:
            assert f"it is locked by process {writer.pid} " in refused(path)


def test_a_lock_is_waited_for_and_ends_with_its_block(tmp_path: Path) -> None:
    told = pytest.raises(TimeoutError, match="has been locked for 0 s by another process")
    with locked(str(tmp_path), 60.0), told, locked(str(tmp_path), 0.0):
        raise AssertionError("two have the lock")
    with locked(str(tmp_path), 60.0):
        assert holder_of(tmp_path / "none") == "another process"


def test_a_system_that_does_not_say_who_holds_a_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: Any, **__: Any) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", missing)
    assert holder_of(tmp_path) == "another process"
