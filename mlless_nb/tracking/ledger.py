"""The list of all runs on disk: one SQLite file in the user's data directory that all notebooks share.

Each change is one short transaction, so notebooks can write at once, and a process that is killed in the middle changes
nothing. Nothing rests on this file: the records of runs lie beside it. One that is damaged is set aside, and a new one
is filled from the records. Later versions only add columns; an older package goes on using those that it knows.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sqlite3
import time
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import platformdirs

from ..errors import DataWarning, ServiceError
from ..file_locks import locked
from ..money.owner import Owner
from ..money.sqlite_file import opened, shown
from ..telemetry.live import LIVE
from .entry import TrackedRun
from .records import entries_on_disk

#: "mlrn".
APPLICATION_ID = 0x6D6C726E
#: Statements that lead from each version to the next one. Add to them; change none.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE runs (id TEXT PRIMARY KEY, name TEXT NOT NULL, began_s REAL NOT NULL, session TEXT NOT NULL, "
        "project TEXT NOT NULL, sweep TEXT NOT NULL, model TEXT NOT NULL, data TEXT NOT NULL, settings TEXT NOT NULL, "
        "metric TEXT NOT NULL, best_loss REAL, last_loss REAL, steps INTEGER NOT NULL, seconds REAL NOT NULL, "
        "usd REAL NOT NULL, status TEXT NOT NULL, reason TEXT NOT NULL, owner TEXT NOT NULL DEFAULT '', "
        "is_forgotten INTEGER NOT NULL DEFAULT 0)",
        "CREATE INDEX runs_by_date ON runs (began_s)",
    ),
)
COLUMNS = tuple(entry.name for entry in dataclasses.fields(TrackedRun))
_LISTED = ", ".join(COLUMNS)
#: Longest wait for other processes' transactions, seconds; one takes milliseconds.
BUSY_S = 10.0
#: Most runs that are read, the newest ones.
MOST_RUNS = 100_000


def runs_path() -> Path:
    """The file, in the user's data directory."""
    return platformdirs.user_data_path("mlless_nb") / "runs.sqlite"


class RunLedger:
    """The file of all runs; it is made, and filled from the records on disk, when it is first used.

    Parameters
    ----------
    path : Path, optional
        None: the user's, see `runs_path`.

    Raises
    ------
    ServiceError
        From every method, if the file cannot be read or written, or stays locked.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or runs_path()

    def begin(self, run: TrackedRun, owner: Owner | None = None) -> None:
        """Enter a run that begins, with the process that drives it."""
        with self._transaction() as connection:
            _insert(connection, run, owner)

    def change(self, run_id: str, **values: Any) -> None:
        """Change columns of a run; no effect if it is not entered."""
        encoded = {name: json.dumps(value) if name == "settings" else value for name, value in values.items()}
        if unknown := set(encoded) - set(COLUMNS):
            raise ValueError(f"no columns: {unknown}")
        assigned = ", ".join(f"{name} = ?" for name in encoded)
        with self._transaction() as connection:
            connection.execute(f"UPDATE runs SET {assigned} WHERE id = ?", [*encoded.values(), run_id])

    def remove(self, run_id: str) -> None:
        """Remove a run that never began."""
        with self._transaction() as connection:
            connection.execute("DELETE FROM runs WHERE id = ?", [run_id])

    def forget(self, run_ids: Iterable[str]) -> None:
        """List runs no longer. Their dates, projects and dollars stay, so that sums of what was spent stay right."""
        with self._transaction() as connection:
            connection.executemany(
                "UPDATE runs SET is_forgotten = 1, settings = '{}', reason = '' WHERE id = ?",
                [(run_id,) for run_id in run_ids],
            )

    def read(self, *, forgotten: bool = False) -> list[TrackedRun]:
        """All runs, oldest first; with ``forgotten`` those too that are not listed any more."""
        where = "" if forgotten else "WHERE is_forgotten = 0"
        with self._transaction() as connection:
            newest = f"SELECT {_LISTED} FROM runs {where} ORDER BY began_s DESC, id DESC LIMIT {MOST_RUNS}"
            found = connection.execute(newest).fetchall()
        return [run for row in reversed(found) if (run := _run_of(row)) is not None]

    def newest_names(self, most: int) -> list[str]:
        """The names of the newest runs, each once, the newest first; at most ``most``."""
        listed = "SELECT name FROM runs WHERE is_forgotten = 0 GROUP BY name ORDER BY max(began_s) DESC, name LIMIT ?"
        with self._transaction() as connection:
            return [str(name) for (name,) in connection.execute(listed, [most])]

    def live(self) -> list[tuple[str, Owner | None]]:
        """Ids of the runs whose end is not entered, with the processes that drive them."""
        with self._transaction() as connection:
            marks = ", ".join("?" * len(LIVE))
            found = connection.execute(f"SELECT id, owner FROM runs WHERE status IN ({marks})", LIVE).fetchall()
        return [(run_id, _owner_of(text)) for run_id, text in found]

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        try:
            with self._connection() as connection:
                yield connection
                connection.execute("COMMIT")
        except (sqlite3.Error, OSError, OverflowError) as error:
            raise ServiceError(f"the list of runs {self.path} cannot be used: {shown(str(error))}") from None

    @contextlib.contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """A connection in a transaction that has the write lock."""
        try:
            connection = self._opened()
        except sqlite3.OperationalError:
            raise  # locked, or not writable: the file is no worse for it
        except sqlite3.DatabaseError as error:
            self._set_aside(str(error))
            connection = self._opened()
        try:
            yield connection
        finally:
            connection.close()

    def _opened(self) -> sqlite3.Connection:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not self.path.exists():
            self.path.touch(mode=0o600)
        connection = opened(self.path, BUSY_S, "NORMAL")
        try:
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version < len(MIGRATIONS):
                self._migrate(connection, version)
            elif connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
                raise sqlite3.DatabaseError("it is another program's")
            return connection
        except BaseException:
            connection.close()
            raise

    def _migrate(self, connection: sqlite3.Connection, version: int) -> None:
        if version == 0 and connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise sqlite3.DatabaseError("it is another program's")
        for statements in MIGRATIONS[version:]:
            for statement in statements:
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
        if version == 0 and self.path == runs_path():
            for run in entries_on_disk():
                _insert(connection, run, None)

    def _set_aside(self, why: str) -> None:
        """Rename a damaged file, unless another process has done so already."""
        lock = self.path.parent / f"{self.path.name}.lock"
        lock.touch(mode=0o600)
        with locked(str(lock), BUSY_S):
            try:
                self._opened().close()
                return
            except sqlite3.DatabaseError:
                pass
            aside = self.path.with_name(f"{self.path.name}.damaged-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}")
            os.replace(self.path, aside)
            for ending in ("-wal", "-shm", "-journal"):
                self.path.with_name(self.path.name + ending).unlink(missing_ok=True)
        warnings.warn(
            f"the list of runs was damaged ({shown(why)}); it is kept as {aside}, and made anew from the runs' records",
            DataWarning,
            stacklevel=2,
        )


def _insert(connection: sqlite3.Connection, run: TrackedRun, owner: Owner | None) -> None:
    values = dataclasses.asdict(run) | {"settings": json.dumps(run.settings)}
    row = [*values.values(), json.dumps(dataclasses.astuple(owner)) if owner is not None else ""]
    marks = ", ".join("?" * len(row))
    connection.execute(f"INSERT OR REPLACE INTO runs ({', '.join(values)}, owner) VALUES ({marks})", row)


def _run_of(row: tuple[Any, ...]) -> TrackedRun | None:
    """The run in ``row``; None if it is none."""
    values = dict(zip(COLUMNS, row, strict=True))
    try:
        values["settings"] = json.loads(values["settings"])
        for name, kind in (("began_s", float), ("seconds", float), ("usd", float), ("steps", int)):
            values[name] = kind(values[name])
        for name in ("best_loss", "last_loss"):
            values[name] = None if values[name] is None else float(values[name])
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None
    return TrackedRun(**values) if isinstance(values["settings"], dict) else None


def _owner_of(text: str) -> Owner | None:
    with contextlib.suppress(TypeError, ValueError):
        host, boot, pid, started = json.loads(text)
        return Owner(str(host), str(boot), int(pid), str(started))
    return None
