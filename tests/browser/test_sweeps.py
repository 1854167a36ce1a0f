"""A ``%%mlless sweep`` cell in JupyterLab and Notebook 7: a live leaderboard, its Stop button, and what stays."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from applications import IN_BOTH
from lab import DEADLINE_S, Notebook

pytestmark = [pytest.mark.browser, pytest.mark.long]

Open = Callable[[list[str]], Notebook]
SETUP = """\
%load_ext mlless_nb
import mlless_nb
from mlless_nb import PMF, SGD, datasets
ratings = datasets.synthetic_ratings(1000, 500, 50_000, seed=0)"""
SWEEP = """\
%%mlless sweep --budget 0.05 --trials 30 --workers 1 --epochs 60 --name rates
learning_rate = log_uniform(0.01, 10.0)
model = PMF(rank=8, l2=choice(0.02, 0.1))
optimizer = SGD(learning_rate=learning_rate, momentum=0.9, nesterov=True)
data = ratings"""
BUSY = """\
import time
while rates.is_live:
    time.sleep(0.05)"""
SAYS = "print(rates.status, rates.spent <= 0.05, rates.best.model is not None)"
N_CELLS = "() => window.jupyterapp.shell.currentWidget.content.widgets.length"
#: For each table: whether its box ends within the output, narrowed to 360 px, is too narrow for it, and shows its end.
TABLES = """(outputs) => outputs.flatMap((output) => {
    output.style.flex = "0 0 360px";
    output.style.maxWidth = "360px";
    const seen = [...output.querySelectorAll(".mlless-scroll")].map((box) => {
        box.scrollLeft = 1e6;
        const right = (el) => el.getBoundingClientRect().right;
        const isEndSeen = right(box.querySelector("th:last-child")) <= right(box) + 1;
        return [right(box) <= right(output) + 1, box.scrollWidth > box.clientWidth, isEndSeen];
    });
    output.style.flex = output.style.maxWidth = "";
    return seen;
})"""
COMPARE = "mlless_nb.compare(rates.ranked[0].name, rates.ranked[1].name)"


def wait_for_text(notebook: Notebook, text: str) -> None:
    notebook.page.wait_for_function(
        "(text) => document.querySelector('.jp-Notebook').innerText.includes(text)", arg=text, timeout=DEADLINE_S * 1000
    )


def tables(notebook: Notebook, cell: int) -> list[list[bool]]:
    """See `TABLES`, of a cell's outputs."""
    outputs = notebook.page.locator(".jp-Notebook .jp-Cell").nth(cell).locator(".jp-OutputArea-output")
    found: list[list[bool]] = outputs.evaluate_all(TABLES)
    return found


@IN_BOTH
def test_a_sweep_is_watched_and_stopped_while_another_cell_is_busy(notebook: Open) -> None:
    opened = notebook([SETUP, SWEEP, BUSY, SAYS, COMPARE])
    opened.run(0)
    opened.run(1)  # returns at once
    wait_for_text(opened, "rates-3")
    opened.start(2)
    stop, board = opened.page.get_by_role("button", name="Stop the sweep"), opened.page.locator(".mlless-sweep")
    assert tables(opened, 1) == [[True, True, True]]
    drawing = opened.page.locator(".mlless-coordinates")
    drawing.locator(".trial").first.wait_for(state="attached", timeout=DEADLINE_S * 1000)  # while the sweep runs
    assert "learning_rate" in drawing.inner_text()
    assert opened.page.locator(".js-plotly-plot").count() == 0
    n_cells = opened.page.evaluate(N_CELLS)
    for reach in (stop.focus, lambda: board.click(position={"x": 3, "y": 3}), stop.click):
        reach()
        opened.page.keyboard.press("d")  # JupyterLab's keys to delete a cell
        opened.page.keyboard.press("d")
        assert opened.page.evaluate(N_CELLS) == n_cells
    wait_for_text(opened, "stopped by you")
    opened.page.wait_for_selector(".js-plotly-plot", timeout=DEADLINE_S * 1000)
    opened.run(3)
    assert opened.text(3).strip() == "stopped True True"
    assert "best RMSE" in opened.text(1)
    assert opened.page.get_by_role("button", name="Stop the sweep").count() == 0
    opened.run(4)
    wait_for_text(opened, "optimizer.learning_rate")
    assert tables(opened, 1) == [[True, True, True]]
    assert tables(opened, 4) == [[True, False, True]]  # a table of two runs needs no scrolling
    outputs = opened.save()["cells"][1]["outputs"]
    kinds = {kind for output in outputs for kind in output.get("data", {})}
    assert {"text/html", "application/vnd.plotly.v1+json"} <= kinds
    assert "application/vnd.jupyter.widget-view+json" not in kinds


@IN_BOTH
@pytest.mark.parametrize("by", ["the page", "another program"])
def test_a_sweep_whose_kernel_was_restarted_says_so(notebook: Open, by: str) -> None:
    opened = notebook([SETUP, SWEEP, "import mlless_nb\nprint(mlless_nb.runs(sweep='rates'))"])
    opened.run(0)
    opened.run(1)
    wait_for_text(opened, "rates-3")
    if by == "the page":
        opened.restart_kernel()
    else:
        opened.restart_kernel_from_elsewhere()
    wait_for_text(opened, "the kernel was restarted; its trials were stopped and saved: mlless_nb.runs(sweep='rates')")
    statuses = opened.page.locator(".mlless-sweep td:last-child").all_inner_texts()
    assert len(statuses) > 2
    assert not {"starting", "running"} & set(statuses)
    assert opened.page.locator(".mlless-sweep button").is_disabled()
    opened.run(2)
    assert "rates-1" in opened.text(2)
