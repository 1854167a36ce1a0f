"""The live widget without a browser: its traits, its messages, its commands."""

from __future__ import annotations

import json
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake_run import FakeRun

from mlless_nb.widgets import Dashboard
from mlless_nb.widgets import dashboard as dashboard_module
from mlless_nb.widgets import feed as feed_module
from mlless_nb.widgets.controls import KEPT_REPLIES, Controls
from mlless_nb.widgets.rows import VIEW_COLUMNS

#: Bytes of the Jupyter message around a message to the page: header, parent header, metadata.
HEADER_BYTES = 700


# ------------------------------------------------------------------------------------------------------ the commands


def test_a_command_sent_again_is_carried_out_once() -> None:
    run = FakeRun()
    run.advance(3)
    controls = Controls(run)
    replies = [controls.handle({"cmd": "scale_in", "id": "a", "value": 1}) for _ in range(5)]
    assert run.commands == [("scale_in", 3)]
    assert replies == [{"kind": "ack", "id": "a", "ok": True, "text": ""}] * 5


def test_commands_from_many_threads_are_carried_out_once_each() -> None:
    run = FakeRun()
    run.advance(3)
    controls = Controls(run)
    threads = [
        threading.Thread(target=controls.handle, args=({"cmd": "budget", "id": str(i % 4), "value": 1 + i % 4},))
        for i in range(40)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(run.commands) == [("budget", 1.0), ("budget", 2.0), ("budget", 3.0), ("budget", 4.0)]


@pytest.mark.parametrize(
    ("message", "says"),
    [
        ({"cmd": "budget", "value": "0.000001"}, "at least"),
        ({"cmd": "budget", "value": "much"}, "dollars above 0"),
        ({"cmd": "budget", "value": None}, "dollars above 0"),
        ({"cmd": "budget", "value": "nan"}, "dollars above 0"),
        ({"cmd": "scale_in", "value": 9}, "one worker must be left"),
        ({"cmd": "scale_in", "value": "all"}, "not a number of workers"),
        ({"cmd": "scale_in", "value": float("nan")}, "not a number of workers"),
        ({"cmd": "format c:"}, "not a command"),
        ({}, "not a command"),
    ],
)
def test_what_cannot_be_done_is_refused_in_words(message: dict[str, Any], says: str) -> None:
    run = FakeRun()
    run.advance(3)
    reply = Controls(run).handle({"id": "x", **message})
    assert reply["ok"] is False
    assert says in reply["text"]
    assert run.commands == []


def test_dollars_are_read_as_people_write_them() -> None:
    run = FakeRun()
    controls = Controls(run)
    for i, text in enumerate(("0.40", "$0.40", " 1,000.5 ", "$1,000,000")):
        assert controls.handle({"cmd": "budget", "id": str(i), "value": text})["ok"]
    assert run.commands == [("budget", 0.4), ("budget", 0.4), ("budget", 1000.5), ("budget", 1e6)]


@pytest.mark.parametrize("text", ["0,05", "1,5", "1,00", "1.000,5", "0,400", ",5", "1,0000"])
def test_a_comma_that_may_be_a_decimal_one_is_refused(text: str) -> None:
    run = FakeRun()
    reply = Controls(run).handle({"cmd": "budget", "id": "x", "value": text})
    assert not reply["ok"]
    assert "with a point" in reply["text"]
    assert run.commands == []


def test_the_auto_tuner_is_paused_and_resumed() -> None:
    run = FakeRun()
    controls = Controls(run)
    assert [controls.handle({"cmd": "tune", "id": str(on), "value": on})["ok"] for on in (False, True)] == [True, True]
    assert run.commands == [("tune", False), ("tune", True)]


def test_an_ended_run_is_continued_once() -> None:
    run, started = FakeRun(n_steps=3, workers=2), []
    controls = Controls(run, started.append)
    assert not controls.handle({"cmd": "continue", "id": "0", "value": "0.05"})["ok"]  # it is live
    run.advance(3)
    assert controls.cannot_resume == ""
    assert "dollars above 0" in controls.handle({"cmd": "continue", "id": "1", "value": "more"})["text"]
    reply = controls.handle({"cmd": "continue", "id": "2", "value": "0.05"})
    assert reply["ok"]
    assert run.commands == [("resume", 0.05)]
    assert [one.budget for one in started] == [0.05]
    assert not controls.handle({"cmd": "continue", "id": "3", "value": "0.05"})["ok"]
    started[0].stop()


def test_a_run_that_was_attached_to_says_how_it_is_continued() -> None:
    run = FakeRun(n_steps=3)
    run.advance(3)
    run.job = None
    assert Controls(run).cannot_resume == (
        f'Its data is not known here: mlless_nb.train(job, resume="{run.name}") goes on from it.'
    )


def test_nothing_is_asked_of_a_run_that_has_ended() -> None:
    run = FakeRun(n_steps=2)
    run.advance(2)
    assert Controls(run).handle({"cmd": "stop", "id": "1"})["ok"] is False
    assert run.commands == []


def test_kept_replies_are_bounded() -> None:
    controls = Controls(FakeRun())
    for i in range(KEPT_REPLIES + 50):
        controls.handle({"cmd": "none", "id": str(i)})
    assert len(controls._replies) == KEPT_REPLIES


# -------------------------------------------------------------------------------------------------------- the widget


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[dict[str, Any], list[bytes]]]:
    """What dashboards send as custom messages."""
    messages: list[tuple[dict[str, Any], list[bytes]]] = []
    monkeypatch.setattr(
        Dashboard, "send", lambda _self, content, buffers=None: messages.append((content, buffers or []))
    )
    return messages


def floats(blob: bytes) -> np.ndarray:
    return np.frombuffer(blob, "<f4").reshape(-1, len(VIEW_COLUMNS))


def test_a_new_widget_already_holds_the_run() -> None:
    run = FakeRun()
    run.advance(30)
    widget = Dashboard(run)
    assert widget.status["word"] == "Running"
    assert floats(widget.snapshot)[0, 0] == 30
    assert floats(widget.snapshot)[-1, 0] == 30


def test_rows_go_out_as_float32_with_their_number(sent: list[Any]) -> None:
    run = FakeRun()
    widget = Dashboard(run)
    run.advance(7)
    widget.on_rows(2, run.telemetry.rows_since(2), run.telemetry.state)
    message, buffers = sent[-1]
    assert (message["kind"], message["first"]) == ("rows", 2)
    assert floats(buffers[0])[:, 0].tolist() == [3, 4, 5, 6, 7]


def test_only_what_has_changed_goes_out(sent: list[Any]) -> None:
    run = FakeRun()
    widget = Dashboard(run)
    run.advance(2)
    for _ in range(2):
        widget.on_rows(0, run.telemetry.rows_since(0), run.telemetry.state)
        run.advance(1)
    assert ["events" in message["status"] for message, _ in sent] == [True, False]
    assert ["progress_text" in message["status"] for message, _ in sent] == [True, True]
    assert len(str(sent[1][0])) < 2500


def test_times_of_workers_are_sent_once_a_second_and_when_one_leaves(
    sent: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(now_s=100.0, monotonic=lambda: clock.now_s)
    monkeypatch.setattr(dashboard_module, "time", clock)
    run = FakeRun(removes_at=(6,))
    widget = Dashboard(run)
    for clock.now_s in (100.0, 100.1, 100.2, 101.3, 101.4, 101.5):
        run.advance(1)
        times = [[slot, 1, 0.015, 0.001 * run.telemetry.n_rows, 0, 0, 0, 0, 0] for slot in range(3)]
        run.telemetry.update(worker_times=times)
        widget.on_rows(0, run.telemetry.rows_since(0), run.telemetry.state)
    told = ["strip" in message["status"] for message, _ in sent]
    assert told == [True, False, False, True, False, True]


class Earlier:
    """A run that has ended."""

    def __init__(self, name: str, **how: Any) -> None:
        self._run = FakeRun(name, n_steps=200, budget_usd=None, **how)
        self._run.advance(200)
        self.name, self.telemetry = name, self._run.telemetry


def test_earlier_runs_on_the_same_data_are_drawn_too(monkeypatch: pytest.MonkeyPatch) -> None:
    others = [Earlier(name) for name in ("one", "two", "three", "four")]
    others[2].telemetry.update(description="PMF rank 20 · other data · BSP")
    monkeypatch.setattr(dashboard_module.registry, "handles", lambda: others)
    curves = Dashboard(FakeRun()).earlier
    assert [curve["name"] for curve in curves] == ["four", "two", "one"]
    points = curves[0]["points"]
    assert len(points) == 50  # the evaluations
    assert points[-1][0] == 200
    assert points[-1][3] == pytest.approx(0.8655 + 0.07 / 6, rel=1e-4)


def test_two_frames_are_not_the_same_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """All tables of pandas have the same name in a run's description."""
    others = [Earlier(name) for name in ("one", "two", "three")]
    for other, key in zip(others, ("a", "b", ""), strict=True):
        other.telemetry.update(data_key=key, description="PMF rank 20 · DataFrame · ISP 0.7")
    monkeypatch.setattr(dashboard_module.registry, "handles", lambda: others)
    run = FakeRun()
    run.telemetry.update(data_key="a", description="PMF rank 20 · DataFrame · BSP")
    assert [curve["name"] for curve in Dashboard(run).earlier] == ["one"]


def test_hello_is_answered_with_everything(sent: list[Any]) -> None:
    run = FakeRun(n_steps=9000, budget_usd=None)
    widget = Dashboard(run)
    run.advance(6000)
    assert not widget.is_seen
    widget._on_message(widget, {"cmd": "hello"}, [])
    message, buffers = sent[-1]
    assert widget.is_seen
    assert message["kind"] == "all"
    assert floats(buffers[0])[0, 0] == 6000
    assert len(floats(buffers[0])) <= 1 + dashboard_module.HELLO_ROWS


def test_a_ping_is_answered(sent: list[Any]) -> None:
    widget = Dashboard(FakeRun())
    widget._on_message(widget, {"cmd": "ping"}, [])
    assert sent[-1][0] == {"kind": "pong"}


def shown_by(sent: list[tuple[dict[str, Any], list[bytes]]]) -> dict[str, Any]:
    """The status that a page has after these messages."""
    status: dict[str, Any] = {}
    for message, _ in sent:
        status = message["status"] if message["kind"] == "all" else status | message["status"]
    return status


def test_what_ends_after_a_hello_is_taken_back(sent: list[Any]) -> None:
    run = FakeRun()
    widget = Dashboard(run)
    run.advance(3)
    widget.on_rows(0, run.telemetry.rows_since(0), run.telemetry.state)
    run.telemetry.update(pending=("removing 1 worker ...",))
    widget._on_message(widget, {"cmd": "hello"}, [])
    assert shown_by(sent)["pending"]
    run.telemetry.update(pending=())
    widget.on_rows(3, run.telemetry.rows_since(3), run.telemetry.state)
    assert not shown_by(sent)["pending"]


def test_a_reply_to_hello_brings_nothing_back(sent: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that was reloaded says hello, and what is pressed there is confirmed while the reply is being made."""
    run = FakeRun()
    widget = Dashboard(run)
    run.advance(3)
    is_making, is_told = threading.Event(), threading.Event()
    words_of = dashboard_module.words_of

    def slow_words(*given: Any, **more: Any) -> dict[str, Any]:
        words = words_of(*given, **more)
        if not is_making.is_set():
            is_making.set()
            is_told.wait(0.5)  # not for longer: the feed may have to wait for the reply
        return words

    monkeypatch.setattr(dashboard_module, "words_of", slow_words)
    replying = threading.Thread(target=widget._on_message, args=(widget, {"cmd": "hello"}, []))
    replying.start()
    assert is_making.wait(20)
    run.budget = 0.5
    widget.on_rows(0, run.telemetry.rows_since(0), run.telemetry.state)
    is_told.set()
    replying.join(20)
    assert shown_by(sent)["budget"] == 0.5


def test_what_is_saved_with_the_widget_is_small() -> None:
    run = FakeRun(n_steps=2000, budget_usd=None)
    run.advance(1500)
    state = Dashboard(run).get_state()
    assert sum(len(str(state[key])) for key in state if key not in ("_esm", "_css", "snapshot")) < 20_000
    assert len(state["snapshot"]) < 20_000
    assert sum(len(str(state[key])) for key in ("_esm", "_css")) < 80_000


def test_ten_steps_a_second_of_a_long_run_are_15_kb_a_second_for_the_page(sent: list[Any]) -> None:
    run = FakeRun(n_steps=20_000, budget_usd=None)
    run.advance(10_000)
    widget = Dashboard(run)
    batch_bytes = []
    for _ in range(5):
        first = run.telemetry.n_rows
        run.advance(3)
        widget.on_rows(first, run.telemetry.rows_since(first), run.telemetry.state)
        message, buffers = sent[-1]
        batch_bytes.append(len(json.dumps(message)) + sum(map(len, buffers)) + HEADER_BYTES)
    widget.on_snapshot(run.telemetry.rows_since(0), run.telemetry.state)
    snapshot_bytes = len(widget.snapshot) + len(json.dumps(widget.status)) + HEADER_BYTES
    a_second = max(batch_bytes[1:]) / feed_module.BATCH_S + snapshot_bytes / feed_module.SNAPSHOTS_APART_S
    assert a_second <= 15_000


def test_presses_are_acknowledged_and_stop_shows_at_once(sent: list[Any]) -> None:
    run = FakeRun()
    run.advance(2)
    widget = Dashboard(run)
    widget._on_message(widget, {"cmd": "stop", "id": "s"}, [])
    assert sent[-1][0] == {"kind": "ack", "id": "s", "ok": True, "text": ""}
    widget.on_rows(0, run.telemetry.rows_since(0), run.telemetry.state)
    assert sent[-1][0]["status"]["word"] == "Stopping"


def test_nonsense_from_the_browser_is_passed_over(sent: list[Any]) -> None:
    widget = Dashboard(FakeRun())
    for message in (None, "stop", 7, ["stop"]):
        widget._on_message(widget, message, [])
    assert sent == []


def test_the_browser_chooses_the_subshell() -> None:
    class Comm:
        def _reply_subshell_for(self, data: Any, default: Any) -> Any:
            return "a dead one"

    comm = Comm()
    dashboard_module.let_browser_choose_subshell(comm)
    assert comm._reply_subshell_for({}, "the one it asked for") == "the one it asked for"
    dashboard_module.let_browser_choose_subshell(object())


def test_at_the_end_the_picture_replaces_the_widget(sent: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[tuple[str, Any]] = []
    monkeypatch.setattr(
        dashboard_module, "display", lambda _w, display_id, update: shown.append((display_id, "widget"))
    )
    monkeypatch.setattr(
        dashboard_module, "update_display", lambda bundle, raw, display_id: shown.append((display_id, bundle))
    )
    run = FakeRun(n_steps=20)
    widget = Dashboard(run)
    widget.display()
    run.advance(20)
    widget.join(20)
    (first, _), (second, bundle) = shown
    assert first == second
    assert set(bundle) == {"image/svg+xml", "text/html", "text/plain"}
    assert widget.status["word"] == "Finished"
    assert floats(widget.snapshot)[0, 0] == 20
    widget.close()
