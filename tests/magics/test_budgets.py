"""``%mlless session``, ``%mlless project``, and the lines of ``ps`` and ``clean``."""

from __future__ import annotations

from pathlib import Path

import pytest
from IPython.core.error import UsageError

from mlless_nb.driver import spending
from mlless_nb.errors import MllessError
from mlless_nb.magics.commands import perform
from mlless_nb.magics.completion import candidates


@pytest.fixture(autouse=True)
def own_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A data directory of its own for each test, and no budget in force."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr(spending, "_in_force", {})


def test_they_set_show_and_leave(capsys: pytest.CaptureFixture[str]) -> None:
    perform("session --budget $0.05")
    perform("session")
    first, second = capsys.readouterr().out.splitlines()
    assert first == second
    assert "has $0.05 left of $0.05: $0.00 spent, $0.00 reserved" in first
    perform("session shared --budget=0.07")
    perform("project thesis --budget 5")
    assert spending.in_force() == {"session": "shared", "project": "thesis"}
    perform("session --leave")
    assert capsys.readouterr().out.splitlines()[-1] == "new runs belong to no session"
    assert spending.in_force() == {"project": "thesis"}
    perform("session shared --new")
    assert "session 'shared' has $0.07 left" in capsys.readouterr().out


def test_budget_sets_and_shows_that_of_a_session_and_of_a_project(capsys: pytest.CaptureFixture[str]) -> None:
    perform("budget --session 2.00")
    perform("budget --session")
    first, second = capsys.readouterr().out.splitlines()
    assert first == second
    assert "has $2.00 left of $2.00" in first
    perform("budget --session=$3 ")
    assert "has $3.00 left of $3.00" in capsys.readouterr().out
    perform("budget --project thesis 5")
    assert "project 'thesis' has $5.00 left" in capsys.readouterr().out
    assert spending.in_force()["project"] == "thesis"


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("budget --session 2 3", "%mlless budget --session 2 3: must be one amount in US dollars"),
        ("budget --session --project 3", "must be one amount in US dollars and at most one name"),
        ("budget --session 2 --new", "at most one name, e.g. %mlless budget --session 2.00"),
        ("budget --session -2", "budget"),
        ("budget --session nan", "budget"),
        ("session --budget", "must be one amount in US dollars"),
        ("session --budget lots", "%mlless session --budget lots: must be one amount"),
        ("session --bugdet 5", "%mlless session --bugdet: must be one of --budget, --new, --leave"),
        ("project a b", "%mlless project a b: must be one name"),
        ("session a --leave", "must be without a name"),
        ("session --leave --new", "must be without other options"),
        ("ps --data", "must be %mlless clean --data"),
        ("clean all", r"%mlless clean \.\.\.: must be --redis URL or --data"),
        ("clean redis://:planted-secret@host", r"%mlless clean \.\.\.: must be"),
    ],
)
def test_a_wrong_line_says_what_would_be_right(line: str, text: str) -> None:
    with pytest.raises((UsageError, MllessError), match=text) as refused:
        perform(line)
    assert "\n" not in str(refused.value)


def test_tab_offers_the_options() -> None:
    assert candidates(["%mlless", "session", "--new", ""]) == ["--budget", "--leave"]
    assert candidates(["%mlless", "budget", ""])[-2:] == ["--session", "--project"]
