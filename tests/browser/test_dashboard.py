"""The dashboard in a real JupyterLab, and Notebook 7, in headless Chromium, on the kernel that is installed.

``SETUP`` and ``SHOW`` are all that these tests know of a run: a fake one here, which takes steps without workers.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from applications import IN_BOTH
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

#: The words of a strip that touch each other, and those of the loss chart's baseline that a curve crosses.
TOUCHING = """(root) => {
    const words = (query) => [...root.querySelectorAll(query)].filter((e) => e.textContent);
    const box = (e) => e.getBoundingClientRect();
    const found = [];
    for (const query of [".mlless-worker b", ".mlless-worker > span"]) {
        words(query).forEach((e, i, all) => i && box(all[i - 1]).right > box(e).left && found.push(e.textContent));
    }
    const plot = root.querySelector(".mlless-plot");
    const label = [...plot.querySelectorAll("text.over")].find((e) => e.textContent.startsWith("predicting"));
    const { x: left, y: top, width, height } = label.getBBox();
    for (const path of plot.querySelectorAll("path.line")) {
        for (let at = 0; at <= path.getTotalLength(); at += 0.5) {
            const { x, y } = path.getPointAtLength(at);
            if (x < left || x > left + width || y < top + 2 || y > top + height - 2) continue;
            found.push(label.textContent);
            break;
        }
    }
    return found;
}"""

Open = Callable[[list[str]], Notebook]


def dashboard(notebook: Notebook) -> Any:
    return notebook.page.locator(".mlless").last


def wait_until_replaced(notebook: Notebook, live: Any) -> None:
    """Wait until the output of the end is in the place of the ``live`` dashboard, and the notebook is done with it."""
    notebook.page.wait_for_function("(live) => !live.isConnected", arg=live, timeout=DEADLINE_S * 1000)
    notebook.page.wait_for_function("() => [...document.querySelectorAll('.mlless')].at(-1)?.offsetHeight > 0")


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
    """The path of a chart's first line."""
    path = dashboard(notebook).locator(".mlless-plot").nth(chart).locator("path.line").first
    return str(path.get_attribute("d"))


def wait_for_another_curve(notebook: Notebook, chart: int, path: str) -> None:
    notebook.page.wait_for_function(
        """([chart, path]) => [...document.querySelectorAll('.mlless')].at(-1)
             ?.querySelectorAll('.mlless-plot')[chart]
             ?.querySelector('path.line')?.getAttribute('d') !== path""",
        arg=[chart, path],
        timeout=DEADLINE_S * 1000,
    )


def shown_run(notebook: Open, *more: str) -> Notebook:
    """A notebook whose run is shown."""
    opened = notebook([SETUP, SHOW, *more])
    opened.run(0)
    opened.run(1)
    dashboard(opened).wait_for()
    wait_for_rows(opened, 3)
    return opened


def release(notebook: Notebook) -> None:
    """Let the busy cell end."""
    (notebook.lab.notebooks / "go").touch()


@pytest.mark.long
@pytest.mark.parametrize("busy", [ASLEEP, SPINNING], ids=["asleep", "spinning"])
def test_chart_moves_and_presses_act_while_another_cell_is_busy(notebook: Open, busy: str) -> None:
    opened = shown_run(notebook, busy, "print(run.commands)")
    opened.start(2)
    before, path = drawn_rows(opened), curve(opened, 0)
    wait_for_rows(opened, before + 20)
    wait_for_another_curve(opened, 0, path)

    dashboard(opened).get_by_role("button", name="Remove a worker").click()
    dashboard(opened).get_by_text("leaves, as you asked").wait_for()
    workers = dashboard(opened).locator("[data-text=workers_text]")
    assert workers.inner_text() == "7"
    dashboard(opened).get_by_role("button", name="Stop").click()
    # the run's end, all while the cell is busy
    dashboard(opened).get_by_text("Stopped by you at step").first.wait_for()
    assert (
        opened.page.evaluate("() => window.jupyterapp.shell.currentWidget.content.widgets[2].model.executionState")
        == "running"
    )

    release(opened)
    opened.run(3)
    removed, stopped = re.findall(r"'(scale_in|stop)', (\d+)", opened.text(3))
    assert (removed[0], stopped[0]) == ("scale_in", "stop")


@pytest.mark.long
@IN_BOTH
def test_the_best_evaluation_and_the_base_line_are_drawn(notebook: Open) -> None:
    rising = "run.rises = 2e-4\nrun.telemetry.update(baseline_loss=0.92)\nrun.advance(480)\nrun.start(0.05)\nshow(run)"
    opened = notebook([SETUP, f"run = FakeRun(n_steps=100_000, budget_usd=50.0)\n{rising}"])
    opened.run(0)
    opened.run(1)
    wait_for_rows(opened, 3)
    words = dashboard(opened).locator(".mlless-plot").first.locator("text.over")
    words.filter(has_text="best").wait_for()
    assert "predicting the mean: 0.9200" in words.all_text_contents()
    assert re.fullmatch(
        r"best 0\.8\d+ at epoch 8\.\d \(step 3\d\d\)", dashboard(opened).locator("[data-text=best_text]").inner_text()
    )
    dashboard(opened).get_by_role("button", name="Table").click()
    assert dashboard(opened).locator("tr.mlless-best").count() == 1


@pytest.mark.long
@pytest.mark.parametrize("curve", ["diverges = 1.012", "swings = 3.0"])
def test_words_in_narrow_charts_and_strips_do_not_touch(notebook: Open, curve: str) -> None:
    made = "run = FakeRun(n_steps=100_000, budget_usd=50.0, workers=64, removes_at=(100, 150, 151, 152))"
    shown = "run.telemetry.update(baseline_loss=0.92, target=None)\nrun.advance(260)\nshow(run)"
    opened = notebook([SETUP, f"{made}\nrun.{curve}\n{shown}"])
    opened.run(0)
    opened.run(1)
    wait_for_rows(opened, 200)
    for width in (900, 360):
        dashboard(opened).evaluate("(e, width) => (e.style.width = `${width}px`)", width)
        opened.page.wait_for_function(
            "(width) => [...document.querySelectorAll('.mlless')].at(-1).offsetWidth === width", arg=width
        )
        # the charts are drawn anew once the page has noticed
        opened.page.wait_for_function(
            """() => {
                const plot = [...document.querySelectorAll('.mlless')].at(-1).querySelector('.mlless-plot');
                return Number(plot.querySelector('svg').getAttribute('viewBox').split(' ')[2]) === plot.clientWidth;
            }"""
        )
        assert dashboard(opened).evaluate(TOUCHING) == []
    marks = dashboard(opened).locator(".mlless-worker b").all_text_contents()
    assert [mark for mark in marks if mark] == ["!", "✕"]
    numbers = dashboard(opened).locator(".mlless-worker > span").all_text_contents()
    assert [number for number in numbers if number] == [str(slot) for slot in range(0, 64, 8)]


@pytest.mark.long
@IN_BOTH
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


@pytest.mark.long
@IN_BOTH
def test_reload_keeps_the_whole_curve_and_goes_on(notebook: Open) -> None:
    opened = shown_run(notebook, "run.end('finished', 'Enough.')")
    wait_for_rows(opened, 30)
    opened.save()
    before = drawn_rows(opened)
    opened.reload()
    wait_for_rows(opened, before)
    dashboard(opened).get_by_role("button", name="Table").click()
    steps = [int(text) for text in dashboard(opened).locator("tbody tr td:first-child").all_inner_texts()]
    # Of more than 200 rows the table lists those with an evaluation, every fourth, and of more than 200 such a part.
    steps.sort()
    assert max(steps) >= before
    apart = max(after - one for one, after in zip([0, *steps], steps, strict=False))
    assert apart <= 4 * -(-max(steps) // 800)
    dashboard(opened).get_by_role("button", name="Charts").click()
    wait_for_rows(opened, drawn_rows(opened) + 5)


@pytest.mark.long
@IN_BOTH
def test_the_end_stays_in_the_saved_notebook_without_a_kernel(notebook: Open) -> None:
    opened = shown_run(notebook, "run.end('capped', 'The budget is used up.')")
    live = dashboard(opened).element_handle()
    opened.run(2)
    wait_until_replaced(opened, live)
    dashboard(opened).get_by_text("The budget is used up.").first.wait_for()
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


@pytest.mark.long
def test_the_view_at_the_end_lives_again_when_its_cell_comes_back(notebook: Open) -> None:
    """As in JupyterLab's windowing mode "full", which takes cells that are out of sight from the page."""
    opened = shown_run(notebook, "run.end('finished', 'Enough.')")
    live = dashboard(opened).element_handle()
    opened.run(2)
    wait_until_replaced(opened, live)
    opened.page.wait_for_selector(".mlless-live .mlless")
    opened.page.evaluate(
        """async () => {
            const card = document.querySelector(".mlless-live");
            const home = card.parentElement;
            card.remove();
            await new Promise(requestAnimationFrame);
            home.append(card);
        }"""
    )
    for theme in ("Dark", "Light"):
        opened.theme(theme)
        opened.page.wait_for_function(
            "(dark) => document.querySelector('.mlless-live .mlless').classList.contains('dark') === dark",
            arg=theme == "Dark",
        )
    assert opened.page.locator(".mlless-live .mlless").count() == 1


@pytest.mark.long
@IN_BOTH
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
            "(before) => getComputedStyle(document.querySelector('.mlless path.line')).stroke !== before",
            arg=colours.get("Light", {}).get("line"),
        )
        colours[theme] = dashboard(opened).evaluate(
            """(root) => ({ back: getComputedStyle(root).backgroundColor, front: getComputedStyle(root).color,
                            line: getComputedStyle(root.querySelector('path.line')).stroke })"""
        )
    for light, dark in zip(colours["Light"].values(), colours["Dark"].values(), strict=True):
        assert light != dark
    assert brightness(colours["Dark"]["back"]) < 0.2 < 0.8 < brightness(colours["Dark"]["front"])


@pytest.mark.long
def test_the_saved_picture_follows_the_theme(notebook: Open) -> None:
    opened = shown_run(
        notebook,
        "run.end('finished', 'Enough.')",
        "from mlless_nb.widgets import "
        "static_bundle; from IPython.display import display; display(static_bundle(run), raw=True)",
    )
    opened.run(2)
    opened.run(3)
    picture = opened.page.locator(".jp-OutputArea-output img").first
    picture.wait_for()
    shots = {}
    for theme in ("Light", "Dark"):
        opened.theme(theme)
        shots[theme] = base64.b64encode(picture.screenshot())
    assert shots["Light"] != shots["Dark"]


def brightness(colour: str) -> float:
    """Of ``rgb(...)``, from 0 to 1."""
    return sum(int(part) for part in re.findall(r"\d+", colour)[:3]) / 765
