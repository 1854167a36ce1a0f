"""What stays in a saved notebook."""

from __future__ import annotations

import base64
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import numpy as np
import pytest
from fake_run import FakeRun
from IPython.lib.pretty import pretty

from mlless_nb.errors import JobError
from mlless_nb.widgets import plot, static_bundle, text_summary
from mlless_nb.widgets.svg import tick_texts, ticks


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
    # Notebooks make formulas of what stands between two dollar signs.
    assert re.match(r'<div class="[^"]*mathjax_ignore', bundle["text/html"].lstrip())


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
    charts = [base64.b64decode(part).decode() for part in re.findall(r"base64,([^\"]+)", bundle["text/html"])]
    assert len(charts) == 3
    for chart in charts:
        ET.fromstring(chart)
        assert chart[chart.index("</style>") :].removesuffix("</svg>")[8:] in bundle["image/svg+xml"]


def test_picture_has_the_units_and_the_last_values() -> None:
    texts = re.findall(r"<text[^>]*>([^<]*)", static_bundle(finished())["image/svg+xml"])
    assert texts.count("step") == 3
    for text in ("Loss (RMSE)", "Workers", "Dollars", "0.8709", "8", "$0.01806", "cap $0.025"):
        assert text in texts


def test_a_far_cap_is_said_and_not_drawn() -> None:
    near, far = (static_bundle(finished(budget_usd=usd))["image/svg+xml"] for usd in (0.03, 10.0))
    assert "cap $0.03" in near
    assert '<line class="c"' in near
    assert "↑ cap $10.00" in far
    assert '<line class="c"' not in far


@pytest.mark.parametrize(("n_steps", "steps"), [(3, [1, 2, 3]), (22, [1, 4, 7, 10, 13, 16, 19, 20, 22])])
def test_html_has_a_table_of_steps_with_the_best_and_the_last(n_steps: int, steps: list[int]) -> None:
    rows = re.findall(r"<tr[^>]*><td[^>]*>([\d,]+)</td>", static_bundle(finished(n_steps=n_steps))["text/html"])
    assert [int(step) for step in rows] == steps


def test_table_of_a_long_run_shows_evaluated_steps() -> None:
    html = static_bundle(finished(n_steps=470, budget_usd=None))["text/html"]
    table = re.search(r"<thead.*?</tbody>", html)
    assert table is not None
    cells = [re.findall(r"<td[^>]*>([^<]*)</td>", row) for row in table[0].split("<tr")[2:]]
    assert [cells[0][0], cells[-2][0], cells[-1][0]] == ["4", "468", "470"]
    assert all(row[4] for row in cells[:-1])


def test_text_tells_the_result_on_its_own() -> None:
    text = text_summary(finished(n_steps=40))
    for part in ("first: finished", "All 40 steps", "Validation RMSE", "0.9005", "8 of 8", "simulated", "of $0.025"):
        assert part in text


def test_a_notebook_shows_the_lines_of_a_text() -> None:
    text = text_summary(finished(n_steps=40))
    assert pretty(text) == str(text)
    assert "\n" in text


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
    assert sum(map(len, static_bundle(finished(n_steps=5000, budget_usd=None)).values())) < 40_000


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
    assert figure.layout.paper_bgcolor == figure.layout.plot_bgcolor == "rgba(0,0,0,0)"  # as light or dark as the page
    with pytest.raises(JobError, match="step, seconds or dollars"):
        plot(run, "miles")


def test_plot_has_the_panels_of_the_dashboard() -> None:
    figure = plot(finished(n_steps=200), "dollars")
    widths = [axis.domain[1] - axis.domain[0] for axis in figure.select_xaxes()]
    assert widths[0] == pytest.approx(2 * widths[1])
    assert widths[1] == pytest.approx(widths[2])
    titles = [axis.title.text for axis in figure.select_xaxes()]
    assert titles == ["US dollars", "US dollars", "seconds"]  # dollars against dollars say nothing
    spent = next(trace for trace in figure.data if trace.name == "spent")
    assert spent.x[-1] == pytest.approx(18.0)
    axis = figure.layout.yaxis
    assert (axis.type, axis.range[1] < 0.95) == (None, True), "the first steps would stretch it"
    run = FakeRun()
    run.telemetry.update(target=None)
    figure = plot(run)  # without a step
    assert list(figure.layout.yaxis.range) == pytest.approx([-0.06, 1.06])


def test_plot_of_a_run_that_diverges_has_a_logarithmic_axis_that_is_clipped() -> None:
    run = FakeRun(n_steps=1000, budget_usd=None)
    run.diverges = 1.12
    run.advance(400)
    figure = plot(run)
    axis = figure.layout.yaxis
    low, high = axis.range
    assert (axis.type, axis.dtick) == ("log", 1)
    assert -0.5 < low < -0.06
    assert 6 < high < 6.5
    notes = {note.text: note.y for note in figure.layout.annotations}
    assert notes["target"] == pytest.approx(np.log10(0.868))
    assert notes["↑ up to 5.1e+14"] == 1
    (line,) = figure.layout.shapes
    assert line.y0 == 0.868


def rising() -> FakeRun:
    run = FakeRun(budget_usd=None)
    run.rises = 2e-4
    run.telemetry.update(baseline_loss=0.92)
    run.advance(480)
    return run


def test_the_best_evaluation_is_marked_and_the_base_line_drawn() -> None:
    run = rising()
    bundle = static_bundle(run)
    best = run.telemetry.state.best
    assert best is not None
    assert best == run.telemetry.history().best
    words = f"best {best.loss:.4f} at epoch {best.epoch:.1f} (step {best.step})"
    assert words in bundle["text/html"]
    assert words.removeprefix("best ") in bundle["text/plain"]
    picture = bundle["image/svg+xml"]
    assert picture.count('<circle class="b"') == 1
    assert ">best</text>" in picture
    assert '<line class="z"' in picture
    assert "predicting the mean: 0.9200" in picture
    assert words in picture, "for who cannot see it"
    figure = plot(run)
    mark, removed = [trace for trace in figure.data if trace.mode == "markers"]
    assert mark.name == words
    assert (removed.name, list(removed.x), list(removed.y)) == ("removed", [231, 301, 372], [8, 7, 6])
    assert (list(mark.x), list(mark.y)) == ([best.step], [best.loss])
    assert any("predicting the mean" in note.text for note in figure.layout.annotations)


def test_the_table_has_the_best_step_in_bold() -> None:
    run = rising()
    html = static_bundle(run)["text/html"]
    best = run.telemetry.state.best
    assert best is not None
    bold = re.findall(r"<td[^>]*font-weight:600[^>]*>([^<]*)</td>", html)
    assert bold[0] == str(best.step)
    assert f"{best.loss:.4f}" in bold


def test_the_best_at_the_end_of_its_curve_needs_no_word() -> None:
    picture = static_bundle(finished(budget_usd=None))["image/svg+xml"]
    assert '<circle class="b"' in picture
    assert ">best</text>" not in picture


def test_a_base_line_out_of_sight_is_not_drawn() -> None:
    run = finished(n_steps=40)
    run.telemetry.update(baseline_loss=3.0)
    assert '<line class="z"' not in static_bundle(run)["image/svg+xml"]
    assert not any("predicting" in note.text for note in plot(run).layout.annotations)


def crossed(picture: str) -> bool:
    """Whether a curve crosses the words on the base line."""
    label = re.search(r'class="o zt" x="([\d.]+)" y="([\d.]+)" text-anchor="(\w+)">(predicting [^<]*)', picture)
    assert label is not None
    width, y = 5.0 * len(label[4]), float(label[2])
    left = float(label[1]) - width * {"start": 0.0, "middle": 0.5, "end": 1.0}[label[3]]
    for path in re.findall(r'<path class="[vt]" d="M([^"]*)"', picture):
        points = np.array([point.split(",") for point in path.split("L")], float)
        xs = np.linspace(left, left + width, 500)
        ys = np.interp(xs, *points.T, left=np.inf, right=np.inf)
        if ((ys > y - 8) & (ys < y)).any():
            return True
    return False


@pytest.mark.parametrize("diverges", [1.002, 1.006, 1.012, 1.03])
@pytest.mark.parametrize("n_steps", [130, 200])
def test_a_diverging_curve_does_not_cross_the_label_of_the_base_line(diverges: float, n_steps: int) -> None:
    run = FakeRun(n_steps=1000, budget_usd=None, removes_at=())
    run.diverges = diverges
    run.telemetry.update(baseline_loss=0.92, target=None)
    run.advance(n_steps)
    picture = static_bundle(run)["image/svg+xml"]
    assert not crossed(picture)


@pytest.mark.parametrize("base", [0.82, 0.87, 0.92])
@pytest.mark.parametrize("n_steps", [40, 200])
def test_a_curve_that_is_everywhere_does_not_cross_the_label_of_the_base_line(base: float, n_steps: int) -> None:
    run = FakeRun(n_steps=1000, budget_usd=None)
    run.swings = 3.0
    run.telemetry.update(baseline_loss=base, target=None)
    run.advance(n_steps)
    assert not crossed(static_bundle(run)["image/svg+xml"])


def test_a_base_line_out_of_sight_is_told_above_the_curve() -> None:
    run = FakeRun(budget_usd=None)
    run.rises = 1e-3  # the last loss is the highest one that is drawn
    run.telemetry.update(baseline_loss=3.0)
    run.advance(480)
    picture = static_bundle(run)["image/svg+xml"]
    told, end = (
        re.search(r' y="([\d.]+)"[^>]*>↑ predicting', picture),
        re.search(r'class="d" cx="[\d.]+" cy="([\d.]+)"', picture),
    )
    assert told is not None
    assert end is not None
    assert float(end[1]) - 3 > float(told[1])
    last = re.search(r'class="e o" x="[\d.]+" y="([\d.]+)"', picture)
    assert last is not None
    assert float(last[1]) - 8 > float(told[1])  # the last value does not touch it either


def test_a_run_that_is_no_better_than_the_mean_says_so_in_every_form() -> None:
    run = finished(n_steps=40)
    run.telemetry.update(baseline_loss=0.85)
    bundle = static_bundle(run)
    for form in ("text/html", "text/plain"):
        assert "No better than predicting the mean (0.85)" in bundle[form]
