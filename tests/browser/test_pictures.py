"""Each state of the views, on a light, a dark and a narrow page: nothing is cut off.

With ``MLLESS_SCREENSHOTS=FOLDER`` a picture of each is written there, to be looked at.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from lab import DEADLINE_S, Notebook
from test_controls import cut_off, wait_for_text
from test_dashboard import SETUP, dashboard, wait_for_rows, wait_until_replaced

pytestmark = [pytest.mark.browser, pytest.mark.long]

Open = Callable[[list[str]], Notebook]
NARROW_PX = 360
#: What a page needs for the whole of a dashboard, pixels: its picture ends with the page.
TALL = {"width": 1280, "height": 1900}
#: For a folder's pictures: theme, and width in pixels.
LOOKS: dict[str, tuple[str, int | None]] = {
    "dark": ("Dark", None),
    "light": ("Light", None),
    "narrow": ("Light", NARROW_PX),
}


class State(NamedTuple):
    """A dashboard: the cell that shows it, how many rows it has then, a cell after that, and its word in the end."""

    shows: str
    n_rows: int
    then: str
    word: str


RUN = """\
run = FakeRun(budget_usd={budget})
first = run
run.diverges = {diverges}
run.telemetry.update(baseline_loss=0.92, estimate="about $0.0123 and 15 s with 4 workers; 2 are cheapest ($0.003, 9 s)")
run.advance({n_steps})
show(run)"""
STATES = {
    "running": State(RUN.format(budget=0.05, diverges=1, n_steps=200), 200, "", "Running"),
    "scale-in": State(RUN.format(budget=0.025, diverges=1, n_steps=400), 400, "", "Running"),
    "capped": State(RUN.format(budget=0.01, diverges=1, n_steps=200), 200, "run.advance(280)", "Budget reached"),
    "diverged": State(
        RUN.format(budget=None, diverges=1.12, n_steps=300),
        300,
        "run.end('failed', 'the loss became 4.7e+09; a lower learning rate helps, e.g. SGD(learning_rate=3.0)')",
        "Failed",
    ),
    "restarted": State(RUN.format(budget=0.05, diverges=1, n_steps=300), 300, "", "Kernel restarted"),
    "end": State(RUN.format(budget=None, diverges=1, n_steps=400), 400, "run.advance(80)", "Finished"),
}
SWEEP = """\
import time
from fake_sweep import FakeSweep
from mlless_nb.widgets import leaderboard
class Going(FakeSweep):
    def wait_for_change(self, seen, timeout_s):
        time.sleep(timeout_s)
        return seen
leaderboard.show(Going())"""
COMPARE = """\
from mlless_nb.driver.comparison import ComparedRun, Comparison
from mlless_nb.tracking import TrackedRun
def compared(name, budget):
    run = FakeRun(name, budget)
    run.advance(480)
    history, state = run.telemetry.history(), run.telemetry.state
    at = history["step"] % 4 == 0
    losses = history["validation_loss"][at]
    about = dict(metric="RMSE", best_loss=state.best.loss, last_loss=losses[-1], steps=state.step, status=state.status)
    entry = TrackedRun(run.id, name, 0.0, seconds=state.time_s, usd=state.spent_usd, **about)
    return ComparedRun(name, entry, history["time_s"][at], history["spent_usd"][at], losses, True)
settings = {"optimizer.learning_rate": [3.0, 8.0], "sync": ["ISP(0.7)", "BSP()"]}
Comparison((compared("first", None), compared("second", 0.012)), settings)"""
#: A cell that shows a table, and an element that is there then.
TABLES = {"sweep": (SWEEP, "button"), "compare": (COMPARE, ".main-svg")}

#: What reaches out of its output, or out of its figure; a table that is too wide is scrolled in a box of its own.
BEYOND = """(outputs) => outputs.flatMap((output) => {
    const box = (node) => node.getBoundingClientRect();
    const seen = (query) => [...output.querySelectorAll(query)].filter((node) => node.getClientRects().length);
    const texts = ".mlless-labels span, .mlless-coordinates text";
    const parts = seen(`b, button, .mlless-scroll, .main-svg, ${texts}`);
    const out = parts.filter((node) => box(node).right > box(output).right + 1);
    const cut = seen(".main-svg text").filter((text) => {
        const [a, b] = [box(text), box(text.closest(".js-plotly-plot"))];
        const isWithin = a.left > b.left - 1 && a.right < b.right + 1 && a.top > b.top - 1 && a.bottom < b.bottom + 1;
        return text.textContent && !isWithin;
    });
    const left = seen(texts).filter((node) => box(node).left < box(output).left - 1);
    return [...out, ...left, ...cut].map((node) => node.textContent.trim() || node.getAttribute("class"));
})"""
#: Gives the newest dashboard a width, and tells what is not yet as it must be: theme, width, how wide charts are drawn.
#: JupyterLab may put another one into its place, and does not lay out what is scrolled away: neither is seen at once.
NOT_DRAWN = """([dark, width]) => {
    const root = [...document.querySelectorAll(".mlless")].at(-1);
    if (!root) return ["no dashboard"];
    root.style.width = width ? `${width}px` : "";
    const { top, bottom } = root.getBoundingClientRect();
    if (bottom < 0 || top > window.innerHeight) root.scrollIntoView();
    const charts = [...root.querySelectorAll(".mlless-plot")];
    const drawn = charts.map((one) => [one.querySelector("svg").viewBox.baseVal.width, one.clientWidth]);
    return [
        root.classList.contains("dark") === dark ? "" : `class ${root.className}`,
        !width || root.offsetWidth === width ? "" : `width ${root.offsetWidth}, from ${top} to ${bottom}`,
        ...drawn.map(([drawn, is]) => (drawn === is ? "" : `chart drawn ${drawn} wide, is ${is}`)),
    ].filter(Boolean);
}"""
#: What a dashboard would have to be scrolled for.
SCROLLED = """(root) => [".mlless-estimate", ".mlless-lines", ".mlless-notes"].filter((query) => {
    const part = root.querySelector(query);
    return part.scrollHeight > part.clientHeight || part.scrollWidth > part.clientWidth;
})"""


def take_picture(of: Any, name: str) -> None:
    """Write a picture if there is a folder for it."""
    if folder := os.environ.get("MLLESS_SCREENSHOTS"):
        of.screenshot(path=f"{folder}/{name}.png")


def wait_until_drawn(opened: Any, look: str, asked: list[object]) -> None:
    """Wait until nothing is `NOT_DRAWN` any more."""
    give_up_at = time.monotonic() + DEADLINE_S
    while missing := opened.page.evaluate(NOT_DRAWN, asked):
        assert time.monotonic() < give_up_at, (look, missing)
        opened.page.wait_for_timeout(100)


@pytest.mark.parametrize("name", STATES)
def test_nothing_of_a_dashboard_is_cut_off(notebook: Open, name: str) -> None:
    state = STATES[name]
    opened = notebook([SETUP, state.shows, state.then])
    opened.page.set_viewport_size(TALL)
    opened.run(0)
    opened.run(1)
    dashboard(opened).wait_for()
    wait_for_rows(opened, state.n_rows - 1)
    if name == "restarted":
        opened.restart_kernel()
    elif state.then:
        live = dashboard(opened).element_handle()
        opened.run(2)
        wait_until_replaced(opened, live)
    wait_for_text(opened, "word", state.word)
    for look, (theme, width) in LOOKS.items():
        opened.theme(theme)
        wait_until_drawn(opened, look, [theme == "Dark", width])
        take_picture(dashboard(opened), f"{name}-{look}")
        assert cut_off(opened) == [], look
        assert dashboard(opened).evaluate(SCROLLED) == [], look


@pytest.mark.parametrize("name", TABLES)
def test_nothing_of_a_table_or_a_figure_is_cut_off(notebook: Open, name: str) -> None:
    cell, arrives = TABLES[name]
    opened = notebook([SETUP, *[cell] * len(LOOKS)])
    opened.run(0)
    for number, (look, (theme, width)) in enumerate(LOOKS.items(), start=1):
        opened.theme(theme)
        if width is not None:  # before the figure is drawn, which stays as wide as it is
            narrow = f".jp-OutputArea-output {{ flex: 0 0 {width}px !important; max-width: {width}px; }}"
            opened.page.add_style_tag(content=narrow)
        opened.run(number)
        area = opened.page.locator(".jp-Notebook .jp-Cell").nth(number).locator(".jp-Cell-outputArea")
        area.locator(arrives).first.wait_for(timeout=DEADLINE_S * 1000)
        take_picture(area, f"{name}-{look}")
        assert area.locator(".jp-OutputArea-output").evaluate_all(BEYOND) == [], look
