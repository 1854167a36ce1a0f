"""The dashboard in Voila, which shows a notebook's outputs without its cells: a run that is over, and a live one."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import pytest
from lab import DEADLINE_S, JUPYTERLAB, App, Lab
from test_dashboard import SETUP

pytestmark = [pytest.mark.browser, pytest.mark.long]

OVER = "over = FakeRun(n_steps=60)\nover.advance(60)\nshow(over)"
LIVE = "run = FakeRun(n_steps=100_000, budget_usd=50.0, removes_at=()).start(0.05)\nshow(run)"
ROWS = "([index, n]) => Number(document.querySelectorAll('.mlless')[index]?.dataset.rows) > n"


def test_voila_shows_a_finished_run_and_a_live_one_that_is_steered(
    server_of: Callable[[App], Lab], browser: Any
) -> None:
    pytest.importorskip("voila")
    lab = server_of(JUPYTERLAB)  # Voila is an extension of its server
    cells = [
        {"cell_type": "code", "id": f"c{i}", "metadata": {}, "execution_count": None, "outputs": [], "source": source}
        for i, source in enumerate([SETUP, OVER, LIVE])
    ]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    content = {"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
    (lab.notebooks / "shown.ipynb").write_text(json.dumps(content))
    page = browser.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(f"{error}\n{error.stack}"))
    page.goto(f"http://127.0.0.1:{lab.port}/voila/render/shown.ipynb?token={lab.token}")

    page.wait_for_function(ROWS, arg=[0, 59], timeout=DEADLINE_S * 1000)
    over, live = page.locator(".mlless").first, page.locator(".mlless").last
    assert "Finished" in over.inner_text()
    assert "All 60 steps are done." in over.inner_text()
    page.wait_for_function(ROWS, arg=[1, 3], timeout=DEADLINE_S * 1000)
    page.wait_for_function(ROWS, arg=[1, int(live.get_attribute("data-rows")) + 10], timeout=DEADLINE_S * 1000)
    live.get_by_role("button", name="Remove a worker").click()
    live.get_by_text("leaves, as you asked").wait_for()
    if folder := os.environ.get("MLLESS_SCREENSHOTS"):
        page.screenshot(path=f"{folder}/voila.png", full_page=True)
    live.get_by_role("button", name="Stop", exact=True).click()
    page.get_by_text("Stopped by you at step").first.wait_for()
    for kernel_id in [kernel["id"] for kernel in lab.api("kernels")]:
        lab.api(f"kernels/{kernel_id}", "DELETE")
    page.close()
    assert [error for error in errors if "blob:" in error] == []
