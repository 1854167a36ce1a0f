"""What stays in a saved notebook."""

from __future__ import annotations

import base64
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import pytest
from fake_run import FakeRun

from mlless_nb.errors import JobError
from mlless_nb.widgets import plot, static_bundle, text_summary
from mlless_nb.widgets.picture import tick_texts, ticks


def finished(**how: object) -> FakeRun:
    run = FakeRun(**how)  # type: ignore[arg-type]
    run.advance(1000)
    return run


def test_bundle_has_three_forms_and_no_widget() -> None:
    bundle = static_bundle(finished())
    assert list(bundle) == ["image/svg+xml", "text/html", "text/plain"]
    ET.fromstring(bundle["image/svg+xml"])
    assert "<script" not in bundle["text/html"]
    assert "<style" not in bundle["text/html"]


def test_html_is_balanced_and_its_picture_is_the_svg() -> None:
    bundle = static_bundle(finished())
    open_tags: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            if tag != "img":
                open_tags.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert open_tags.pop() == tag

    Reader().feed(bundle["text/html"])
    assert open_tags == []
    encoded = re.search(r"base64,([^\"]+)", bundle["text/html"])
    assert encoded is not None
    assert base64.b64decode(encoded[1]).decode() == bundle["image/svg+xml"]


def test_text_tells_the_result_on_its_own() -> None:
    text = text_summary(finished(n_steps=40))
    for part in ("first: finished", "All 40 steps", "Validation RMSE", "0.9005", "8 of 8", "simulated", "of $0.025"):
        assert part in text


def test_names_and_reasons_are_escaped() -> None:
    run = FakeRun(name="<b>&")
    run.advance(3)
    run.end("failed", "x < y & z")
    bundle = static_bundle(run)
    assert "<b>&" not in bundle["text/html"]
    assert "x &lt; y &amp; z" in bundle["text/html"]


def test_a_run_without_steps_says_so() -> None:
    run = FakeRun()
    run.end("failed", "No worker started.")
    bundle = static_bundle(run)
    assert "No step was taken." in bundle["image/svg+xml"]
    assert "No worker started." in bundle["text/plain"]


@pytest.mark.parametrize("how", [{"budget_usd": None}, {"n_steps": 1}, {"workers": 1}, {"budget_usd": 0.005}])
def test_odd_runs_can_be_drawn(how: dict[str, object]) -> None:
    ET.fromstring(static_bundle(finished(**how))["image/svg+xml"])


def test_a_long_run_stays_a_small_picture() -> None:
    assert sum(map(len, static_bundle(finished(n_steps=5000, budget_usd=None)).values())) < 120_000


def test_ticks_are_round_and_told_apart() -> None:
    assert ticks(0, 430) == [0, 100, 200, 300, 400]
    assert tick_texts(ticks(0, 0.0275), dollars=True) == ["$0.000", "$0.005", "$0.010", "$0.015", "$0.020", "$0.025"]
    assert tick_texts(ticks(0.86, 0.945)) == ["0.86", "0.88", "0.90", "0.92", "0.94"]
    assert ticks(1, 1) == [1]
    assert ticks(float("nan"), 1) == []


def test_plot_is_a_plotly_figure_against_what_is_asked() -> None:
    run = finished(n_steps=50)
    figure = plot(run, "dollars")
    validation = next(trace for trace in figure.data if trace.name == "validation")
    assert len(validation.x) == 12
    assert max(validation.x) < 0.025
    with pytest.raises(JobError, match="step, seconds or dollars"):
        plot(run, "miles")
