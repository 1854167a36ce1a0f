"""The README's cells in JupyterLab, on the data that they name: its pictures are of their dashboard."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from lab import Notebook
from test_controls import cut_off
from test_dashboard import dashboard, wait_for_rows
from test_pictures import take_picture, wait_until_drawn

pytestmark = [pytest.mark.browser, pytest.mark.long]

Open = Callable[[list[str]], Notebook]
README = Path(__file__).parents[2] / "README.md"
DATA_HOME = Path(os.environ.get("MLLESS_DATA_HOME", "nowhere"))
#: As wide as the pictures are shown, and as high as the cell.
PAGE = {"width": 1370, "height": 1000}
#: Rows after which the run has a forecast, and has removed workers.
SHOWN_ROWS = 500


@pytest.mark.skipif(not (DATA_HOME / "ml-1m").is_dir(), reason="MLLESS_DATA_HOME holds no ml-1m; put it there")
def test_the_readme_s_cells_train_and_nothing_of_their_dashboard_is_cut_off(notebook: Open) -> None:
    setup, train = re.findall(r"```python\n(.*?)\n```", README.read_text("utf-8"), re.DOTALL)[:2]
    earlier = re.sub(r"%%mlless.*", "%%mlless --workers 2 --epochs 12 --name base --wait", train)
    earlier = earlier.replace("learning_rate=30.0", "learning_rate=15.0")
    opened = notebook([setup, earlier, train, "first.stop()\nprint(first.wait())"])
    opened.page.set_viewport_size(PAGE)
    for cell in range(3):
        opened.run(cell)
    wait_for_rows(opened, SHOWN_ROWS)
    for theme in ("Light", "Dark"):
        opened.theme(theme)
        wait_until_drawn(opened, theme, [theme == "Dark", None])
        take_picture(opened.page.locator(".jp-Notebook .jp-Cell").nth(2), f"dashboard-{theme.lower()}")
        assert cut_off(opened) == [], theme
    assert "first" in dashboard(opened).locator(".mlless-head").inner_text()
    opened.run(3)
    assert opened.text(3).strip() in ("stopped", "finished")
