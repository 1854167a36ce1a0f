"""The dashboard in a real JupyterLab, in headless Chromium, on the kernel that is installed.

``SETUP`` and ``SHOW`` are all that these tests know of a run: a fake one here, which takes steps without workers.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lab import DEADLINE_S, Notebook

pytestmark = pytest.mark.browser

WIDGETS = Path(__file__).parents[1] / "widgets"
#: Brings `FakeRun`; a run's cell leaves the run in ``run`` and shows it.
SETUP = f"""\
import sys
sys.path.insert(0, {str(WIDGETS)!r})
from fake_run import FakeRun
from mlless_nb.widgets import show"""
SHOW = "run = FakeRun(n_steps=100_000, budget_usd=50.0, removes_at=()).start(0.05)\nshow(run)"
#: A busy main thread, asleep and spinning; ends early once the file ``go`` is there.
BUSY = """\
import time
from pathlib import Path
while not Path("go").exists():
    {}
Path("go").unlink()"""
ASLEEP = BUSY.format("time.sleep(0.05)")
SPINNING = BUSY.format("for i in range(10_000): i * i")

Open = Callable[[list[str]], Notebook]


def dashboard(notebook: Notebook) -> Any:
    return notebook.page.locator(".mlless").last


def drawn_rows(notebook: Notebook) -> int:
    """How many of the run's rows the charts have drawn."""
    return int(dashboard(notebook).get_attribute("data-rows"))


def wait_for_rows(notebook: Notebook, more_than: int) -> None:
    notebook.page.wait_for_function(
        "(n) => Number([...document.querySelectorAll('.mlless')].at(-1)?.dataset.rows) > n",
        arg=more_than,
        timeout=DEADLINE_S * 1000,
    )


def curve(notebook: Notebook, chart: int) -> str:
    """The path of a chart's first line, as plotly has drawn it."""
    path = dashboard(notebook).locator(".mlless-plot").nth(chart).locator(".scatterlayer .js-line").first
    return str(path.get_attribute("d"))


def wait_for_another_curve(notebook: Notebook, chart: int, path: str) -> None:
    notebook.page.wait_for_function(
        """([chart, path]) => [...document.querySelectorAll('.mlless')].at(-1)
             ?.querySelectorAll('.mlless-plot')[chart]
             ?.querySelector('.scatterlayer .js-line')?.getAttribute('d') !== path""",
        arg=[chart, path],
        timeout=DEADLINE_S * 1000,
    )


def shown_run(notebook: Open, *more: str) -> Notebook:
    """A notebook whose run is shown and whose charts plotly has taken over."""
    opened = notebook([SETUP, SHOW, *more])
    opened.run(0)
    opened.run(1)
    dashboard(opened).wait_for()
    opened.page.wait_for_selector(".mlless[data-drawer=plotly]")
    wait_for_rows(opened, 3)
    return opened


def release(notebook: Notebook) -> None:
    """Let the busy cell end."""
    (notebook.lab.notebooks / "go").touch()


@pytest.mark.parametrize("busy", [pytest.param(ASLEEP, marks=pytest.mark.long), SPINNING], ids=["asleep", "spinning"])
def test_chart_moves_and_presses_act_while_another_cell_is_busy(notebook: Open, busy: str) -> None:
    opened = shown_run(notebook, busy, "print(run.commands)")
    opened.start(2)
    before, path = drawn_rows(opened), curve(opened, 0)
    wait_for_rows(opened, before + 20)
    wait_for_another_curve(opened, 0, path)  # plotly draws some time after it is given the rows

    dashboard(opened).get_by_role("button", name="Remove a worker").click()
    dashboard(opened).get_by_text("asked for by hand").wait_for()
    workers = dashboard(opened).locator("[data-text=workers_text]")
    assert workers.inner_text() == "7"
    dashboard(opened).get_by_role("button", name="Stop").click()
    # the run's end replaces the widget, all while the cell is busy
    opened.page.locator("summary", has_text="Events").wait_for()
    assert "Stopped by hand" in opened.text(1)
    assert opened.page.locator(".mlless").count() == 0
    assert (
        opened.page.evaluate("() => window.jupyterapp.shell.currentWidget.content.widgets[2].model.executionState")
        == "running"
    )

    release(opened)
    opened.run(3)
    removed, stopped = re.findall(r"'(scale_in|stop)', (\d+)", opened.text(3))
    assert (removed[0], stopped[0]) == ("scale_in", "stop")


def test_the_best_evaluation_and_the_base_line_are_drawn(notebook: Open) -> None:
    rising = "run.rises = 2e-4\nrun.telemetry.update(baseline_loss=0.95)\nrun.advance(480)\nrun.start(0.05)\nshow(run)"
    opened = notebook([SETUP, f"run = FakeRun(n_steps=100_000, budget_usd=50.0)\n{rising}"])
    opened.run(0)
    opened.run(1)
    opened.page.wait_for_selector(".mlless[data-drawer=plotly]")
    words = dashboard(opened).locator(".mlless-plot").first.locator(".annotation-text")
    words.filter(has_text="best").wait_for()
    assert "predicting the mean: 0.9500" in words.all_text_contents()
    assert re.fullmatch(
        r"best 0\.8\d+ at epoch 8\.\d \(step 3\d\d\)", dashboard(opened).locator("[data-text=best_text]").inner_text()
    )
    dashboard(opened).get_by_role("button", name="Show as table").click()
    assert dashboard(opened).locator("tr.mlless-best").count() == 1


@pytest.mark.long
def test_presses_reach_a_busy_kernel_after_a_reload(notebook: Open) -> None:
    opened = shown_run(notebook, ASLEEP)
    opened.save()
    before = drawn_rows(opened)
    opened.reload()
    wait_for_rows(opened, before)
    opened.start(2)
    for left in ("7", "6", "5"):
        dashboard(opened).get_by_role("button", name="Remove a worker").click()
        opened.page.wait_for_function(
            "(n) => [...document.querySelectorAll('.mlless [data-text=workers_text]')].at(-1).textContent === n",
            arg=left,
        )
    release(opened)


def test_reload_keeps_the_whole_curve_and_goes_on(notebook: Open) -> None:
    opened = shown_run(notebook, "run.end('finished', 'Enough.')")
    wait_for_rows(opened, 30)
    opened.save()
    before = drawn_rows(opened)
    opened.reload()
    wait_for_rows(opened, before)
    dashboard(opened).get_by_role("button", name="Show as table").click()
    steps = [int(text) for text in dashboard(opened).locator("tbody tr td:first-child").all_inner_texts()]
    # Of more than 200 rows the table lists those with an evaluation, every fourth, and of more than 200 such a part.
    steps.sort()
    assert max(steps) >= before
    apart = max(after - one for one, after in zip([0, *steps], steps, strict=False))
    assert apart <= 4 * -(-max(steps) // 800)
    dashboard(opened).get_by_role("button", name="Show as charts").click()
    wait_for_rows(opened, drawn_rows(opened) + 5)


def test_the_end_stays_in_the_saved_notebook_without_a_kernel(notebook: Open) -> None:
    opened = shown_run(notebook, "run.end('capped', 'The budget is used up.')")
    opened.run(2)
    opened.page.locator("summary", has_text="Events").wait_for()
    saved = opened.save()
    (output,) = saved["cells"][1]["outputs"]
    assert set(output["data"]) == {"image/svg+xml", "text/html", "text/plain"}

    opened.end_kernel()
    opened.open()
    assert "Budget reached" in opened.text(1)
    assert "The budget is used up." in opened.text(1)
    assert "validation RMSE" in opened.text(1)
    charts = opened.page.locator(".jp-OutputArea-output img")
    charts.first.wait_for()
    assert charts.evaluate_all("(images) => images.map((image) => image.naturalWidth > 200)") == [True] * 3


def test_budget_is_refused_below_what_is_committed_and_applied_above(notebook: Open) -> None:
    opened = shown_run(notebook)
    field = dashboard(opened).get_by_role("textbox")
    apply = dashboard(opened).get_by_role("button", name="Apply")
    notice = dashboard(opened).locator(".mlless-notice")
    field.fill("0.00001")
    apply.click()
    opened.page.wait_for_selector(".mlless-notice[data-tone=bad]")
    assert "must be at least" in notice.inner_text()
    field.fill("80")
    apply.click()
    opened.page.wait_for_function(
        "() => document.querySelector('.mlless [data-text=spent_note]').textContent === 'of $80.00'"
    )


def test_axes_and_themes_change_what_is_drawn(notebook: Open) -> None:
    opened = shown_run(notebook)
    for axis in ("seconds", "dollars", "step"):
        button = dashboard(opened).get_by_role("button", name=axis, exact=True)
        button.click()
        assert button.get_attribute("aria-pressed") == "true"
    colours: dict[str, dict[str, str]] = {}
    for theme in ("Light", "Dark"):
        opened.theme(theme)
        opened.page.wait_for_function(
            "(dark) => document.querySelector('.mlless').classList.contains('dark') === dark", arg=theme == "Dark"
        )
        # The charts are drawn anew a moment after the page has changed its colours.
        opened.page.wait_for_function(
            "(before) => getComputedStyle(document.querySelector('.scatterlayer .js-line')).stroke !== before",
            arg=colours.get("Light", {}).get("line"),
        )
        colours[theme] = dashboard(opened).evaluate(
            """(root) => ({ back: getComputedStyle(root).backgroundColor, front: getComputedStyle(root).color,
                            line: getComputedStyle(root.querySelector('.scatterlayer .js-line')).stroke })"""
        )
    for light, dark in zip(colours["Light"].values(), colours["Dark"].values(), strict=True):
        assert light != dark
    assert brightness(colours["Dark"]["back"]) < 0.2 < 0.8 < brightness(colours["Dark"]["front"])


@pytest.mark.long
def test_the_saved_picture_follows_the_theme(notebook: Open) -> None:
    opened = shown_run(notebook, "run.end('finished', 'Enough.')")
    opened.run(2)
    picture = opened.page.locator(".jp-OutputArea-output img").first
    picture.wait_for()
    shots = {}
    for theme in ("Light", "Dark"):
        opened.theme(theme)
        shots[theme] = base64.b64encode(picture.screenshot())
    assert shots["Light"] != shots["Dark"]


@pytest.mark.long
def test_two_dashboards_share_one_plotly(notebook: Open) -> None:
    opened = shown_run(notebook, "show(run)")
    opened.page.evaluate(
        "() => { globalThis[Symbol.for('mlless_nb.plotly')].take = () => { throw Error('sent twice') } }"
    )
    opened.run(2)
    opened.page.wait_for_function("() => document.querySelectorAll('.mlless[data-drawer=plotly]').length === 2")


def brightness(colour: str) -> float:
    """Of ``rgb(...)``, from 0 to 1."""
    return sum(int(part) for part in re.findall(r"\d+", colour)[:3]) / 765
