"""The ledger's file: many processes at once, killed ones among them, and files that are damaged or another's."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlless_nb.errors import BudgetError, DecodeError, MllessError, ServiceError
from mlless_nb.money import ledger as ledger_module
from mlless_nb.money.book import RunEntry
from mlless_nb.money.ledger import Ledger
from mlless_nb.money.ledger_rows import Note
from mlless_nb.money.owner import Owner

#: Opens runs under one budget and settles some, until it is killed or has done enough.
SPENDER = """
import itertools, random, sys
from pathlib import Path
from mlless_nb.errors import BudgetError
from mlless_nb.money.book import RunEntry
from mlless_nb.money.ledger import Ledger
from mlless_nb.money.owner import Owner

path, who, n = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
choose, owner = random.Random(who), Owner.this()
for number in range(n) if n else itertools.count():
    run_id, cap = f"{who}-{number}", choose.randint(1, 50)
    try:
        with Ledger(path).transaction() as book:
            book.open(RunEntry(run_id, run_id, "shared", "thesis", 0, None, 1, owner), cap)
    except BudgetError:
        print("refused", run_id, flush=True)
        continue
    print("opened", run_id, cap, flush=True)
    cost = choose.randint(1, cap)
    with Ledger(path).transaction() as book:
        book.settle(run_id, cost)
    print("settled", run_id, cost, flush=True)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger with a session and a project."""
    path = tmp_path / "data" / "ledger.sqlite"
    with Ledger(path).transaction() as book:
        book.set_cap("session", "shared", 100_000)
        book.set_cap("project", "thesis", 1_000_000)
    return path


def spender(path: Path, who: str, n: int) -> subprocess.Popen[str]:
    """A process that spends, ``n`` times or (0) for ever."""
    return subprocess.Popen(
        [sys.executable, "-c", SPENDER, str(path), who, str(n)], stdout=subprocess.PIPE, text=True, cwd=path.parent
    )


def said(process: subprocess.Popen[str]) -> Iterator[list[str]]:
    assert process.stdout is not None
    return (line.split() for line in process.stdout.read().splitlines())


def test_four_processes_lose_nothing(path: Path) -> None:
    processes = [spender(path, who, 40) for who in "abcd"]
    words = [line for process in processes for line in said(process)]
    assert [process.wait(60) for process in processes] == [0] * 4
    settled = {line[1]: int(line[2]) for line in words if line[0] == "settled"}
    assert len(settled) == 160
    with Ledger(path).transaction() as book:
        standing = book.standing("session", "shared")
        assert {run.id: run.spent_nusd for run in standing.runs} == settled
        assert standing.spent_nusd == sum(settled.values()) == book.standing("project", "thesis").spent_nusd
        assert standing.reserved_nusd == 0


def test_killed_processes_pass_no_cap_and_lose_nothing(path: Path) -> None:
    choose = random.Random(20)
    settled: dict[str, int] = {}
    opened: dict[str, int] = {}
    with Ledger(path).transaction() as book:
        book.set_cap("session", "shared", 2_000)
    for wave in range(4):
        processes = [spender(path, f"{who}{wave}", 0) for who in "abcd"]
        for process in processes:  # each is at work
            assert process.stdout is not None
            opened |= take(process.stdout.readline().split(), settled)
        for process in choose.sample(processes, 4):
            with Ledger(path).transaction() as book:  # between kills, too
                standing = book.standing("session", "shared")
                assert standing.spent_nusd + standing.reserved_nusd <= 2_000
            os.kill(process.pid, signal.SIGKILL)
        for process in processes:
            for line in said(process):
                opened |= take(line, settled)
            process.wait(60)
    with Ledger(path).transaction() as book:
        before = book.standing("session", "shared")
        book.settle_lost(lambda run: run.owner.is_gone, lambda run: run.reserved_nusd)
        after = book.standing("session", "shared")
    assert after.reserved_nusd == 0
    assert after.spent_nusd == before.spent_nusd + before.reserved_nusd <= 2_000
    costs = {run.id: run.spent_nusd for run in after.runs}
    for run_id, cost in settled.items():  # what a process was told is so
        assert costs[run_id] == cost
    for run_id, cap in opened.items():
        assert 0 < (costs[run_id] or 0) <= cap


def take(words: list[str], settled: dict[str, int]) -> dict[str, int]:
    """Note what a process said; returns the run that it opened, with its cap. A last line may be cut off."""
    if len(words) == 3 and words[0] == "settled":
        settled[words[1]] = int(words[2])
    return {words[1]: int(words[2])} if len(words) == 3 and words[0] == "opened" else {}


def test_processes_make_one_ledger_at_once(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from mlless_nb.money.ledger import Ledger\n"
        "with Ledger(Path(sys.argv[1])).transaction() as book: book.set_cap('session', sys.argv[2], 5)"
    )
    path = tmp_path / "new" / "ledger.sqlite"
    processes = [subprocess.Popen([sys.executable, "-c", code, str(path), who], cwd=tmp_path) for who in "abcd"]
    assert [process.wait(60) for process in processes] == [0] * 4
    with Ledger(path).transaction() as book:
        assert {name for _, name in book.budgets} == set("abcd")
    assert path.stat().st_mode & 0o077 == 0
    assert [file.name for file in path.parent.iterdir() if file.name.startswith(".ledger")] == []


def test_a_process_is_gone_when_it_is_and_not_before() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        here = Owner.this()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "getpid", lambda: process.pid)
            other = Owner.this()
        assert not here.is_gone
        assert not other.is_gone
        assert Owner(other.host, other.boot, other.pid, "0").is_gone  # its id was used again
        assert Owner(other.host, "an earlier boot", other.pid, other.started).is_gone
        assert not Owner("elsewhere", other.boot, 1, "0").is_gone  # cannot be known
        process.kill()
        give_up_at = time.monotonic() + 60
        while not other.is_gone and time.monotonic() < give_up_at:  # also before its parent asked: a zombie
            time.sleep(0.01)
        assert other.is_gone


def test_notes_bound_the_cost_and_go_with_the_reservation(path: Path) -> None:
    with Ledger(path).transaction() as book:
        book.open(RunEntry("one", "one", "shared", "", 0, None, 1, Owner.this()), 500)
    ledger = Ledger(path)
    ledger.note("one", Note(100, 10, 2.5, 4.0))
    ledger.note("unknown", Note(100, 10, 2.5, 4.0))
    with ledger.transaction() as book:
        noted = ledger.noted("one")
        assert noted is not None
        assert noted.most_nusd == 165
        assert ledger.noted("unknown") is None
        book.settle("one", 120)
    with ledger.transaction():
        assert ledger.noted("one") is None


def test_another_programs_files_are_refused_in_one_line(path: Path, tmp_path: Path) -> None:
    shutil.copy(path, tmp_path / "kept")
    foreign = tmp_path / "foreign.sqlite"
    with sqlite3.connect(foreign) as connection:
        connection.execute("CREATE TABLE budgets (key TEXT, entry TEXT, digest TEXT)")
    cases = {
        "no SQLite file": b"name,cap\nshared,5\n",
        "no SQLite file ": b"",
        "another program's": foreign.read_bytes(),
        "malformed": path.read_bytes()[:5000],
    }
    for what, content in cases.items():
        path.write_bytes(content)
        with pytest.raises(DecodeError) as caught, Ledger(path).transaction():
            pass
        text = str(caught.value)
        assert "\n" not in text
        assert str(path) in text
        assert "move the file away" in text
        assert what.strip() in text
        assert path.read_bytes() == content  # nothing was repaired


def test_other_tables_versions_and_sizes_are_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = path.read_bytes()
    for statement, what in (
        ("CREATE VIEW more AS SELECT 1", "its tables are others"),
        ("CREATE TRIGGER t AFTER INSERT ON runs BEGIN DELETE FROM runs; END", "its tables are others"),
        ("PRAGMA user_version = 7", "version 7"),
        ("DELETE FROM budgets WHERE key = 'session shared'", "missing or too many"),
        ("UPDATE budgets SET entry = replace(entry, '100000', '900000')", "differs from its digest"),
        ("UPDATE totals SET entry = 1, digest = 2", "differs from its digest"),
    ):
        path.write_bytes(good)
        with sqlite3.connect(path) as connection:
            connection.execute(statement)
        connection.close()
        with pytest.raises(DecodeError, match=what), Ledger(path).transaction():
            pass
    path.write_bytes(good)
    monkeypatch.setattr(ledger_module, "MOST_BYTES", 1000)
    with pytest.raises(DecodeError, match="at most 1,000"), Ledger(path).transaction():
        pass


def test_flipped_bytes_never_make_a_wrong_number(path: Path) -> None:
    for number in range(40):
        with Ledger(path).transaction() as book:
            book.open(RunEntry(f"run-{number}", "a", "shared", "thesis", 0, None, 1, Owner.this()), 100)
            if number % 3:
                book.settle(f"run-{number}", number)
    with Ledger(path).transaction() as book:
        truth = dict(book.budgets), dict(book.runs)
    good, choose = path.read_bytes(), random.Random(5)
    n_refused = 0
    for _ in range(400):
        damaged = bytearray(good)
        for _ in range(choose.choice((1, 1, 1, 4, 64))):
            damaged[choose.randrange(len(damaged))] = choose.randrange(256)
        if choose.random() < 0.2:
            del damaged[choose.randrange(len(damaged)) :]
        path.write_bytes(damaged)
        for end in ("-wal", "-shm"):
            path.with_name(path.name + end).unlink(missing_ok=True)
        found = read(path)
        if isinstance(found, str):
            assert "\n" not in found
            n_refused += 1
        else:
            assert found == truth
    assert n_refused > 50


def read(path: Path) -> tuple[object, object] | str:
    """What the ledger holds, or why it is refused."""
    try:
        with Ledger(path).transaction() as book:
            return dict(book.budgets), dict(book.runs)
    except MllessError as error:
        return str(error)


def test_what_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ServiceError, match="cannot be made"), Ledger(tmp_path / "file" / "ledger.sqlite").transaction():
        pass


def test_a_refusal_writes_nothing(path: Path) -> None:
    def spend_too_much() -> None:
        with Ledger(path).transaction() as book:
            book.set_cap("session", "other", 1)
            book.open(RunEntry("one", "one", "shared", "", 0, None, 1, Owner.this()), 100_001)

    with pytest.raises(BudgetError):
        spend_too_much()
    with Ledger(path).transaction() as book:
        assert ("session", "other") not in book.budgets
