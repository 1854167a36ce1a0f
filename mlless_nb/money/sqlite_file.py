"""SQLite files that all of a user's processes share: how one is opened, and how its errors are told."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from ..file_locks import holder_of

#: Most letters of what SQLite says.
MOST_LETTERS = 160
#: The byte of the shared-memory file of a write-ahead log that its writer locks.
WRITER_BYTE = 120


def opened(path: Path, busy_s: float, synchronous: str) -> sqlite3.Connection:
    """A connection to the file, which must be there, in a transaction that has the write lock; it is not committed.

    Parameters
    ----------
    path : Path
    busy_s : float
        Longest wait for other processes' transactions, seconds.
    synchronous : {"FULL", "NORMAL"}
        With "NORMAL" the newest transactions may be lost if the machine loses its power.

    Raises
    ------
    sqlite3.OperationalError
        If the file cannot be read or written, or stays locked; then it names the process that holds it.
    sqlite3.DatabaseError
        If it is damaged.
    """
    uri = f"{path.absolute().as_uri()}?mode=rw"
    connection = sqlite3.connect(uri, uri=True, timeout=busy_s, isolation_level=None)
    try:
        for pragma in ("trusted_schema = OFF", "cell_size_check = ON", f"synchronous = {synchronous}"):
            connection.execute(f"PRAGMA {pragma}")
        connection.execute("BEGIN IMMEDIATE")
    except BaseException as error:
        connection.close()
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY:
            shared = Path(f"{path}-shm")  # has the writers' lock where there is a write-ahead log
            holder = holder_of(shared, WRITER_BYTE) if shared.exists() else holder_of(path)
            raise sqlite3.OperationalError(f"it is locked by {holder}") from None
        raise
    return connection


def shown(text: str) -> str:
    """``text``, which may hold bytes of a damaged file, on one short line."""
    return "".join(letter if letter.isprintable() else "?" for letter in " ".join(text.split()))[:MOST_LETTERS]
