"""Rows of the ledger: the book's entries as JSON with a digest, and back, bounded and checked. Pure."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any

from ..errors import DecodeError
from .book import KINDS, MOST_NUSD, Book, BudgetEntry, RunEntry
from .owner import Owner

#: Rows of a table by key: key, entry, digest.
Rows = dict[str, tuple[str, str, str]]
_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}")
#: Most characters of one row's entry.
MOST_CHARACTERS = 4_000


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


def to_row(key: str, values: Any) -> tuple[str, str, str]:
    """A row of any table: key, entry as JSON, digest of both."""
    entry = json.dumps(values, separators=(",", ":"))
    return key, entry, hashlib.sha256(f"{key}\0{entry}".encode()).hexdigest()


def check_row(row: tuple[Any, Any, Any]) -> None:
    """Raise unless the row's digest is right."""
    if not all(isinstance(value, str) and len(value) <= MOST_CHARACTERS for value in row):
        raise DecodeError("a row is of another type, or too long")
    key, entry, digest = row
    if hashlib.sha256(f"{key}\0{entry}".encode()).hexdigest() != digest:
        raise DecodeError("a row differs from its digest")


def entry_of(row: tuple[str, str, str]) -> list[Any]:
    """The values of a row."""
    try:
        values = json.loads(row[1])
    except (ValueError, RecursionError):
        raise DecodeError("a row is no JSON") from None
    if not isinstance(values, list):
        raise DecodeError("a row is no list")
    return values


def total_of(rows: dict[str, Rows]) -> list[Any]:
    """The number of all rows and the digest of their digests."""
    digests = sorted(row[2] for table in rows.values() for row in table.values())
    return [len(digests), hashlib.sha256("".join(digests).encode()).hexdigest()]


def rows_of(book: Book, before: Book, read: dict[str, Rows]) -> dict[str, Rows]:
    """The rows of ``book`` by table; entries that are the same as ``before`` keep the row that was ``read``."""
    budgets = {}
    for (kind, name), budget in book.budgets.items():
        key = f"{kind} {name}"
        is_same = before.budgets.get((kind, name)) is budget
        budgets[key] = read["budgets"][key] if is_same else to_row(key, dataclasses.astuple(budget))
    runs = {}
    for key, run in book.runs.items():
        runs[key] = read["runs"][key] if before.runs.get(key) is run else to_row(key, dataclasses.astuple(run))
    return {"budgets": budgets, "runs": runs}


def to_budget(values: list[Any]) -> BudgetEntry:
    if len(values) != 5:
        raise DecodeError("a budget has other fields")
    kind, name, cap_nusd, folded_nusd, n_folded = values
    if kind not in KINDS:
        raise DecodeError("a budget is of no known kind")
    for amount in (cap_nusd, folded_nusd, n_folded):
        _check_whole(amount)
    return BudgetEntry(kind, _checked_name(name), cap_nusd, folded_nusd, n_folded)


def to_run(values: list[Any]) -> RunEntry:
    if len(values) == 8:  # of a version without sweeps
        values = [*values, ""]
    if len(values) != 9 or not isinstance(values[7], list) or len(values[7]) != 4:
        raise DecodeError("a run has other fields")
    run_id, name, session, project, reserved_nusd, spent_nusd, opened_s, (host, boot, pid, started), sweep = values
    for amount in (reserved_nusd, opened_s, pid, *([] if spent_nusd is None else [spent_nusd])):
        _check_whole(amount)
    for budget in (session, project, sweep):
        if budget != "":
            _checked_name(budget)
    if not all(isinstance(text, str) for text in (host, boot, started)):
        raise DecodeError("a run's process is no text")
    owner = Owner(host, boot, pid, started)
    return RunEntry(
        *(_checked_name(run_id), _checked_name(name), session, project, reserved_nusd, spent_nusd, opened_s),
        owner,
        sweep,
    )


def to_note(values: list[Any]) -> Note:
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
