"""The ledger on disk: the book of nested budgets in an SQLite file that all of a user's processes share.

Each change is one transaction that takes the write lock first (``BEGIN IMMEDIATE``), reads the book, checks it, applies
one rule of `mlless_nb.money.book` and writes what changed. A process that is killed in the middle changes nothing.

What is read is checked: whose file it is, its schema, SQLite's own structures, each row's types, bounds and digest, and
a digest of all rows. A file that fails is never repaired or guessed at, since a wrong sum would let money out.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

import platformdirs

from ..errors import DecodeError, ServiceError
from .book import Book
from .ledger_rows import Note, Rows, check_row, entry_of, rows_of, to_budget, to_note, to_row, to_run, total_of
from .sqlite_file import opened, shown

#: "mlnb", and the version of the tables.
APPLICATION_ID, VERSION = 0x6D6C6E62, 1
#: Most bytes of a ledger, and most rows of each of its tables.
MOST_BYTES, MOST_ROWS = 64 << 20, 20_000
#: Longest wait for other processes' transactions, seconds; one takes milliseconds.
BUSY_S = 60.0
SCHEMA = {
    "budgets": "CREATE TABLE budgets (key TEXT PRIMARY KEY, entry TEXT NOT NULL, digest TEXT NOT NULL)",
    "runs": "CREATE TABLE runs (key TEXT PRIMARY KEY, entry TEXT NOT NULL, digest TEXT NOT NULL)",
    "notes": "CREATE TABLE notes (key TEXT PRIMARY KEY, entry TEXT NOT NULL, digest TEXT NOT NULL)",
    "totals": "CREATE TABLE totals (key TEXT PRIMARY KEY, entry TEXT NOT NULL, digest TEXT NOT NULL)",
}


def ledger_path() -> Path:
    """The ledger's file, in the user's data directory."""
    return platformdirs.user_data_path("mlless_nb") / "ledger.sqlite"


class Ledger:
    """One ledger; it is made when it is first written to.

    Parameters
    ----------
    path : Path, optional
        None: the user's, see `ledger_path`.

    Raises
    ------
    DecodeError
        From every method, if the file is not a ledger or is damaged.
    ServiceError
        From every method, if it cannot be read or written, or stays locked.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or ledger_path()
        self._open: sqlite3.Connection | None = None

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Book]:
        """The book, alone: what is changed in it is written at the end, all or, after an exception, nothing."""
        with self._connected() as connection:
            book, read = self._read(connection)
            before = Book(dict(book.budgets), dict(book.runs))
            yield book
            written = rows_of(book, before, read)
            if _write(connection, read, written):
                gone = [(key,) for key in before.runs if key not in book.runs or book.runs[key].spent_nusd is not None]
                connection.executemany("DELETE FROM notes WHERE key = ?", gone)
                connection.execute("INSERT OR REPLACE INTO totals VALUES (?, ?, ?)", to_row("all", total_of(written)))

    def note(self, run_id: str, note: Note) -> None:
        """Write what is known of a run now, in the place of what was known before.

        If the machine loses its power, the newest note may be lost.
        """
        with self._connected("NORMAL") as connection:
            row = to_row(run_id, dataclasses.astuple(note))
            connection.execute(
                "INSERT OR REPLACE INTO notes SELECT ?, ?, ? WHERE EXISTS (SELECT 1 FROM runs WHERE key = ?)",
                (*row, run_id),
            )

    def noted(self, run_id: str) -> Note | None:
        """What was last known of a run, None if nothing is or what is there cannot be trusted; in a transaction."""
        if self._open is None:
            raise ValueError("notes are read in a transaction")
        with contextlib.suppress(DecodeError):
            rows = self._open.execute("SELECT key, entry, digest FROM notes WHERE key = ?", (run_id,)).fetchall()
            if rows:
                check_row(rows[0])
                return to_note(entry_of(rows[0]))
        return None

    @contextlib.contextmanager
    def _connected(self, synchronous: str = "FULL") -> Iterator[sqlite3.Connection]:
        """A connection in a transaction that has the write lock; it is on the disk at the end unless "NORMAL"."""
        if not self.path.exists():
            self._make()
        try:
            self._check_file()
            with contextlib.closing(opened(self.path, BUSY_S, synchronous)) as connection:
                try:
                    self._check(connection)
                    self._open = connection
                    yield connection
                except BaseException:
                    with contextlib.suppress(sqlite3.Error):
                        connection.execute("ROLLBACK")
                    raise
                finally:
                    self._open = None
                connection.execute("COMMIT")
        except sqlite3.OperationalError as error:
            raise ServiceError(f"the ledger of budgets {self.path} cannot be used: {shown(str(error))}") from None
        except (sqlite3.Error, UnicodeDecodeError, OverflowError) as error:
            raise self._damaged(str(error)) from None
        except OSError as error:
            raise ServiceError(f"the ledger of budgets {self.path} cannot be used: {shown(str(error))}") from None

    def _make(self) -> None:
        """Make an empty ledger. It appears whole, so an empty file is a damaged one and not a new one."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with tempfile.TemporaryDirectory(prefix=".ledger-", dir=self.path.parent) as folder:
                draft = Path(folder) / "draft"
                draft.touch(mode=0o600)
                with contextlib.closing(sqlite3.connect(draft, isolation_level=None)) as connection:
                    connection.execute("PRAGMA journal_mode = WAL")
                    connection.execute("BEGIN IMMEDIATE")
                    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                    connection.execute(f"PRAGMA user_version = {VERSION}")
                    for statement in SCHEMA.values():
                        connection.execute(statement)
                    connection.execute("INSERT INTO totals VALUES (?, ?, ?)", to_row("all", total_of({})))
                    connection.execute("COMMIT")
                with contextlib.suppress(FileExistsError):  # another process was quicker
                    os.link(draft, self.path)
        except (OSError, sqlite3.Error) as error:
            raise ServiceError(f"the ledger of budgets {self.path} cannot be made: {error}") from None

    def _check_file(self) -> None:
        size = self.path.stat().st_size
        if size > MOST_BYTES:
            raise self._damaged(f"{size:,} bytes, and a ledger has at most {MOST_BYTES:,}")
        with self.path.open("rb") as file:
            if file.read(16) != b"SQLite format 3\0":
                raise self._damaged("no SQLite file")

    def _check(self, connection: sqlite3.Connection) -> None:
        """Raise unless the file is a ledger of this version, and SQLite finds nothing wrong with it."""
        found = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")]
        if found[0] != APPLICATION_ID:
            raise self._damaged("it is another program's")
        if found[1] != VERSION:
            raise self._damaged(f"it is of version {found[1]}, and this is version {VERSION}")
        tables = dict(connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL LIMIT 99"))
        if tables != SCHEMA:
            raise self._damaged("its tables are others")
        verdict = [row[0] for row in connection.execute("PRAGMA integrity_check(1)")]
        if verdict != ["ok"]:
            raise self._damaged(str(verdict[0]) if verdict else "no verdict")

    def _damaged(self, what: str) -> DecodeError:
        return DecodeError(
            f"the ledger of budgets {self.path} cannot be trusted ({shown(what)}); move the file away to "
            "begin a new one, without budgets"
        )

    def _read(self, connection: sqlite3.Connection) -> tuple[Book, dict[str, Rows]]:
        """The book, checked, and its rows by table."""
        book = Book()
        try:
            rows = {table: _checked_rows(connection, table) for table in ("budgets", "runs")}
            for key, row in rows["budgets"].items():
                budget = to_budget(entry_of(row))
                if key != f"{budget.kind} {budget.name}":
                    raise DecodeError("a budget has another's key")
                book.budgets[budget.kind, budget.name] = budget
            for key, row in rows["runs"].items():
                run = to_run(entry_of(row))
                if key != run.id:
                    raise DecodeError("a run has another's key")
                book.runs[run.id] = run
            totals = _checked_rows(connection, "totals")
            if [*totals] != ["all"] or entry_of(totals["all"]) != total_of(rows):
                raise DecodeError("rows are missing or too many")
        except DecodeError as error:
            raise self._damaged(str(error)) from None
        return book, rows


def _checked_rows(connection: sqlite3.Connection, table: str) -> Rows:
    """The rows of one table, each as its digest says."""
    rows = connection.execute(f"SELECT key, entry, digest FROM {table} LIMIT {MOST_ROWS + 1}").fetchall()
    if len(rows) > MOST_ROWS:
        raise DecodeError(f"more than {MOST_ROWS:,} rows in {table}")
    for row in rows:
        check_row(row)
    return {row[0]: row for row in rows}


def _write(connection: sqlite3.Connection, before: dict[str, Rows], after: dict[str, Rows]) -> bool:
    """Write the rows that differ; returns whether there are any."""
    is_changed = False
    for table, rows in after.items():
        gone = [(key,) for key in before[table] if key not in rows]
        new = [row for key, row in rows.items() if before[table].get(key) != row]
        connection.executemany(f"DELETE FROM {table} WHERE key = ?", gone)
        connection.executemany(f"INSERT OR REPLACE INTO {table} VALUES (?, ?, ?)", new)
        is_changed = is_changed or bool(gone or new)
    return is_changed
