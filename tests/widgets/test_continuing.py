"""Continue, after the end of a run: the run that goes on from it, and where it is shown."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from fake_run import FakeRun

from mlless_nb.adviser import foresight
from mlless_nb.widgets import Dashboard, access
from mlless_nb.widgets import dashboard as dashboard_module


@pytest.fixture
def displayed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, str, bool]]:
    """The widgets that were displayed, each with its display id and whether in place of another output."""
    shown: list[tuple[Any, str, bool]] = []
    monkeypatch.setattr(dashboard_module.Feed, "start", lambda _: None)
    monkeypatch.setattr(
        dashboard_module, "display", lambda widget, display_id, update: shown.append((widget, display_id, update))
    )
    return shown


def ended(name: str = "first") -> FakeRun:
    run = FakeRun(name, n_steps=3)
    run.advance(3)
    return run


def test_what_the_next_run_will_take_is_told_too(displayed: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr(foresight, "announce", told.append)
    run = ended()
    widget = Dashboard(run)
    widget.display()
    widget._on_message(widget, {"cmd": "continue", "id": "1", "value": "0.05"}, [])
    (_, first, _), (other, second, is_update) = displayed
    assert (second, is_update) == (first, True)
    assert told == [run, other._run]
    assert other._run.budget == 0.05
    other._run.stop()


@pytest.mark.parametrize(("name", "variable"), [("first", "first"), ("my-run", "my_run")])
def test_the_old_view_says_how_the_next_run_is_shown(
    name: str, variable: str, displayed: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page that was reloaded keeps the old view, and shows the next run nowhere."""
    run, sent = ended(name), []
    variables: dict[str, Any] = {variable: run}
    monkeypatch.setattr(
        access, "shell_here", lambda: SimpleNamespace(user_ns=variables, find_cell_magic=lambda name: name)
    )
    monkeypatch.setattr(dashboard_module, "get_ipython", access.shell_here)
    monkeypatch.setattr(Dashboard, "send", lambda _self, content, buffers=None: sent.append(content))
    widget = Dashboard(run)
    widget.display()
    widget._on_message(widget, {"cmd": "continue", "id": "1", "value": "0.05"}, [])
    told = f"It goes on as another run with $0.05: {variable}.dashboard() shows it if it does not appear here."
    answer, everything = sent
    assert (answer["ok"], answer["text"]) == (True, told)
    assert everything["status"]["cannot"]["resume"] == told  # also once the answer has gone
    assert variables[variable] is displayed[1][0]._run
    variables[variable] = None
    by_name = told.replace(f"{variable}.", f"mlless_nb.attach({name!r}).")
    assert widget._controls.cannot_resume == by_name
    displayed[1][0]._run.stop()
