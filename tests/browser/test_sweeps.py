"""A ``%%mlless sweep`` cell in a real JupyterLab: a live leaderboard, its Stop button, and what stays."""

from __future__ import annotations

from collections.abc import Callable

import pytest
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
COMPARE = "mlless_nb.compare(rates.ranked[0].name, rates.ranked[1].name)"


def wait_for_text(notebook: Notebook, text: str) -> None:
    notebook.page.wait_for_function(
        "(text) => document.querySelector('.jp-Notebook').innerText.includes(text)", arg=text, timeout=DEADLINE_S * 1000
    )


def test_a_sweep_is_watched_and_stopped_while_another_cell_is_busy(notebook: Open) -> None:
    opened = notebook([SETUP, SWEEP, BUSY, SAYS, COMPARE])
    opened.run(0)
    opened.run(1)  # returns at once
    wait_for_text(opened, "rates-3")
    opened.start(2)
    opened.page.get_by_role("button", name="Stop the sweep").click()
    wait_for_text(opened, "stopped by you")
    opened.page.wait_for_selector(".js-plotly-plot", timeout=DEADLINE_S * 1000)
    opened.run(3)
    assert opened.text(3).strip() == "stopped True True"
    assert "best RMSE" in opened.text(1)
    assert opened.page.get_by_role("button", name="Stop the sweep").count() == 0
    opened.run(4)
    wait_for_text(opened, "optimizer.learning_rate")
    outputs = opened.save()["cells"][1]["outputs"]
    kinds = {kind for output in outputs for kind in output.get("data", {})}
    assert {"text/html", "application/vnd.plotly.v1+json"} <= kinds
    assert "application/vnd.jupyter.widget-view+json" not in kinds
