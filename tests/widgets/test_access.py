"""What can be done after the end is said as it works where the run is shown."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from fake_run import FakeRun

from mlless_nb.widgets import Dashboard, access, static_bundle, text_summary
from mlless_nb.widgets.access import Access, access_to


def place(monkeypatch: pytest.MonkeyPatch, **variables: Any) -> None:
    """Let there be a shell with these variables."""
    monkeypatch.setattr(
        access, "shell_here", lambda: SimpleNamespace(user_ns=variables, find_cell_magic=lambda name: name)
    )


def ended(name: str = "first") -> FakeRun:
    run = FakeRun(name, n_steps=3)
    run.advance(3)
    return run


def test_a_notebook_has_magics_and_the_variable_if_it_is_this_run(monkeypatch: pytest.MonkeyPatch) -> None:
    run, dashed = ended(), ended("my-run")
    place(monkeypatch, first=run, my_run=dashed)
    assert [access_to(one) for one in (run, dashed)] == [Access("first", True), Access("my_run", True)]
    told = 'first.model.save("first.npz") keeps the model; %%mlless --resume first --budget '
    assert told in text_summary(run)
    assert Dashboard(run).status["next_text"].startswith(told)
    place(monkeypatch, run=run, first=ended())  # another one
    assert access_to(run) == Access("mlless_nb.attach('first')", True)
    told = "mlless_nb.attach('first').model.save("
    assert told in text_summary(run)
    assert Dashboard(run).status["next_text"].startswith(told)


def test_where_the_extension_is_not_loaded_no_magic_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = SimpleNamespace(user_ns={}, find_cell_magic=lambda name: None)
    monkeypatch.setattr(access, "shell_here", lambda: shell)
    assert access_to(ended()) == Access("mlless_nb.attach('first')", False)


def test_a_script_has_neither(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "shell_here", lambda: None)
    told = (
        "mlless_nb.attach('first').model.save(\"first.npz\") keeps the model; "
        "mlless_nb.train(job, resume='first') goes on from it."
    )
    assert text_summary(ended()).endswith(told)
    assert static_bundle(ended())["text/plain"].endswith(told)
