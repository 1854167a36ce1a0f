"""The feed: which rows and states it gives its sink, and when."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from fake_run import FakeRun

from mlless_nb.telemetry.live import RunState, Telemetry
from mlless_nb.widgets import feed as feed_module
from mlless_nb.widgets.feed import Feed


class Recorder:
    """A sink that keeps what it is given."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int]] = []
        self.states: list[RunState] = []
        self.snapshots: list[int] = []

    def on_rows(self, first: int, rows: Any, state: RunState) -> None:
        self.rows.append((first, len(rows)))
        self.states.append(state)

    def on_snapshot(self, rows: Any, state: RunState) -> None:
        self.snapshots.append(len(rows))


def test_feed_gives_every_row_once_in_order_and_ends_with_the_run() -> None:
    run, sink, ended = FakeRun(n_steps=300, budget_usd=None), Recorder(), threading.Event()
    feed = Feed(run.telemetry, sink, ended.set)
    feed.start()
    run.start(0.002)
    assert ended.wait(30)
    feed.join(5)
    expected = 0
    for first, n in sink.rows:
        assert first == expected
        expected += n
    assert expected == 300
    assert sink.states[-1].status == "finished"
    assert sink.snapshots[-1] == 300


def test_what_a_command_changes_does_not_wait_for_the_next_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    run, batch, answer = FakeRun(n_steps=300, budget_usd=None), threading.Event(), threading.Event()

    class Waiting(Recorder):
        def on_rows(self, first: int, rows: Any, state: RunState) -> None:
            (answer if state.budget_usd == 0.5 else batch).set()

    monkeypatch.setattr(feed_module, "BATCH_S", 600.0)
    feed = Feed(run.telemetry, Waiting(), lambda: None)
    feed.start()
    run.advance(2)
    assert batch.wait(30)
    run.telemetry.update(budget_usd=0.5)
    assert answer.wait(30)
    run.telemetry.update(status="stopped")
    feed.join(30)


@pytest.mark.parametrize(("time_s", "apart_s"), [(3.0, 0.25), (160.0, 0.4), (9000.0, 0.5)])
def test_batches_are_as_far_apart_as_a_curve_takes_for_a_pixel(
    time_s: float, apart_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        feed_module, "SLOW_SEND_S", 600.0
    )  # on a busy machine a batch takes long, and the next one waits
    waited: list[float] = []

    class Timed(Telemetry):
        def wait_for_answer(self, seen: int, timeout_s: float) -> int:
            waited.append(timeout_s)
            self.update(status="stopped")
            return seen

    telemetry = Timed()
    telemetry.update(status="running", time_s=time_s)
    feed = Feed(telemetry, Recorder(), lambda: None)
    feed.start()
    feed.join(30)
    assert waited == [apart_s]


def test_feed_of_a_run_that_is_over_shows_it_and_ends() -> None:
    run, sink, ended = FakeRun(n_steps=5), Recorder(), threading.Event()
    run.advance(9)
    feed = Feed(run.telemetry, sink, ended.set)
    feed.start()
    feed.join(10)
    assert ended.is_set()
    assert sink.rows == [(0, 5)]


def test_feed_closes_while_the_run_goes_on() -> None:
    ended = threading.Event()
    feed = Feed(Telemetry(), Recorder(), ended.set)
    feed.start()
    feed.close()
    feed.close()
    assert not ended.is_set()


@pytest.mark.parametrize("n_steps", [0, 2], ids=["before the first batch", "between two batches"])
def test_a_closed_feed_does_not_wait_for_the_next_batch(monkeypatch: pytest.MonkeyPatch, n_steps: int) -> None:
    run, sent, ended = FakeRun(n_steps=300, budget_usd=None), threading.Event(), threading.Event()

    class Waiting(Recorder):
        def on_rows(self, first: int, rows: Any, state: RunState) -> None:
            sent.set()

    monkeypatch.setattr(feed_module, "BATCH_S", 600.0)
    run.telemetry = run.telemetry if n_steps else Telemetry()
    feed = Feed(run.telemetry, Waiting(), ended.set)
    feed.start()
    if n_steps:
        run.advance(n_steps)
        assert sent.wait(30)
    feed.close()
    feed.join(30)
    assert feed._thread not in threading.enumerate()
    assert not ended.is_set()
