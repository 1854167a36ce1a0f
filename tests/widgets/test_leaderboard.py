"""A sweep as a table, as lines, and as parallel coordinates."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from mlless_nb import SGD, Adam
from mlless_nb.search import Trial, choice, integer, log_uniform, uniform
from mlless_nb.widgets import leaderboard
from mlless_nb.widgets.live_leaderboard import Leaderboard
from mlless_nb.widgets.parallel_coordinates import axis_of, parallel_coordinates


class FakeSweep:
    """Four trials: a finished one, a weak one, a failed one, a live one."""

    name, metric, sampler, n_trials, budget, spent = "rates", "RMSE", "tpe", 9, 0.05, 0.0125
    is_live, status, reason = True, "running", ""
    spaces: ClassVar = {
        "rate": log_uniform(0.1, 10.0),
        "rank": integer(2, 8),
        "l2": uniform(0, 1),
        "kind": choice("a<b", None),
    }

    def __init__(self) -> None:
        self.n_stopped = 0

        def drawn(rate: float, kind: str | None = None) -> dict[str, Any]:
            return {"rate": rate, "rank": 4, "l2": 0.5, "kind": kind}

        self.trials = [
            Trial(1, "rates-1", "a", drawn(1.0), "pruned", "stopped at epoch 2", 0.9, 0.04, 2.0, 1.0, 0.001),
            Trial(2, "rates-2", "b", drawn(3.0, "a<b"), "finished", "", 0.8, 1.0, 50.0, 9.0, 0.01),
            Trial(3, "rates-3", "", drawn(9.0), "failed", "SGD.learning_rate=9: must be less"),
            Trial(4, "rates-4", "d", drawn(2.0), "running", "", None, None, 3.0, 1.0, 0.0015),
        ]

    @property
    def ranked(self) -> list[Trial]:
        return sorted(self.trials, key=lambda trial: (trial.loss is None, trial.loss or 0.0, trial.number))

    @property
    def best_so_far(self) -> Trial | None:
        return self.ranked[0] if self.ranked[0].loss is not None else None

    def stop(self) -> None:
        self.n_stopped += 1

    def wait_for_change(self, seen: int, timeout_s: float) -> int:
        self.is_live, self.status, self.reason = False, "finished", "all 4 trials are done"
        return seen + 1


def test_the_best_trial_stands_first() -> None:
    lines = leaderboard.as_text(FakeSweep()).splitlines()
    assert lines[0] == (
        "rates: running, 4 of 9 trials (tpe), best RMSE 0.8000 of trial 2 (rate=3, rank=4, l2=0.5, kind=a<b), "
        "1 pruned, $0.01250 of $0.05"
    )
    assert [line.split()[0] for line in lines[1:]] == ["trial", "rates-2", "rates-1", "rates-3", "rates-4"]
    assert lines[3].endswith("pruned")


def test_html_is_escaped_and_the_best_is_bold() -> None:
    html = leaderboard.as_html(FakeSweep())
    assert "a&lt;b" in html
    assert "mathjax_ignore" in html[: html.index("$")]  # dollar signs are not formulas
    assert "a<b" not in html
    assert html.index("font-weight:600") < html.index("rates-2<") < html.index("rates-1<")


def test_the_live_table_is_that_of_the_sweep_and_its_button_is_confirmed() -> None:
    sweep = FakeSweep()
    board = Leaderboard(sweep)
    assert (board.table, board.is_stopping) == (leaderboard.as_html(sweep), False)
    for message in (None, ["stop"], {"cmd": "go on"}):
        board._on_message(board, message, [])
    assert (sweep.n_stopped, board.is_stopping) == (0, False)
    board._on_message(board, {"cmd": "stop"}, [])
    assert (sweep.n_stopped, board.is_stopping) == (1, True)


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


def test_parallel_coordinates_have_an_axis_for_each_setting_and_the_loss() -> None:
    drawn = parallel_coordinates(FakeSweep())
    assert list(drawn.layout.xaxis.ticktext) == ["rate", "rank", "l2", "kind", "best RMSE"]
    weak, best = drawn.data
    assert [weak.name, best.name] == ["rates-1", "rates-2"]  # the best one is on top
    assert (list(weak.y), weak.opacity) == ([0.5, 1 / 3, 0.5, 1.0, 1.0], pytest.approx(0.7))
    assert (list(best.y)[1:], best.opacity) == ([1 / 3, 0.5, 0.0, 0.0], 1.0)
    assert best.hovertemplate.startswith("rate 3, rank 4, l2 0.5, kind a&lt;b, RMSE 0.8000<")
    texts = [note.text for note in drawn.layout.annotations]
    assert texts[:5] == ["0.1", "0.316", "1", "3.16", "10"]
    assert (texts[-6], texts[-1]) == ("0.80", "0.90")
    assert {"a&lt;b", "–"} <= set(texts)


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
