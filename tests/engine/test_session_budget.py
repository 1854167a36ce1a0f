"""Four notebooks spend from one session's budget at once; functions and one of them are killed: they stay within it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from engine.jobs import cost_of_a_start, job, wait_for_step

import mlless_nb
from mlless_nb import CommandError, Stop
from mlless_nb.driver import spending

#: A notebook: joins the session, and trains runs until the session pays for no other, or it is killed. Of every other
#: run it kills a function, a worker or the supervisor.
NOTEBOOK = """
import contextlib, os, random, signal, sys
sys.path.insert(0, sys.argv[1])
from engine.jobs import job
from engine.test_faults import function_processes, group_of
import mlless_nb
from mlless_nb import BudgetError, Stop
mlless_nb.session("shared")
for number in range(50):
    try:
        run = mlless_nb.train(job(budget=float(sys.argv[2]), workers=2, stop=Stop(), name=f"run{number}"))
    except BudgetError as error:
        print("refused", error, flush=True)
        break
    print("began", run.id, flush=True)
    if number % 2:
        seen = 0
        while run.telemetry.state.step < 2 and run.telemetry.state.is_live:
            seen = run.telemetry.wait_for_change(seen, 180)
        with contextlib.suppress(Exception):  # the run has ended
            os.kill(random.choice(list(function_processes(group_of(run)).values())), signal.SIGKILL)
    run.wait(180)
    print("ended", run.id, run.status, repr(run.cost.total), flush=True)
"""


@pytest.fixture(autouse=True)
def own_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A data directory of its own for each test, and no budget in force."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr(spending, "_in_force", {})


def notebook(cap_usd: float) -> subprocess.Popen[str]:
    arguments = [str(Path(__file__).parents[1]), repr(cap_usd)]
    # Lithops gives processes with one session the same ids; notebooks are started apart.
    env = {name: value for name, value in os.environ.items() if name != "__LITHOPS_SESSION_ID"}
    return subprocess.Popen([sys.executable, "-c", NOTEBOOK, *arguments], stdout=subprocess.PIPE, text=True, env=env)


@pytest.mark.parametrize(
    "budget_usd", [pytest.param(None, marks=pytest.mark.long), pytest.param(0.05, marks=pytest.mark.proof)]
)
def test_four_notebooks_stay_within_one_budget(budget_usd: float | None) -> None:
    cap_usd = round(3 * cost_of_a_start() if budget_usd is None else budget_usd / 10, 9)
    session = mlless_nb.session("shared", budget=10 * cap_usd)
    notebooks = [notebook(cap_usd) for _ in range(4)]
    words: list[list[str]] = []
    first = notebooks[0]
    assert first.stdout is not None
    words.append(first.stdout.readline().split())
    assert words[0][0] == "began"
    standing = session.standing
    assert standing.spent_nusd + standing.reserved_nusd <= standing.budget.cap_nusd
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    for each in notebooks[1:]:
        assert each.stdout is not None
        for line in each.stdout.read().splitlines():
            words.append(line.split())
            standing = session.standing
            assert standing.spent_nusd + standing.reserved_nusd <= standing.budget.cap_nusd
        assert each.wait() == 0
    costs = {line[1]: float(line[3]) for line in words if line[0] == "ended"}
    assert len(costs) >= 6
    assert sum(line[0] == "refused" for line in words) == 3
    standing = session.standing
    assert standing.reserved_nusd == 0
    settled = {run.id: (run.spent_nusd or 0) / 1e9 for run in standing.runs}
    assert set(settled) == {*costs, words[0][1]}
    for run_id, cost in costs.items():
        assert settled[run_id] == pytest.approx(cost, abs=2e-9)
        assert cost <= cap_usd
    assert 0 < settled[words[0][1]] <= cap_usd  # of the killed one
    assert session.spent <= session.budget


def test_a_live_runs_budget_is_raised_only_as_far_as_its_session_allows() -> None:
    cap_usd = round(4 * cost_of_a_start(), 9)
    session = mlless_nb.session(budget=10 * cap_usd)
    run = mlless_nb.train(job(budget=4 * cap_usd, stop=Stop(steps=100_000)))
    try:
        wait_for_step(run, 2)
        with pytest.raises(CommandError, match=r"must be at most \$.*, since session .* reserved by"):
            run.budget = 20 * cap_usd
        run.budget = 8 * cap_usd
        assert session.reserved == pytest.approx(8 * cap_usd)
        wait_for_cap(run, 8 * cap_usd)
        run.budget = 6 * cap_usd
        wait_for_cap(run, 6 * cap_usd)
    finally:
        run.stop()
        run.wait(180)
    assert run.status == "stopped"
    assert session.reserved == 0
    assert session.spent == pytest.approx(run.cost.total, abs=2e-9)


def wait_for_cap(run: mlless_nb.TrainingRun, usd: float) -> None:
    """Wait until the supervisor has taken over the cap ``usd``."""
    seen = 0
    while run.budget != pytest.approx(usd, abs=2e-9) and run.telemetry.state.is_live:
        seen = run.telemetry.wait_for_change(seen, 180)
    assert run.telemetry.state.is_live
