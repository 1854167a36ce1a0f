"""Before a run: ``--dry-run``, and the estimate that is computed beside a run that starts."""

from __future__ import annotations

from typing import Any

import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from mlless_nb import PMF, SGD, Stop, TrainingJob, datasets

BODY = "model = PMF(rank=3)\noptimizer = SGD(learning_rate=0.5)\ndata = ratings\n"
LINE = "--minibatch 50 --workers 2"


@pytest.fixture
def notebook(shell: InteractiveShell) -> InteractiveShell:
    ratings = datasets.synthetic_ratings(30, 20, 400, rank=2, seed=0)
    shell.push({"PMF": PMF, "SGD": SGD, "ratings": ratings})
    return shell


def train(notebook: InteractiveShell, line: str = "", body: str = BODY) -> None:
    notebook.run_cell_magic("mlless", f"{LINE} {line}", body)


def test_far_too_many_workers_are_told_above_the_run(notebook: InteractiveShell, stage: Any) -> None:
    for frontend, line, begin in (
        ("live", "--workers 20", "warning: workers=20: "),
        ("live", "--workers 2", ""),
        ("none", "--workers 20", ""),
    ):
        stage.frontend = frontend
        with capture_output() as shown:
            notebook.run_cell_magic("mlless", f"{line} --minibatch 10 --force", BODY)
        assert bool(shown.stdout) == bool(begin)
        assert shown.stdout.startswith(begin)
        assert "JobWarning" not in shown.stderr
    assert len(stage.runs) == 3


def test_a_dry_run_checks_the_cell_and_starts_nothing(notebook: InteractiveShell, stage: Any) -> None:
    with capture_output() as shown:
        train(notebook, "--dry-run --epochs 3 --scale-in off")
    assert stage.runs == stage.shown == []
    assert "run" not in notebook.user_ns
    (output,) = shown.outputs
    said = output.data["text/plain"].splitlines()
    assert said[0] == "dry run, nothing was started: PMF rank 3 · generated ratings (synthetic) · BSP"
    assert said[1].startswith("2 workers, 50 rows in a minibatch, SGD 0.5")
    assert said[2].startswith("about $")
    assert "this machine" in output.data["text/plain"]
    assert output.data["text/html"].count("<svg") == 1


def test_the_advice_of_a_job_has_its_chart(notebook: InteractiveShell, stage: Any) -> None:
    data = notebook.user_ns["ratings"]
    notebook.push({"plan": TrainingJob(PMF(rank=3), data=data, workers=2, minibatch=50, stop=Stop(epochs=3))})
    with capture_output() as shown:
        notebook.run_line_magic("mlless", "advise plan")
    assert stage.runs == []
    (output,) = shown.outputs
    assert "this machine" in output.data["text/plain"]
    assert output.data["text/html"].count("<svg") == 1
    with pytest.raises(UsageError, match="nothing"):
        notebook.run_line_magic("mlless", "advise nothing")


@pytest.mark.parametrize("line", ["advise", "advise lasting"])
def test_advice_on_a_run_whose_job_is_not_known_says_so(notebook: InteractiveShell, stage: Any, line: str) -> None:
    stage.add("lasting")[0].end()
    with pytest.raises(UsageError, match="the job of lasting is not known here; name a variable that holds a Train"):
        notebook.run_line_magic("mlless", line)


@pytest.mark.parametrize(
    ("line", "body", "says"),
    [
        ("--workers 0", BODY, "line 1 of the cell: workers=0"),
        ("--target 99 --workers 2", BODY, "line 1 of the cell: stop.target=99: must be below"),
        ("--budget 1e-7 --workers 2", BODY, "line 1 of the cell: budget=1e-07: must be at least"),
        ("--workers 2", BODY + "redis = 'redis://127.0.0.1:1/0'\n", "127.0.0.1:1"),
        ("--workers 2 --resume never", BODY, "never"),
        ("--workers 2 --name ratings", BODY, "the notebook has a variable ratings"),
    ],
)
def test_a_dry_run_refuses_what_a_run_would(
    notebook: InteractiveShell, stage: Any, line: str, body: str, says: str
) -> None:
    with pytest.raises(UsageError) as caught:
        notebook.run_cell_magic("mlless", f"--minibatch 50 --dry-run {line}", body)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
