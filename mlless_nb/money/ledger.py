"""The ledger on disk: the book of nested budgets in an SQLite file that all of a user's processes share.

Each change is one transaction that takes the write lock first (``BEGIN IMMEDIATE``), reads the book, checks it, applies
one rule of `mlless_nb.money.book` and writes what changed. A process that is killed in the middle changes nothing.

What is read is checked: whose file it is, its schema, SQLite's own structures, each row's types, bounds and digest, and
a digest of all rows. A file that fails is never repaired or guessed at, since a wrong sum would let money out.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import hashlib
import json
import os
import re
import sqlite3
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import platformdirs

from ..errors import DecodeError, ServiceError
from .book import KINDS, MOST_NUSD, Book, BudgetEntry, Kind, RunEntry
from .owner import Owner

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
#: Rows of a table by key: key, entry, digest.
Rows = dict[str, tuple[str, str, str]]
_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}")
#: Most characters of one row's entry.
MOST_CHARACTERS = 4_000


def ledger_path() -> Path:
    """The ledger's file, in the user's data directory."""
    return platformdirs.user_data_path("mlless_nb") / "ledger.sqlite"


@dataclass(frozen=True)
class Note:
    """What a run's process knew when it last lived: with it the most that the run can have cost is known.

    Parameters
    ----------
    committed_nusd : int
        Spent, or reserved by functions, by the newest report.
    nusd_s : int
        Nano-dollars of a second of the whole run.
    unheard_s : float
        Seconds since that report.
    grace_s : float
        The longest that functions go on without the process.
    """

    committed_nusd: int
    nusd_s: int
    unheard_s: float
    grace_s: float

    @property
    def most_nusd(self) -> int:
        """The most that the run can have cost."""
        return self.committed_nusd + round(self.nusd_s * (self.unheard_s + self.grace_s))


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
            book = self._read(connection)
            before = copy.copy(book.budgets), copy.copy(book.runs)
            yield book
            changed = _write(connection, "budgets", _budget_rows(before[0]), _budget_rows(book.budgets))
            changed |= _write(connection, "runs", _run_rows(before[1]), _run_rows(book.runs))
            if changed:
                gone = [(key,) for key in before[1] if key not in book.runs or book.runs[key].spent_nusd is not None]
                connection.executemany("DELETE FROM notes WHERE key = ?", gone)
                row = _row("all", _total(_budget_rows(book.budgets) | _run_rows(book.runs)))
                connection.execute("INSERT OR REPLACE INTO totals VALUES (?, ?, ?)", row)

    def note(self, run_id: str, note: Note) -> None:
        """Write what is known of a run now, in the place of what was known before."""
        with self._connected() as connection:
            row = _row(run_id, dataclasses.astuple(note))
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
            return _note(_entry(rows[0])) if rows else None
        return None

    @contextlib.contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        """A connection in a transaction that has the write lock."""
        if not self.path.exists():
            self._make()
        try:
            self._check_file()
            uri = f"{self.path.absolute().as_uri()}?mode=rw"
            with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=BUSY_S, isolation_level=None)) as connection:
                for pragma in ("trusted_schema = OFF", "cell_size_check = ON", "synchronous = FULL"):
                    connection.execute(f"PRAGMA {pragma}")
                connection.execute("BEGIN IMMEDIATE")
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
            raise ServiceError(f"the ledger of budgets {self.path} cannot be used: {error}") from None
        except (sqlite3.Error, UnicodeDecodeError, OverflowError) as error:
            raise self._damaged(str(error)) from None
        except OSError as error:
            raise ServiceError(f"the ledger of budgets {self.path} cannot be used: {error}") from None

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
                    connection.execute("INSERT INTO totals VALUES (?, ?, ?)", _row("all", _total({})))
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
            raise self._damaged(" ".join(str(verdict[0]).split())[:120] if verdict else "no verdict")

    def _damaged(self, what: str) -> DecodeError:
        return DecodeError(
            f"the ledger of budgets {self.path} cannot be trusted ({what}); move the file away to begin a new one, "
            "without budgets"
        )

    def _read(self, connection: sqlite3.Connection) -> Book:
        book = Book()
        try:
            for key, values in self._rows(connection, "budgets").items():
                budget = _budget(values)
                if key != f"{budget.kind} {budget.name}":
                    raise DecodeError("a budget has another's key")
                book.budgets[budget.kind, budget.name] = budget
            for key, values in self._rows(connection, "runs").items():
                run = _run(values)
                if key != run.id:
                    raise DecodeError("a run has another's key")
                book.runs[run.id] = run
            total = _total(_budget_rows(book.budgets) | _run_rows(book.runs))
            if self._rows(connection, "totals") != {"all": total}:
                raise DecodeError("rows are missing or too many")
        except DecodeError as error:
            raise self._damaged(str(error)) from None
        return book

    @staticmethod
    def _rows(connection: sqlite3.Connection, table: str) -> dict[str, list[Any]]:
        rows = connection.execute(f"SELECT key, entry, digest FROM {table} LIMIT {MOST_ROWS + 1}").fetchall()
        if len(rows) > MOST_ROWS:
            raise DecodeError(f"more than {MOST_ROWS:,} rows in {table}")
        return {row[0]: _entry(row) for row in rows}


def _row(key: str, values: Any) -> tuple[str, str, str]:
    """A row of any table: key, entry as JSON, digest of both."""
    entry = json.dumps(values, separators=(",", ":"))
    return key, entry, hashlib.sha256(f"{key}\0{entry}".encode()).hexdigest()


def _entry(row: tuple[Any, Any, Any]) -> list[Any]:
    """The values of a row whose digest is right."""
    if not all(isinstance(value, str) and len(value) <= MOST_CHARACTERS for value in row):
        raise DecodeError("a row is of another type, or too long")
    key, entry, digest = row
    if hashlib.sha256(f"{key}\0{entry}".encode()).hexdigest() != digest:
        raise DecodeError("a row differs from its digest")
    try:
        values = json.loads(entry)
    except (ValueError, RecursionError):
        raise DecodeError("a row is no JSON") from None
    if not isinstance(values, list):
        raise DecodeError("a row is no list")
    return values


def _total(rows: Rows) -> list[Any]:
    """The number of rows and the digest of all of them."""
    return [len(rows), hashlib.sha256("".join(sorted(row[2] for row in rows.values())).encode()).hexdigest()]


def _budget_rows(budgets: dict[tuple[Kind, str], BudgetEntry]) -> Rows:
    return {f"{kind} {name}": _row(f"{kind} {name}", _values(entry)) for (kind, name), entry in budgets.items()}


def _run_rows(runs: dict[str, RunEntry]) -> Rows:
    return {key: _row(key, _values(entry)) for key, entry in runs.items()}


def _values(entry: BudgetEntry | RunEntry) -> list[Any]:
    values = [getattr(entry, each.name) for each in dataclasses.fields(entry)]
    return [dataclasses.astuple(value) if isinstance(value, Owner) else value for value in values]


def _write(connection: sqlite3.Connection, table: str, before: Rows, after: Rows) -> bool:
    """Write the rows that differ; returns whether there are any."""
    gone = [(key,) for key in before if key not in after]
    new = [row for key, row in after.items() if before.get(key) != row]
    connection.executemany(f"DELETE FROM {table} WHERE key = ?", gone)
    connection.executemany(f"INSERT OR REPLACE INTO {table} VALUES (?, ?, ?)", new)
    return bool(gone or new)


def _budget(values: list[Any]) -> BudgetEntry:
    if len(values) != 5:
        raise DecodeError("a budget has other fields")
    kind, name, cap_nusd, folded_nusd, n_folded = values
    if kind not in KINDS:
        raise DecodeError("a budget is of no known kind")
    for amount in (cap_nusd, folded_nusd, n_folded):
        _check_whole(amount)
    return BudgetEntry(kind, _checked_name(name), cap_nusd, folded_nusd, n_folded)


def _run(values: list[Any]) -> RunEntry:
    if len(values) != 8 or not isinstance(values[7], list) or len(values[7]) != 4:
        raise DecodeError("a run has other fields")
    run_id, name, session, project, reserved_nusd, spent_nusd, opened_s, (host, boot, pid, started) = values
    for amount in (reserved_nusd, opened_s, pid, *([] if spent_nusd is None else [spent_nusd])):
        _check_whole(amount)
    for budget in (session, project):
        if budget != "":
            _checked_name(budget)
    if not all(isinstance(text, str) for text in (host, boot, started)):
        raise DecodeError("a run's process is no text")
    owner = Owner(host, boot, pid, started)
    return RunEntry(
        _checked_name(run_id), _checked_name(name), session, project, reserved_nusd, spent_nusd, opened_s, owner
    )


def _note(values: list[Any]) -> Note:
    if len(values) != 4:
        raise DecodeError("a note has other fields")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= MOST_NUSD:
            raise DecodeError("a note is out of bounds")
    return Note(int(values[0]), int(values[1]), float(values[2]), float(values[3]))


def _check_whole(value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_NUSD:
        raise DecodeError("an amount is out of bounds")


def _checked_name(name: object) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise DecodeError("a name is invalid")
    return name
