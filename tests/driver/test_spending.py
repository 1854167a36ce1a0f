"""Sessions and projects as a user meets them, and the reservation that a run holds in them."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import pytest

import mlless_nb
from mlless_nb import (
    PMF,
    SGD,
    BudgetError,
    CommandError,
    JobError,
    LogisticRegression,
    Stop,
    StoredFiles,
    TrainingJob,
    datasets,
)
from mlless_nb.driver import spending
from mlless_nb.driver.launch.allowance import GRACE_ELSEWHERE_S, Allowance
from mlless_nb.driver.launch.invocations import LEASE_S
from mlless_nb.driver.running.driver_lease import DRIVER_LEASE_S
from mlless_nb.errors import DecodeError
from mlless_nb.exchange.protocol import START_LEASES
from mlless_nb.job.limits import AllottedBudget
from mlless_nb.money.book import RunEntry
from mlless_nb.money.ledger import Ledger, ledger_path
from mlless_nb.money.ledger_rows import Note
from mlless_nb.money.meter import NUSD
from mlless_nb.money.owner import Owner
from mlless_nb.telemetry.live import COLUMNS, RunState, Telemetry
from mlless_nb.telemetry.record import END, ROWS, Record, runs_folder
from mlless_nb.worker.membership import MISSED_LEASES

JOB = TrainingJob(PMF(2), SGD(0.1), datasets.synthetic_ratings(30, 20, 300, rank=2, seed=1), minibatch=30, name="one")
CENT = NUSD // 100


@pytest.fixture(autouse=True)
def own_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A data directory of its own for each test, and no budget in force before and after it."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr(spending, "_in_force", {})


def capped(usd: float | None) -> TrainingJob:
    return dataclasses.replace(JOB, budget=usd)


def test_a_session_reserves_and_settles() -> None:
    mine = mlless_nb.session(budget=0.05)
    allowance = Allowance.open(capped(0.02), "run-1", "one")
    assert (mine.budget, mine.spent, mine.reserved, mine.left) == (0.05, 0, 0.02, 0.03)
    assert "$0.03 left of $0.05: $0.00 spent, $0.02 reserved by one" in repr(mine)
    allowance.settle(CENT)
    allowance.settle(2 * CENT)  # only the first counts
    assert (mine.spent, mine.reserved, mine.left) == (0.01, 0, 0.04)
    assert mlless_nb.session().name == mine.name  # without a name it is the one in force


def test_a_job_without_a_cap_gets_the_rest_and_ends_as_it_would() -> None:
    mlless_nb.session("shared", budget=0.05)
    mlless_nb.project("thesis", budget=0.03)
    job = Allowance.open(capped(None), "run-1", "one").job
    assert job.budget == AllottedBudget(0.03)
    assert job.cap_usd == 0.03
    assert not job.has_own_cap
    assert (job.ends_settled, job.stop_rules) == (JOB.ends_settled, JOB.stop_rules)
    assert capped(0.03).stop_rules == Stop() != JOB.stop_rules
    with pytest.raises(BudgetError, match=r"budget=None: must be paid for by a larger project's budget: .* by one"):
        Allowance.open(capped(None), "run-2", "two")
    spending._in_force.clear()
    assert Allowance.open(job, "run-3", "three").job.budget is None  # what a resumed job was allotted does not last


def test_a_cap_that_does_not_fit_is_refused_with_what_would() -> None:
    mlless_nb.session("shared", budget=0.05)
    Allowance.open(capped(0.02), "run-1", "one")
    with pytest.raises(BudgetError, match=r"^budget=0.04: must be at most 0.03: session 'shared' has \$0.03 left of"):
        mlless_nb.train(capped(0.04))
    assert mlless_nb.session().reserved == 0.02


def test_what_is_raised_is_reserved_first_and_what_is_lowered_comes_back_when_it_is_so() -> None:
    mine = mlless_nb.session("shared", budget=0.05)
    allowance = Allowance.open(capped(0.02), "run-1", "one")
    allowance.ask("up", 4 * CENT)
    assert mine.reserved == 0.04
    with pytest.raises(CommandError, match=r"^budget=0.06: must be at most \$0.05, since session 'shared' has \$0.01"):
        allowance.ask("more", 6 * CENT)
    allowance.ask("down", CENT)
    assert mine.reserved == 0.04  # the other may be the one in force
    allowance.answered(["up"], 4 * CENT)
    assert mine.reserved == 0.04
    allowance.answered(["down"], CENT)
    assert mine.reserved == 0.01
    allowance.settle(CENT)
    allowance.ask("late", 2 * CENT)
    assert (mine.reserved, mine.spent) == (0, 0.01)


def test_caps_of_sessions_change_but_not_below_what_is_used() -> None:
    mine = mlless_nb.session("shared", budget=0.05)
    Allowance.open(capped(0.02), "run-1", "one")
    mine.budget = 0.02
    for change in (lambda: mlless_nb.session("shared", budget=0.01), lambda: setattr(mine, "budget", 0.01)):
        with pytest.raises(BudgetError, match=r"budget=0.01: must be at least 0.02: session 'shared'"):
            change()
    assert mine.budget == 0.02
    mine.leave()
    assert Allowance.open(capped(5.0), "run-2", "two").job.cap_usd == 5.0
    assert not mine.is_in_force


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({}, CommandError, r"no session budget is in force here: mlless_nb.session\(budget=0.05\) sets one"),
        ({"name": "unknown"}, CommandError, r"session='unknown': must be one that has a budget \(none yet\)"),
        ({"name": "a b", "budget": 1}, JobError, "name='a b': must be letters"),
        ({"name": 3}, JobError, "name=3: must be letters"),
        ({"budget": 0}, BudgetError, "budget=0: must be a finite number of US dollars > 0"),
        ({"budget": float("nan")}, BudgetError, "budget=nan: must be"),
        ({"budget": "5"}, BudgetError, "budget='5': must be"),
        ({"budget": 1, "new": 1}, JobError, "new=1: must be True or False"),
    ],
)
def test_errors_name_the_field(arguments: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        mlless_nb.session(**arguments)
    assert spending.in_force() == {}


def test_a_damaged_ledger_starts_nothing() -> None:
    mlless_nb.session(budget=0.05)
    ledger_path().write_bytes(b"something else")
    before = mlless_nb.runs()
    with pytest.raises(DecodeError, match="cannot be trusted"):
        mlless_nb.train(JOB)
    assert mlless_nb.runs() == before


GONE = Owner(Owner.this().host, Owner.this().boot, 2**22 + 1, "1")


def lost_run(run_id: str) -> None:
    """A run whose process is gone, with a reservation of ten cents."""
    with Ledger().transaction() as book:
        book.open(RunEntry(run_id, run_id, "shared", "", 0, None, 1, GONE), 10 * CENT)


@pytest.mark.parametrize(
    ("note", "ended", "cost", "spent"),
    [
        (None, None, None, 0.10),  # nothing is known: all of it counts
        (Note(CENT, CENT // 10, 10.0, 20.0), None, None, 0.04),
        (Note(9 * CENT, CENT, 10.0, 20.0), None, None, 0.10),
        (Note(9 * CENT, CENT, 10.0, 20.0), "finished", {"workers": 0.02, "redis": 0.01}, 0.03),
        (None, "running", {"workers": 0.02}, 0.10),  # its end is not recorded
        (None, "finished", {"workers": float("nan")}, 0.10),
        (None, "finished", {"workers": -0.02}, 0.10),
        (None, "finished", {"workers": 70.0}, 0.10),
    ],
)
def test_a_lost_run_costs_what_its_record_says_or_the_most_it_can(
    note: Note | None, ended: str | None, cost: dict[str, float] | None, spent: float
) -> None:
    mine = mlless_nb.session("shared", budget=1)
    lost_run("killed")
    if note is not None:
        Ledger().note("killed", note)
    if ended is not None:
        folder = runs_folder() / "killed"
        folder.mkdir(parents=True)
        (folder / END).write_text(json.dumps({"state": {"status": ended}, "cost": cost}))
    assert (round(mine.spent, 9), mine.reserved) == (spent, 0)


def test_recorded_steps_count_if_notes_could_not_be_written() -> None:
    mine = mlless_nb.session("shared", budget=1)
    lost_run("killed")
    Ledger().note("killed", Note(CENT, 0, 0.0, 0.0))
    record = Record("killed")
    record.append([[0.07 if name == "spent_usd" else 1.0 for name in COLUMNS]])
    with (record.folder / ROWS).open("a") as rows:
        rows.write("[1.0, 2")  # the process was killed as it wrote
    assert mine.spent == 0.07


@pytest.mark.parametrize("is_stored", [False, True])
def test_a_run_that_is_killed_before_its_launch_costs_next_to_nothing(is_stored: bool) -> None:
    mine = mlless_nb.session("shared", budget=1)
    job = (
        TrainingJob(LogisticRegression(), data=StoredFiles("bucket/files", "csv"), budget=0.5)
        if is_stored
        else capped(0.5)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Owner, "this", classmethod(lambda cls: GONE))
        Allowance.open(job, "killed", "killed")
    assert mine.spent == (0.5 if is_stored else 0.0001)  # functions may have read the files


def test_a_live_run_notes_what_it_has_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlless_nb.driver.launch.allowance.NOTE_S", 0.01)
    mlless_nb.session("shared", budget=1)
    allowance = Allowance.open(capped(None), "run-1", "one")
    telemetry = Telemetry(_state=RunState(status="running", committed_usd=0.25, time_s=3.0))
    allowance.follow(telemetry, 0.001)
    assert "May cost $1.00, which session 'shared' has left" in telemetry.state.events[0].text
    ledger = Ledger()
    with ledger.transaction():
        noted = ledger.noted("run-1")
    assert noted is not None
    assert 0.25 * NUSD < noted.most_nusd < 0.35 * NUSD
    telemetry.update(committed_usd=0.5, time_s=4.0)
    give_up_at = time.monotonic() + 60
    while noted is None or noted.most_nusd < 0.5 * NUSD:
        assert time.monotonic() < give_up_at
        with ledger.transaction():
            noted = ledger.noted("run-1")
    allowance.settle(CENT)


def test_what_functions_may_spend_elsewhere_without_their_driver_and_supervisor_is_held() -> None:
    """Workers wait for another supervisor as long as one may take to start, and then for some leases more."""
    longest_s = DRIVER_LEASE_S + (1 + START_LEASES + MISSED_LEASES) * LEASE_S
    assert longest_s <= GRACE_ELSEWHERE_S
