"""``%%mlless sweep``: how a cell becomes the jobs of its trials, and what its line says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from mlless_nb import PMF, SGD, Adam, Stop, Sweep, choice, datasets, log_uniform
from mlless_nb.magics import commands, many, sweeping
from mlless_nb.magics.sweep_cell import recipe_of_cell
from mlless_nb.search.recipe import tried
from mlless_nb.search.study import Study
from mlless_nb.search.trial import Trial

NAMES = {"ratings": datasets.synthetic_ratings(60, 40, 900, rank=2, seed=1), "PMF": PMF, "SGD": SGD, "Adam": Adam}
CELL = """learning_rate = log_uniform(0.1, 10.0)
model = PMF(rank=choice(2, 4))
optimizer = SGD(learning_rate=learning_rate)
data = ratings
minibatch = 90
"""


def settings_of(cell: str, names: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
    return tried(recipe_of_cell(cell, {**NAMES, **(names or {})}, {}, {"epochs": 3}, "<cell>"))[:2]


def test_a_cell_names_its_settings() -> None:
    job, spaces = settings_of(CELL)
    assert spaces == {"learning_rate": log_uniform(0.1, 10.0), "rank": choice(2, 4)}
    assert (job.model.rank, job.optimizer.learning_rate, job.stop) == (2, 0.1, Stop(epochs=3))


def test_calls_that_have_one_name_are_told_apart() -> None:
    cell = CELL.replace(
        "SGD(learning_rate=learning_rate)",
        "choice(SGD(learning_rate=choice(1.0, 2.0)), Adam(choice(0.1, 0.2)), SGD(learning_rate))",
    )
    _, spaces = settings_of(cell)
    assert list(spaces) == ["learning_rate", "rank", "SGD.learning_rate", "choice in line 4", "optimizer"]


def test_spaces_of_the_notebook_are_settings_if_the_cell_reads_them() -> None:
    cell = CELL.replace("learning_rate = log_uniform(0.1, 10.0)\n", "")
    _, spaces = settings_of(cell, {"learning_rate": choice(0.5, 1.0), "other": choice(1, 2)})
    assert spaces == {"learning_rate": choice(0.5, 1.0), "rank": choice(2, 4)}


@pytest.mark.parametrize(
    ("line", "cell", "says"),
    [
        ("", CELL, "budget=None: must be what all trials may cost together"),
        ("--budget x", CELL, "argument --budget: invalid float value: 'x'"),
        ('--budget 0.01 --name "mine', CELL, "No closing quotation"),
        ("--budget 0.01 --trails 3", CELL, "not an option of a sweep; is --trials meant"),
        ("--budget 0.01 --dry-run", CELL, "--dry-run: not an option of a sweep"),
        ("--budget 0.01 --sampler best", CELL, "must be one of auto, tpe, random, grid"),
        ("--budget 0.01 --trials 0", CELL, "trials=0: must be an integer >= 1"),
        ("--budget 0.01 --name print", CELL, "must not be a keyword or builtin"),
        ("--budget 0.01 --name ratings", CELL, r"has a variable ratings \(Ratings\)"),
        (
            "--budget 0.01",
            CELL.replace("0.1, 10.0", "10.0, 0.1"),
            "line 2 of the cell: log_uniform=.* the lower one first",
        ),
        ("--budget 0.01", CELL.replace("choice(2, 4)", "choice(2, 0)"), "line 3 of the cell: PMF.rank=0"),
        ("--budget 0.01", "model = PMF(2)\ndata = ratings\n", "at least one choice"),
        ("--budget 0.01", "model = PMF(2\n", "line 2 of the cell: "),
        ("--budget 0.01", CELL + "validation = None\n", "compared by their held-out losses"),
    ],
)
def test_mistakes_are_one_line(shell: InteractiveShell, stage: Any, line: str, cell: str, says: str) -> None:
    shell.user_ns.update(NAMES)
    with pytest.raises(UsageError, match=says) as caught:
        shell.run_cell_magic("mlless", f"sweep {line}", cell)
    assert "\n" not in str(caught.value)


class FakeSweep(Sweep):
    """A sweep without trials."""

    def __init__(self, name: str) -> None:
        self.name, self.id, self.asked = name, f"{name}-0", False

    is_live = True  # type: ignore[assignment]

    def stop(self) -> None:
        self.asked = True


def test_far_too_many_workers_are_told_above_the_sweep(
    shell: InteractiveShell, stage: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    def begin(recipe: Any, budget: float, warn_of: Any, **own: Any) -> FakeSweep:
        warn_of(tried(recipe)[2])
        return FakeSweep("sweep")

    monkeypatch.setattr(sweeping, "begin", begin)
    monkeypatch.setattr(sweeping, "blocks_by_itself", lambda shell: False)
    monkeypatch.setattr(sweeping.leaderboard, "show", lambda sweep, wait=False: None)
    shell.user_ns.update(NAMES)
    cell = CELL.replace("minibatch = 90", "minibatch = 10")
    told_of = "warning: workers=20: "
    for frontend, workers, begins in (("live", "choice(2, 20)", told_of), ("live", "2", ""), ("none", "20", "")):
        stage.frontend = frontend
        shell.run_cell_magic("mlless", "sweep --budget 0.01 --epochs 3", f"{cell}workers = {workers}\n")
        told = capsys.readouterr()
        assert told.out.startswith(begins)
        assert (told.out.count("\n"), told.err) == (bool(begins), "")


def test_the_handle_becomes_a_variable_and_stop_finds_it(
    shell: InteractiveShell, stage: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    begun: list[Any] = []

    def begin(recipe: Any, budget: float, _warn_of: Any, **own: Any) -> FakeSweep:
        begun.append((budget, own, tried(recipe)[0].workers))
        return FakeSweep(own.get("name", "sweep"))

    monkeypatch.setattr(sweeping, "begin", begin)
    monkeypatch.setattr(sweeping.leaderboard, "show", lambda sweep, wait=False: None)
    monkeypatch.setattr("mlless_nb.widgets.leaderboard.sentence", lambda sweep: sweep.name)
    shell.user_ns.update(NAMES)
    shell.run_cell_magic(
        "mlless", "sweep --budget 0.01 --name my-rates --trials 5 --halving off --workers 2 --epochs 3", CELL
    )
    assert begun == [(0.01, {"name": "my-rates", "trials": 5, "halving": None}, 2)]
    handle = shell.user_ns["my_rates"]
    monkeypatch.setattr(sweeping, "sweeps", lambda: [handle])
    other, _ = stage.add("first", "my-rates-1")
    with pytest.raises(UsageError, match=r"which one\? live are my-rates, first$"):
        shell.run_line_magic("mlless", "stop")
    assert not handle.asked
    other.end()
    shell.run_line_magic("mlless", "stop")
    assert handle.asked
    assert "my-rates" in capsys.readouterr().out
    monkeypatch.setattr(commands, "sweeps", lambda: [handle])
    monkeypatch.setattr(many, "sweeps", lambda: [handle])
    with pytest.raises(UsageError, match=r"%mlless forget my-rates: the sweep is live; %mlless stop my-rates ends it$"):
        shell.run_line_magic("mlless", "forget my-rates")
    with pytest.raises(UsageError, match=r"%mlless scale_in: my-rates is a live sweep; %mlless runs --sweep my-rates"):
        shell.run_line_magic("mlless", "scale_in my-rates")
    handle.is_live, handle._status = False, "finished"
    with pytest.raises(UsageError, match=r"%mlless stop: my-rates is a sweep that has ended \(finished\); "):
        shell.run_line_magic("mlless", "stop my-rates")


def test_commands_take_a_sweep_by_its_name(
    shell: InteractiveShell, stage: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any
) -> None:
    def said(line: str) -> str:
        shell.run_line_magic("mlless", line)
        return str(capsys.readouterr().out)

    def interrupt(_: float) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    ranks = {"rank": choice(2, 4)}
    handle = Sweep("rates", "RMSE", ranks, Study(ranks, "grid", None, None, 0), 1)
    handle._budget_usd = 0.05
    handle._put(Trial(1, "rates-1", "", {"rank": 2}, "finished", loss=0.8, usd=0.0125))
    monkeypatch.setattr(sweeping, "sweeps", lambda: [handle])
    monkeypatch.setattr(Sweep, "dashboard", lambda self: print(f"leaderboard of {self.name}"))
    done = "1 of 2 trials (grid), best RMSE 0.8000 of trial 1 (rank=2), $0.01250 of $0.05"
    goes_on = f"rates: running, {done}\nrates: running, {done}; it goes on, %mlless stop rates ends it\n"
    for name in ("rates", handle.id):
        assert said(f"status {name}") == f"rates: running, {done}\n"
    assert said("wait rates 0") == goes_on
    with monkeypatch.context() as patch:
        patch.setattr(handle._over, "wait", interrupt)
        assert said("wait rates") == goes_on
    assert said("dashboard rates") == "leaderboard of rates\n"
    assert said("budget rates") == "rates: cap $0.05, $0.01250 so far\n"
    assert said("budget 0.25 rates") == "rates: cap $0.25, $0.01250 so far\n"
    assert handle.budget == 0.25
    with capture_output() as shown:
        shell.run_line_magic("mlless", "report rates")
    assert "rates: running" in shown.outputs[0].data["text/html"]
    handle._end("finished", "all 2 trials are done")
    assert said("wait rates").endswith("of $0.25; all 2 trials are done\n")
    with pytest.raises(UsageError, match="'rates' has ended"):
        shell.run_line_magic("mlless", "budget 0.3 rates")
    stage.add("rates")
    assert said("status rates").startswith("rates: running · step 7")
