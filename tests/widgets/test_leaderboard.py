"""A sweep as a table, as lines, and as parallel coordinates."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
from fake_sweep import FakeSweep

from mlless_nb import SGD, Adam
from mlless_nb.search import Trial, choice, log_uniform, uniform
from mlless_nb.widgets import leaderboard
from mlless_nb.widgets.live_coordinates import live_coordinates
from mlless_nb.widgets.live_leaderboard import Leaderboard
from mlless_nb.widgets.parallel_coordinates import axis_of, parallel_coordinates


def test_the_best_trial_stands_first() -> None:
    lines = leaderboard.as_text(FakeSweep()).splitlines()
    assert lines[0] == (
        "rates: running, 4 of 9 trials (tpe), best RMSE 0.8000 of trial 2 (rate=3, rank=4, l2=0.5, kind=a<b), "
        "1 pruned, $0.01250 of $0.05"
    )
    assert [line.split()[0] for line in lines[1:6]] == ["trial", "rates-2", "rates-1", "rates-3", "rates-4"]
    assert lines[3].endswith("pruned")
    assert lines[6:] == ["rates-3 failed: SGD.learning_rate=9: must be less"]


def test_a_failed_trial_does_not_lead() -> None:
    """Its lowest loss came before it failed: it stood first, in bold."""
    sweep = FakeSweep()
    sweep.trials[2] = dataclasses.replace(sweep.trials[2], loss=0.7)
    assert [trial.name for trial in sweep.ranked] == ["rates-2", "rates-1", "rates-3", "rates-4"]
    assert parallel_coordinates(sweep).data[0].line.dash == "dash"
    sweep.trials = [sweep.trials[2], sweep.trials[3]]
    assert leaderboard.sentence(sweep).startswith("rates: running, 2 of 9 trials (tpe), best RMSE 0.7000 of trial 3")


def test_html_is_escaped_and_the_best_is_bold() -> None:
    html = leaderboard.as_html(FakeSweep())
    assert "a&lt;b" in html
    assert "mathjax_ignore" in html[: html.index("$")]  # dollar signs are not formulas
    assert "a<b" not in html
    assert html.endswith("<div>rates-3 failed: SGD.learning_rate=9: must be less</div></div>")
    assert html.index("font-weight:600") < html.index("rates-2<") < html.index("rates-1<")


def test_the_live_table_is_that_of_the_sweep_and_its_button_is_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = FakeSweep()
    board = Leaderboard(sweep)
    assert (board.table, board.is_stopping) == (leaderboard.as_html(sweep), False)
    for message in (None, ["stop"], {"cmd": "go on"}):
        board._on_message(board, message, [])
    assert (sweep.n_stopped, board.is_stopping) == (0, False)
    answers: list[Any] = []
    monkeypatch.setattr(board, "send", answers.append)
    board._on_message(board, {"cmd": "stop"}, [])
    assert (sweep.n_stopped, board.is_stopping) == (1, True)
    board._on_message(board, {"cmd": "ping"}, [])
    assert answers == [{"kind": "pong"}] * 2  # else the page takes the kernel for restarted


def test_the_live_table_tells_of_the_end_for_pages_that_were_reloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The static table does not reach these: they show the widget until the kernel ends."""
    monkeypatch.setattr("mlless_nb.widgets.live_leaderboard.update_display", lambda *_, **__: None)
    monkeypatch.setattr("mlless_nb.widgets.live_leaderboard.SEND_S", 0.0)
    sweep = FakeSweep()
    board = Leaderboard(sweep)
    sweep.is_live, sweep.status = False, "finished"  # between two looks at it
    board._feed.start()
    board.join(60.0)
    assert (board.table, board.is_over) == (leaderboard.as_html(sweep), True)


def test_a_page_knows_what_to_say_when_the_kernel_is_gone() -> None:
    told = Leaderboard(FakeSweep()).get_state("if_restarted")["if_restarted"]
    assert told["text"] == (
        "rates: the kernel was restarted; its trials were stopped and saved: mlless_nb.runs(sweep='rates')"
    )
    statuses = [told["words"].get(trial.status, trial.status) for trial in FakeSweep().trials]
    assert statuses == ["pruned", "finished", "failed", "stopped"]


def test_parallel_coordinates_have_an_axis_for_each_setting_and_the_loss() -> None:
    drawn = parallel_coordinates(FakeSweep())
    assert list(drawn.layout.xaxis.ticktext) == ["rate", "rank", "l2", "kind", "best RMSE"]
    weak, best = drawn.data
    assert [weak.name, best.name] == ["rates-1", "rates-2"]  # the best one is on top
    assert (list(weak.y), weak.opacity) == ([0.5, 1 / 3, 0.5, 1.0, 1.0], pytest.approx(0.7))
    assert (weak.line.dash, best.line.dash) == ("dot", "solid")
    assert (list(best.y)[1:], best.opacity) == ([1 / 3, 0.5, 0.0, 0.0], 1.0)
    assert best.hovertemplate.startswith("rate 3, rank 4, l2 0.5, kind a&lt;b, RMSE 0.8000<")
    texts = [note.text for note in drawn.layout.annotations]
    assert texts[:5] == ["0.1", "0.316", "1", "3.16", "10"]
    assert (texts[-6], texts[-1]) == ("0.80", "0.90")
    assert {"a&lt;b", "–"} <= set(texts)


def test_the_drawing_of_a_live_sweep_has_the_lines_of_the_figure() -> None:
    sweep = FakeSweep()
    drawn = Leaderboard(sweep).chart
    labels = re.findall(r"<span>(.*?)</span>", drawn)
    assert labels == ["rate", "rank", "l2", "kind", "best RMSE"]
    titles = re.findall(r"<title>(.*?)</title>", drawn)
    assert titles[-1] == "rates-2: rate 3, rank 4, l2 0.5, kind a&lt;b, RMSE 0.8000"  # the best one is on top
    assert titles[0] == "rates-1: rate 1, rank 4, l2 0.5, kind –, RMSE 0.9000, pruned"
    assert "stroke-dasharray:2 3" in drawn[: drawn.index("<title>rates-1")]  # it was pruned
    assert "#D55E00" in drawn[drawn.index("<title>rates-1") :]
    assert drawn.count("<line ") == 5 + 2 * 4
    sweep.trials = []
    height = re.search(r'<svg [^>]*height="\d+"', drawn)
    empty = live_coordinates(sweep)
    assert height is not None
    assert height[0].split()[-1] in empty
    assert (empty.count("<line "), re.findall(r"<span>(.*?)</span>", empty)) == (5, labels)


def test_the_drawing_follows_the_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlless_nb.widgets.live_leaderboard.SEND_S", 0.0)
    shown: list[tuple[str, dict[str, Any]]] = []
    monkeypatch.setattr(
        "mlless_nb.widgets.live_leaderboard.update_display",
        lambda bundle, raw, display_id: shown.append((display_id, bundle)),
    )
    sweep = FakeSweep()
    later, sweep.trials = sweep.trials, []
    board = Leaderboard(sweep)
    assert "trial" not in re.findall(r'class="(\w+)"', board.chart)
    sweep.trials = later
    board._feed.start()
    board.join(60.0)
    assert board.chart == live_coordinates(sweep)
    assert board.chart.count('class="trial"') == 2
    figure, table = [bundle for _, bundle in shown]  # the figure where the drawing was, above the table
    assert ("application/vnd.plotly.v1+json" in figure, "text/html" in table) == (True, True)
    assert [display_id for display_id, _ in shown] == list(board._display_ids)


def test_an_axis_of_large_numbers_has_them_written_out() -> None:
    assert axis_of("rate", log_uniform(0.2, 2000.0), [1.0]).tick_texts == ["0.2", "2", "20", "200", "2,000"]


def test_each_option_has_its_place_on_the_axis() -> None:
    near = choice(1.00001, 1.00002)  # as texts they are the same
    assert axis_of("rate", near, [1.00002, 1.00001]).places == [1.0, 0.0]
    like = choice(SGD(0.1, momentum=0.9, nesterov=True), SGD(0.1, momentum=0.99, nesterov=True))
    assert axis_of("optimizer", like, list(like.options)[::-1]).places == [1.0, 0.0]
    # options that hold other settings, which trials draw: those of the first job are others
    nested = axis_of("optimizer", choice(SGD(0.1), Adam(0.1)), [SGD(0.2), Adam(0.3), SGD(0.2)])
    assert (nested.places, nested.tick_places) == ([0.0, 1.0, 0.0], [0.0, 1.0])
    some = axis_of("momentum", uniform(0, 1), [0.123456, None, 0.5])  # of which a trial drew none
    assert (some.places, some.tick_texts) == ([0.0, 0.5, 1.0], ["0.1235", "–", "0.5"])


def test_diverged_trials_leave_the_loss_axis_to_the_others() -> None:
    sweep = FakeSweep()
    for name, loss in (("rates-5", 3.5e8), ("rates-6", 1e30)):
        drawn = {"rate": 9.0, "rank": 4, "l2": 0.5, "kind": None}
        sweep.trials.append(Trial(5, name, "e", drawn, "failed", "the loss became 3.5e8", loss, 0.04, 1.0, 1.0, 0.001))
    figure = parallel_coordinates(sweep)
    places = {line.name: line.y[-1] for line in figure.data}
    assert places == {"rates-6": 1.0, "rates-5": 1.0, "rates-1": pytest.approx(1 / 1.15), "rates-2": 0.0}
    texts = [note.text for note in figure.layout.annotations]
    assert (texts[-7], texts[-2:]) == ("0.80", ["0.90", "more"])
    sweep.trials = [trial for trial in sweep.trials if trial.name != "rates-1"]
    assert [line.y[-1] for line in parallel_coordinates(sweep).data] == [1.0, 1.0, 0.0]


def test_lines_in_a_batch_and_what_stays(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[dict[str, Any]] = []
    monkeypatch.setattr("IPython.display.display", lambda bundle, raw: shown.append(bundle))
    leaderboard.show(FakeSweep(), wait=True, frontend="batch")
    printed = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in printed] == ["rates", "rates-1", "rates-2", "rates-3"]
    assert "must be less" in printed[3]
    assert [list(bundle) for bundle in shown] == [
        ["text/html", "text/plain"],
        ["application/vnd.plotly.v1+json", "text/plain"],
    ]
    assert "all 4 trials are done" in shown[0]["text/plain"]
