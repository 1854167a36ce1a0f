"""What a run will take, in the line above its dashboard: it appears without moving anything, and stays at the end."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from applications import IN_BOTH
from lab import DEADLINE_S, Notebook

pytestmark = [pytest.mark.browser, pytest.mark.long]

Open = Callable[[list[str]], Notebook]
SETUP = """\
%load_ext mlless_nb
from mlless_nb import ISP, PMF, SGD, datasets
ratings = datasets.synthetic_ratings(3000, 1500, 200_000, seed=0)"""
TRAIN = """\
%%mlless --workers 4 --scale-in off --epochs 100000 --budget 5 --name browsed
model = PMF(rank=20, l2=0.05)
optimizer = SGD(learning_rate=4.0, momentum=0.9, nesterov=True)
data = ratings"""
TOLD = "() => [...document.querySelectorAll('.mlless-estimate')].at(-1)?.textContent.startsWith('Expected: about $')"


def box(page: Any) -> dict[str, float]:
    """The height of the dashboard, and where its header is in it."""
    code = """() => {
        const root = [...document.querySelectorAll('.mlless')].at(-1);
        const top = root.getBoundingClientRect().top;
        const head = root.querySelector(".mlless-head").getBoundingClientRect();
        return { height: root.offsetHeight, head: head.top - top };
    }"""
    found: dict[str, float] = page.evaluate(code)
    return found


@IN_BOTH
def test_the_estimate_appears_in_a_line_of_its_own_and_stays(notebook: Open) -> None:
    line = "about $0.0123 and 15 s with 4 workers; 2 workers are cheapest ($0.003, 15 s), 8 quickest ($0.011, 9.0 s)"
    held_back = "from mlless_nb.adviser import foresight\nforesight.announce = lambda *_: None"
    opened = notebook([SETUP, held_back, TRAIN, f"browsed.telemetry.update(estimate={line!r})"])
    for cell in range(3):
        opened.run(cell)
    page = opened.page
    page.wait_for_function("() => Number([...document.querySelectorAll('.mlless')].at(-1)?.dataset.rows) > 5")
    assert page.locator(".mlless-estimate").last.text_content() == ""
    before = box(page)
    opened.run(3)
    page.wait_for_function(TOLD, timeout=DEADLINE_S * 1000)
    assert box(page) == before
    cut = "(e) => e.scrollHeight > e.clientHeight"
    for width in (1000, 700, 360):
        page.locator(".mlless").last.evaluate("(e, width) => (e.style.width = `${width}px`)", width)
        assert not page.locator(".mlless-estimate").last.evaluate(cut), width
    page.locator(".mlless").last.evaluate("(e) => (e.style.width = '')")
    if folder := os.environ.get("MLLESS_SCREENSHOTS"):
        page.locator(".mlless").last.screenshot(path=f"{folder}/estimate.png")
    page.locator(".mlless").last.get_by_role("button", name="Stop", exact=True).click()
    page.wait_for_function("() => document.body.innerText.includes('Stopped by you')", timeout=DEADLINE_S * 1000)
    assert line in page.locator("body").inner_text()
