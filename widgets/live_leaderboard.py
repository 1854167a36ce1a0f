"""The live leaderboard of a sweep in a notebook: a table that follows it, and a Stop button.

At the end the static table and the figure take its place, which stay in the saved notebook.
"""

from __future__ import annotations

import secrets
import threading
import time
from typing import Any

import ipywidgets
from IPython.display import display, update_display

from .dashboard import let_browser_choose_subshell
from .leaderboard import as_html, static_bundles

#: Least seconds between two tables that are sent to the browser.
SEND_S = 0.25


class Leaderboard:
    """The view of one sweep.

    Parameters
    ----------
    sweep : Sweep
        Any object with ``trials``, ``is_live``, ``wait_for_change`` and ``stop()``, which returns at once.
    """

    def __init__(self, sweep: Any) -> None:
        self._sweep = sweep
        self._table = ipywidgets.HTML(as_html(sweep))
        self._stop = ipywidgets.Button(description="Stop the sweep", tooltip="Keeps what was found", icon="stop")
        self._stop.on_click(self._on_stop)
        for widget in (self._table, self._stop):
            let_browser_choose_subshell(widget.comm)
        self._box = ipywidgets.VBox([self._table, self._stop])
        name = secrets.token_hex(6)
        #: The display ids of the table's and of the figure's output.
        self._display_ids = (f"mlless-sweep-{name}", f"mlless-figure-{name}")
        self._feed = threading.Thread(target=self._follow, name=f"mlless-leaderboard-{name}", daemon=True)

    def display(self) -> None:
        """Show it in the present cell's output."""
        display(self._box, display_id=self._display_ids[0])
        display({"text/plain": ""}, raw=True, display_id=self._display_ids[1])
        self._feed.start()

    def join(self, timeout_s: float | None = None) -> None:
        """Wait until the end is shown."""
        self._feed.join(timeout_s)

    def _follow(self) -> None:
        seen = 0
        while self._sweep.is_live:
            seen = self._sweep.wait_for_change(seen, 1.0)
            self._table.value = as_html(self._sweep)
            time.sleep(SEND_S)
        for bundle, display_id in zip(static_bundles(self._sweep), self._display_ids, strict=False):
            update_display(bundle, raw=True, display_id=display_id)

    def _on_stop(self, _button: Any) -> None:
        self._stop.disabled, self._stop.description = True, "Stopping ..."
        self._sweep.stop()
