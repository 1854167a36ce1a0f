"""Which front end gets what."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from fake_run import FakeRun

from mlless_nb import TrainingRun
from mlless_nb.adviser import foresight
from mlless_nb.errors import JobError, WaitInterrupted
from mlless_nb.money import Cost
from mlless_nb.widgets import can_click, detect, show
from mlless_nb.widgets import dashboard as dashboard_module
from mlless_nb.widgets import display as display_module


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLLESS_PROGRESS", raising=False)
    monkeypatch.delenv("SERVER_SOFTWARE", raising=False)


def shell(**kernel: Any) -> SimpleNamespace:
    return SimpleNamespace(kernel=SimpleNamespace(**kernel))


def test_a_kernel_that_may_ask_is_live_and_one_that_may_not_is_batch() -> None:
    assert detect(shell(_allow_stdin=True)) == "live"
    assert detect(shell()) == "live"
    assert detect(shell(_allow_stdin=False)) == "batch"
    assert detect(SimpleNamespace()) == "terminal"


def test_voila_is_live_though_it_may_not_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVER_SOFTWARE", "voila/0.5")
    assert detect(shell(_allow_stdin=False)) == "voila"
    assert can_click("voila")
    assert can_click("live")
    assert not any(can_click(kind) for kind in ("batch", "terminal", "none"))  # type: ignore[arg-type]


def test_the_environment_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    for word, kind in {"widget": "live", "text": "batch", "none": "none"}.items():
        monkeypatch.setenv("MLLESS_PROGRESS", word)
        assert detect(shell(_allow_stdin=True)) == kind
    monkeypatch.setenv("MLLESS_PROGRESS", "loud")
    with pytest.raises(JobError, match="widget, text or none"):
        detect()


def test_terminal_prints_whole_lines_and_the_result(capsys: pytest.CaptureFixture[str]) -> None:
    run = FakeRun(n_steps=30)
    run.start(0.001)
    show(run, wait=True, frontend="terminal")
    lines = capsys.readouterr().out.splitlines()
    assert "first: starting" in lines[0] or "first: running" in lines[0]
    assert lines[1].startswith("first: finished · step 30")
    assert "\r" not in "".join(lines)
    assert any("All 30 steps are done." in line for line in lines)


def test_batch_ends_with_the_static_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    published: list[dict[str, str]] = []
    monkeypatch.setattr(display_module, "_publish", published.append)
    run = FakeRun(n_steps=3)
    run.start(0.001)
    show(run, wait=True, frontend="batch")
    assert set(published[0]) == {"image/svg+xml", "text/html", "text/plain"}


def test_lines_come_at_their_pace(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(display_module, "LINE_EVERY_S", 0.05)
    run = FakeRun(n_steps=200, budget_usd=None)
    run.start(0.002)
    show(run, wait=True, frontend="terminal")
    running = [line for line in capsys.readouterr().out.splitlines() if line.startswith("first: running")]
    assert len(running) >= 2


def test_none_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    run = FakeRun(n_steps=3)
    run.start(0.001)
    show(run, wait=True, frontend="none")
    assert capsys.readouterr().out == ""
    assert run.telemetry.state.status == "finished"


@pytest.mark.parametrize(("kind", "is_told"), [("live", True), ("terminal", True), ("batch", True), ("none", False)])
def test_what_it_will_take_is_computed_beside_it_where_somebody_sees_it(
    kind: Any, is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []
    monkeypatch.setattr(foresight, "announce", told.append)
    monkeypatch.setattr(dashboard_module, "display", lambda *_, **__: None)
    monkeypatch.setattr(dashboard_module.Feed, "start", lambda _: None)
    run = FakeRun()
    show(run, frontend=kind)
    assert told == ([run] if is_told else [])


def test_an_interrupt_ends_the_wait_with_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any) -> Any:
        raise KeyboardInterrupt

    run = FakeRun()
    monkeypatch.setattr(run.telemetry, "wait_for_change", interrupt)
    with pytest.raises(WaitInterrupted, match=r"^run 'first' (goes on|ends with this script) \(step 0, "):
        show(run, wait=True, frontend="none")


def test_without_wait_show_returns_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    show(FakeRun(), frontend="terminal")
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_the_value_of_a_cell_is_shown_live_while_it_trains_where_a_person_can_click(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown: list[Any] = []
    monkeypatch.setattr("mlless_nb.widgets.show", shown.append)
    run = TrainingRun(None, "id-1", "first")
    monkeypatch.setenv("MLLESS_PROGRESS", "text")
    with pytest.raises(NotImplementedError):  # for IPython: to take the next best form
        run._ipython_display_()
    monkeypatch.setenv("MLLESS_PROGRESS", "widget")
    run._ipython_display_()
    assert shown == [run]
    run._end(None, Cost(), status="finished")
    with pytest.raises(NotImplementedError):
        run._ipython_display_()
