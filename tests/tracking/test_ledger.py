"""The list of all runs: many writers at once, kills in between, other versions' files and damaged ones."""

from __future__ import annotations

import dataclasses
import os
import signal
import sqlite3
import string
import subprocess
import sys
import tempfile
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from mlless_nb.errors import DataWarning, ServiceError
from mlless_nb.money.owner import Owner
from mlless_nb.tracking import RunLedger, TrackedRun
from mlless_nb.tracking import ledger as ledgers

RUN = TrackedRun("20261125-100000-0123abcd", "first", 1.0, settings={"workers": 4, "model": {"rank": 20}})
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
losses = st.none() | st.floats(allow_nan=False, allow_infinity=False)

#: A notebook: enters runs and their ends, and says what it has entered.
WRITER = """
import sys
from pathlib import Path
from mlless_nb.money.owner import Owner
from mlless_nb.tracking import RunLedger, TrackedRun
from mlless_nb.tracking import ledger as ledgers
ledgers.BUSY_S = 100.0  # a slow disk with many writers: who waits is not always the next one
ledger, who, n = RunLedger(Path(sys.argv[1])), sys.argv[2], int(sys.argv[3])
number = 0
while not n or number < n:
    run_id = f"{who}-{number}"
    ledger.begin(TrackedRun(run_id, who, float(number)), Owner.this())
    print("began", run_id, flush=True)
    ledger.change(run_id, status="finished", usd=0.25, steps=number)
    print("ended", run_id, flush=True)
    number += 1
"""


@pytest.fixture
def ledger(tmp_path: Path) -> RunLedger:
    return RunLedger(tmp_path / "runs.sqlite")


def writer(ledger: RunLedger, who: str, n: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(ledger.path), who, str(n)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ledger.path.parent)


def test_the_newest_names_come_first_and_each_once(ledger: RunLedger) -> None:
    for number, name in enumerate(["first", "second", "third", "first", "gone"]):
        ledger.begin(TrackedRun(f"id-{number}", name, float(number)))
    ledger.forget(["id-4"])
    assert ledger.newest_names(2) == ["first", "third"]
    assert ledger.newest_names(50) == ["first", "third", "second"]


def test_a_run_is_read_as_it_was_entered_and_changed(ledger: RunLedger) -> None:
    ledger.begin(RUN, Owner.this())
    assert ledger.read() == [RUN]
    assert ledger.live() == [(RUN.id, Owner.this())]
    ledger.change(RUN.id, status="capped", best_loss=0.5, settings={"workers": 2})
    ledger.change("unknown", status="failed")
    assert ledger.read() == [dataclasses.replace(RUN, status="capped", best_loss=0.5, settings={"workers": 2})]
    assert ledger.live() == []


def test_of_too_many_runs_the_newest_are_read(ledger: RunLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlless_nb.tracking.ledger.MOST_RUNS", 2)
    for number in (3, 1, 2):
        ledger.begin(dataclasses.replace(RUN, id=f"run-{number}", began_s=float(number)))
    assert [run.id for run in ledger.read()] == ["run-2", "run-3"]


@given(
    entered=st.lists(
        st.builds(
            TrackedRun,
            id=st.text(string.ascii_letters, min_size=1, max_size=8),
            name=texts,
            began_s=st.floats(0, 1e10),
            project=texts,
            settings=st.dictionaries(texts, st.none() | st.integers(-(2**53), 2**53) | texts, max_size=3),
            best_loss=losses,
            usd=st.floats(0, 1e6),
            status=st.sampled_from(["finished", "running"]),
            reason=texts,
        ),
        unique_by=lambda run: run.id,
        max_size=6,
    )
)
@settings(max_examples=30)
def test_whatever_is_entered_comes_back_oldest_first(entered: list[TrackedRun]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        ledger = RunLedger(Path(folder) / "runs.sqlite")
        for run in entered:
            ledger.begin(run)
        assert ledger.read() == sorted(entered, key=lambda run: (run.began_s, run.id))


@pytest.mark.parametrize("who", ["ab", pytest.param("abcdefgh", marks=pytest.mark.long)])
def test_notebooks_at_once_lose_nothing(ledger: RunLedger, who: str) -> None:
    writers = [writer(ledger, one, 25) for one in who]
    said = [line for each in writers for line in (each.stdout or []) if line.startswith("ended")]
    assert [each.wait(120) for each in writers] == [0] * len(who)
    runs = ledger.read()
    assert len(said) == len(runs) == 25 * len(who)
    assert {run.status for run in runs} == {"finished"}
    assert sum(run.usd for run in runs) == 6.25 * len(who)


@pytest.mark.parametrize("n_waves", [1, pytest.param(8, marks=pytest.mark.long)])
def test_what_a_killed_notebook_said_is_there(ledger: RunLedger, n_waves: int) -> None:
    said: list[list[str]] = []
    for wave in range(n_waves):
        writers = [writer(ledger, f"{who}{wave}", 0) for who in "ab"]
        for each in writers:
            assert each.stdout is not None
            said.append(each.stdout.readline().split())
        for each in writers:
            os.kill(each.pid, signal.SIGKILL)
            assert each.stdout is not None
            said += [line.split() for line in each.stdout.read().splitlines(keepends=True) if line.endswith("\n")]
            each.wait(60)
    status = {run.id: run.status for run in ledger.read()}
    for word, run_id in said:
        assert run_id in status
        assert word == "began" or status[run_id] == "finished"
    assert all(owner is not None and owner.is_gone for _, owner in ledger.live())


def test_forgotten_runs_keep_their_dollars(ledger: RunLedger) -> None:
    ledger.begin(dataclasses.replace(RUN, usd=0.5, project="thesis", status="finished"))
    ledger.forget([RUN.id])
    assert ledger.read() == []
    (kept,) = ledger.read(forgotten=True)
    assert (kept.usd, kept.project, kept.settings) == (0.5, "thesis", {})


def test_a_later_versions_file_is_used_as_far_as_it_is_known(ledger: RunLedger) -> None:
    ledger.begin(RUN)
    with sqlite3.connect(ledger.path) as connection:
        connection.execute("ALTER TABLE runs ADD COLUMN colour TEXT NOT NULL DEFAULT 'red'")
        connection.execute(f"PRAGMA user_version = {len(ledgers.MIGRATIONS) + 1}")
    ledger.begin(dataclasses.replace(RUN, id="other", began_s=2.0))
    assert [run.id for run in ledger.read()] == [RUN.id, "other"]
    with sqlite3.connect(ledger.path) as connection:
        assert connection.execute("SELECT colour FROM runs").fetchall() == [("red",)] * 2


def test_an_earlier_versions_file_is_migrated(ledger: RunLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger.begin(RUN)
    later = (*ledgers.MIGRATIONS, ("ALTER TABLE runs ADD COLUMN colour TEXT NOT NULL DEFAULT 'red'",))
    monkeypatch.setattr(ledgers, "MIGRATIONS", later)
    assert ledger.read() == [RUN]
    with sqlite3.connect(ledger.path) as connection:
        assert connection.execute("SELECT colour FROM runs").fetchall() == [("red",)]


@pytest.mark.parametrize("damage", ["other bytes", "cut", "another program's"])
def test_a_damaged_file_is_set_aside(ledger: RunLedger, damage: str) -> None:
    if damage == "another program's":
        with sqlite3.connect(ledger.path) as connection:
            connection.execute("CREATE TABLE runs (x)")
    else:
        ledger.begin(RUN)
        ledger.path.write_bytes(ledger.path.read_bytes()[:300] if damage == "cut" else b"no list of runs at all" * 99)
    with pytest.warns(DataWarning, match="the list of runs was damaged") as warned:
        assert ledger.read() == []
    assert "\n" not in str(warned[0].message)
    ledger.begin(RUN)
    assert ledger.read() == [RUN]
    assert len(list(ledger.path.parent.glob("runs.sqlite.damaged-*"))) == 1


def test_what_cannot_be_used_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ServiceError, match=r"the list of runs .* cannot be used") as caught:
        RunLedger(tmp_path / "file" / "runs.sqlite").read()
    assert "\n" not in str(caught.value)
    ledger = RunLedger(tmp_path / "runs.sqlite")
    ledger.begin(RUN)
    monkeypatch.setattr(ledgers, "BUSY_S", 0.01)
    with sqlite3.connect(ledger.path, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(ServiceError, match="locked"):
            ledger.begin(RUN)
    assert ledger.read() == [RUN]
