"""Errors outside the magics: one line in scripts and in cells, and whole tracebacks of everything else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

import mlless_nb
from mlless_nb import JobError, choice
from mlless_nb.errors import CommandError, WaitInterrupted
from mlless_nb.search.study import Study
from mlless_nb.search.trial import Trial


def script(tmp_path: Path, text: str, **env: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "mine.py").write_text(text)
    return subprocess.run(
        [sys.executable, "mine.py"],
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path), **env},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


WRONG = """import dataclasses
from mlless_nb import PMF, TrainingJob, datasets
def mine():
    return TrainingJob(model=PMF(rank=2), data=datasets.synthetic_ratings(30, 20, 400), workers=0)
mine()
"""


def test_a_script_ends_in_one_line_with_the_users_own_place(tmp_path: Path) -> None:
    done = script(tmp_path, WRONG)
    assert done.returncode == 1
    assert done.stderr == (f"JobError in {tmp_path}/mine.py, line 4: workers=0: must be an integer >= 1 or None\n")


@pytest.mark.long
def test_all_of_it_is_there_for_who_asks_and_a_bug_is_never_hidden(tmp_path: Path) -> None:
    assert "Traceback" in script(tmp_path, WRONG, MLLESS_TRACEBACK="1").stderr
    assert "Traceback" in script(tmp_path, "from mlless_nb import PMF\n1 / 0\n").stderr
    theirs = "import sys\nsys.excepthook = lambda *_: print('theirs')\n"
    assert script(tmp_path, theirs + WRONG).stdout == "theirs\n"


@pytest.fixture
def shell() -> InteractiveShell:
    return InteractiveShell(config=Config({"HistoryManager": {"hist_file": ":memory:"}, "InteractiveShell": {}}))


@pytest.fixture
def current(shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> InteractiveShell:
    monkeypatch.setattr("IPython.get_ipython", lambda: shell)
    return shell


CELL = "from mlless_nb import PMF\n\nPMF(rank=0)\n"


def test_a_cell_ends_in_one_line_without_the_extension(
    current: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    result = current.run_cell(CELL, store_history=True)
    assert isinstance(result.error_in_exec, JobError)
    (said,) = capsys.readouterr().out.strip().splitlines()
    assert said.startswith("JobError in cell In[1], line 3: PMF.rank=0: must be")


def test_a_cell_has_all_of_it_under_xmode_verbose(
    current: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    current.run_line_magic("xmode", "Verbose")
    try:
        current.run_cell(CELL)
    finally:
        current.run_line_magic("xmode", "Context")
    assert len(capsys.readouterr().out.splitlines()) > 10


def test_other_errors_of_a_cell_are_shown_as_ever(
    current: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    current.run_cell("import mlless_nb\n1 / 0\n")
    assert "Traceback" in capsys.readouterr().out


def test_an_interrupted_wait_says_what_becomes_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    run = mlless_nb.TrainingRun(None, "id-1", "first")
    run.telemetry.update(name="first", status="running", step=7, spent_usd=0.0125, rate_usd_s=1e-5)

    def interrupt(_: float) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(run._over, "wait", interrupt)
    monkeypatch.setattr("IPython.get_ipython", lambda: None)
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    with pytest.raises(WaitInterrupted, match=r"run 'first' goes on \(step 7, \$0.0125 so far, \$0.036 an hour\); "):
        run.wait()
    with pytest.raises(KeyboardInterrupt):
        _ = run.model
    monkeypatch.delattr(sys, "ps1")
    with pytest.raises(WaitInterrupted, match=r"run 'first' ends with this script .*attach\('first'\)\.model"):
        run.wait()


def test_an_interrupted_wait_says_what_becomes_of_the_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: float) -> bool:
        raise KeyboardInterrupt

    sweep = mlless_nb.Sweep("rates", "RMSE", {}, Study({"rank": choice(2, 4)}, "grid", None, None, 0), 1)
    sweep._budget_usd = 0.05
    sweep._put(Trial(1, "rates-1", {"rank": 2}, usd=0.0125))
    monkeypatch.setattr(sweep._over, "wait", interrupt)
    monkeypatch.setattr("IPython.get_ipython", lambda: None)
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    goes_on = r"^sweep 'rates' goes on \(1 of 2 trials, \$0.0125 of \$0.05\); its stop\(\) ends it$"
    for waits in (lambda: sweep.wait(), lambda: sweep.best, lambda: sweep.best_trial):
        with pytest.raises(WaitInterrupted, match=goes_on):
            waits()
    monkeypatch.delattr(sys, "ps1")
    with pytest.raises(WaitInterrupted, match=r"sweep 'rates' ends with this script .*runs\(sweep='rates'\) lists its"):
        sweep.wait()
    sweep._status = "stopped"
    with pytest.raises(WaitInterrupted, match=r"^sweep 'rates' has ended: stopped$"):
        sweep.wait()


def test_the_text_is_that_of_the_error() -> None:
    assert CommandError("nothing")._render_traceback_() == ["CommandError: nothing"]
