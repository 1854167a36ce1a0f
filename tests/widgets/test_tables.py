"""Tables as text and HTML, and those of a comparison."""

from __future__ import annotations

import re

import numpy as np

from mlless_nb.driver.comparison import ComparedRun, Comparison
from mlless_nb.tracking import TrackedRun
from mlless_nb.widgets.tables import html_table

NAME = "optimizer.learning_rate"


def compared(n_runs: int) -> Comparison:
    curve = np.array([1.0, 2.0])
    runs = []
    for number in range(n_runs):
        about = {"metric": "RMSE", "best_loss": 0.9 - 0.1 * (number == 1), "last_loss": 0.95, "status": "finished"}
        entry = TrackedRun(f"id-{number}", f"run-{number}", 0.0, steps=480, seconds=43.0, usd=0.018, **about)
        runs.append(ComparedRun(f"run-{number}", entry, curve, curve, curve, True))
    return Comparison(tuple(runs), {NAME: [3.0 + number for number in range(n_runs)]})


def test_few_runs_have_a_column_each_and_the_best_one_is_bold() -> None:
    both = compared(2)
    lines = [line.split() for line in repr(both).splitlines()]
    assert lines[:2] == [["run", "run-0", "run-1"], ["best", "0.9000", "0.8000"]]
    assert lines[-2:] == [["status", "finished", "finished"], [NAME, "3", "4"]]
    html = both._repr_html_()
    assert html.count("<table") == 1
    assert re.findall(r"font-weight:600[^>]*>([^<]*)<", html)[:2] == ["run-1", "0.8000"]


def test_many_runs_have_a_row_each() -> None:
    lines = [line.split() for line in repr(compared(5)).splitlines()]
    assert lines[0] == ["run", "best", "last", "steps", "time", "cost", "status"]
    assert lines[-2:] == [["setting", *(f"run-{number}" for number in range(5))], [NAME, "3", "4", "5", "6", "7"]]
    bold = re.findall(r"font-weight:600[^>]*>([^<]*)<", compared(5)._repr_html_())
    assert bold[:2] == ["run-1", "0.8000"]


def test_names_and_long_words_are_broken_where_a_page_is_narrow_and_figures_are_not() -> None:
    html = html_table((NAME, "status"), [("a<b", "12 min 30 s"), ("0.5", "0.123")])
    assert "optimizer.<wbr>learning_<wbr>rate</th>" in html
    assert "a&lt;b</td>" in html
    assert re.findall(r"white-space:(\w+)\">(12 min 30 s|0\.123)<", html) == [
        ("normal", "12 min 30 s"),
        ("nowrap", "0.123"),
    ]
