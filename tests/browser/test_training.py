"""A `%%mlless` cell in a real JupyterLab: real functions train while a person looks and clicks."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from applications import IN_BOTH
from lab import DEADLINE_S, Notebook

pytestmark = pytest.mark.browser

Open = Callable[[list[str]], Notebook]
#: Steps of some 10 ms, so that a press and what it does can be told apart; and nobody leaves but by a press.
SETUP = """\
%load_ext mlless_nb
from mlless_nb import ISP, PMF, SGD, datasets
ratings = datasets.synthetic_ratings(3000, 1500, 200_000, seed=0)"""
TRAIN = """\
%%mlless --workers 4 --scale-in off --epochs 100000 --budget 5 --name browsed
model = PMF(rank=20, l2=0.05)
optimizer = SGD(learning_rate=4.0, momentum=0.9, nesterov=True)
data = ratings
sync = ISP(0.7)"""
BUSY = """\
import time
from pathlib import Path
while not Path("go").exists():
    time.sleep(0.05)
Path("go").unlink()"""


def dashboard(notebook: Notebook) -> Any:
    return notebook.page.locator(".mlless").last


def wait_for_rows(notebook: Notebook, more_than: int) -> int:
    """Wait until the charts have drawn more than so many rows; how many they have then."""
    notebook.page.wait_for_function(
        "(n) => Number([...document.querySelectorAll('.mlless')].at(-1)?.dataset.rows) > n",
        arg=more_than,
        timeout=DEADLINE_S * 1000,
    )
    return int(dashboard(notebook).get_attribute("data-rows"))


@IN_BOTH
def test_a_run_is_watched_steered_and_stopped_while_another_cell_is_busy(notebook: Open) -> None:
    opened = notebook([SETUP, TRAIN, BUSY, "print(browsed.status, browsed.cost.total <= 5, browsed.model)"])
    opened.run(0)
    opened.run(1)  # returns at once
    drawn = wait_for_rows(opened, 5)
    opened.start(2)
    drawn = wait_for_rows(opened, drawn + 20)

    dashboard(opened).get_by_role("button", name="Remove a worker").click()
    opened.page.wait_for_function(
        "() => [...document.querySelectorAll('.mlless [data-text=workers_text]')].at(-1).textContent === '3'",
        timeout=DEADLINE_S * 1000,
    )
    dashboard(opened).get_by_role("button", name="Stop").click()
    opened.page.get_by_text(re.compile("stopped by you", re.IGNORECASE)).first.wait_for(timeout=DEADLINE_S * 1000)
    (opened.lab.notebooks / "go").touch()
    opened.run(3)
    assert opened.text(3).startswith("stopped True")


@pytest.mark.long
def test_a_reload_before_saving_leaves_the_run_and_its_dashboard_comes_back(notebook: Open) -> None:
    opened = notebook([SETUP, TRAIN, "browsed.stop(); print(browsed.wait())", "browsed.dashboard()"])
    opened.run(0)
    opened.run(1)
    drawn = wait_for_rows(opened, 100)
    opened.reload()
    assert opened.page.locator(".mlless").count() == 0
    opened.run(3)
    assert wait_for_rows(opened, drawn) > drawn
    dashboard(opened).get_by_role("button", name="Remove a worker").click()
    opened.page.wait_for_function(
        "() => [...document.querySelectorAll('.mlless [data-text=workers_text]')].at(-1).textContent === '3'",
        timeout=DEADLINE_S * 1000,
    )
    opened.run(2)
    assert opened.text(2).strip() == "stopped"


@pytest.mark.long
def test_wrong_input_is_one_line_and_starts_nothing(notebook: Open) -> None:
    wrong = TRAIN.replace("rank=20", "rank=-1")
    opened = notebook([SETUP, wrong, "import mlless_nb.driver.runs as started; print(len(started.handles()))"])
    opened.run(0)
    opened.run(1)
    assert "rank" in opened.text(1)
    assert "Traceback" not in opened.text(1)
    opened.run(2)
    assert opened.text(2).strip() == "0"


@pytest.mark.long
@IN_BOTH
def test_a_detached_run_outlives_the_kernel_and_its_dashboard_comes_back_live(notebook: Open) -> None:
    cells = [SETUP, TRAIN.replace("browsed", "lasting --detach"), "%load_ext mlless_nb\n%mlless attach lasting"]
    opened = notebook([*cells, "print(lasting.wait(), lasting.history.n_steps == len(lasting.history['step']))"])
    opened.run(0)
    opened.run(1)
    wait_for_rows(opened, 20)
    opened.restart_kernel()
    opened.run(2)
    drawn = wait_for_rows(opened, 20)
    wait_for_rows(opened, drawn)
    dashboard(opened).get_by_text("Expected: about $").wait_for()
    dashboard(opened).get_by_role("button", name="Remove a worker").click()
    opened.page.wait_for_function(
        "() => [...document.querySelectorAll('.mlless [data-text=workers_text]')].at(-1).textContent === '3'",
        timeout=DEADLINE_S * 1000,
    )
    dashboard(opened).get_by_role("button", name="Stop").click()
    opened.run(3)
    assert opened.text(3).strip() == "stopped True"
