"""A run in one line of a terminal."""

from __future__ import annotations

import io

import pytest
from fake_run import FakeRun

from mlless_nb.widgets import follow, live_line
from mlless_nb.widgets.view_model import RECENT_ROWS


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def line(run: FakeRun, width: int = 0) -> str:
    telemetry = run.telemetry
    return live_line.live_line(telemetry.state, telemetry.rows_since(max(telemetry.n_rows - RECENT_ROWS, 0)), width)


def test_it_has_the_time_left_the_loss_the_workers_and_the_dollars() -> None:
    run = FakeRun(budget_usd=None)
    assert line(run) == "first · starting · $0.00"
    run.advance(100)
    assert line(run) == (
        "first · step 100 of 480 · at most 34 s left · at most $0.0205 at the end · RMSE 0.886 (target 0.868) · "
        "8 workers · $0.00428"
    )


def test_a_narrow_terminal_has_what_is_most_important() -> None:
    run = FakeRun()
    run.advance(100)
    for width in (20, 40, 60, 80, 120):
        assert len(line(run, width)) <= width
    assert line(run, 40).startswith("first · ")
    assert "left" in line(run, 60)


def test_a_terminal_has_one_line_that_is_rewritten_and_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_line, "REDRAW_S", 0.01)
    run, to = FakeRun(n_steps=60), Terminal()
    run.telemetry.update(estimate="about $0.003 and 15 s")
    run.start(0.002)
    follow(run, to)
    drawn = to.getvalue()
    kept = [line.rpartition("\x1b[K")[2] for line in drawn.split("\n")[:-1]]
    events = [f"first: {event.text}" for event in run.telemetry.state.events]
    assert kept == ["first: Expected: about $0.003 and 15 s", *events[: len(kept) - 1]]
    assert drawn.count("\r\x1b[K") >= 3
    assert drawn.endswith("\r\x1b[K")


@pytest.mark.parametrize("to", [Terminal(), io.StringIO()])
def test_events_have_lines_of_their_own(monkeypatch: pytest.MonkeyPatch, to: io.StringIO) -> None:
    monkeypatch.setattr(live_line, "REDRAW_S", 0.01)
    run = FakeRun(n_steps=60)
    for number in range(7):
        run.telemetry.add_event(0.1 * number, f"event {number}")
    run.start(0.01)
    follow(run, to)
    drawn = to.getvalue()
    n_told = [drawn.count(f"first: event {number}\n") for number in range(7)]
    assert n_told[0] == 0  # the newest ones are told, among them those of the run itself
    assert n_told[-3:] == [1, 1, 1]


def test_elsewhere_lines_come_at_their_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_line, "FIRST_LINE_S", 0.02)
    monkeypatch.setattr(live_line, "LINE_EVERY_S", 0.05)
    run, to = FakeRun(n_steps=100), io.StringIO()
    run.start(0.002)
    follow(run, to)
    lines = to.getvalue().splitlines()
    assert len(lines) >= 3
    assert "\r" not in to.getvalue()
