"""The live leaderboard of a sweep in a notebook: a drawing and a table that follow it, and a Stop button.

At the end the figure and the static table take its place, which stay in the saved notebook.
"""

from __future__ import annotations

import secrets
import threading
import time
from pathlib import Path
from typing import Any

import anywidget
import traitlets
from IPython.display import display, update_display

from .dashboard import let_browser_choose_subshell
from .leaderboard import as_html, if_restarted, static_bundles
from .live_coordinates import live_coordinates

#: The parts of the widget's one module, in their order.
PARTS = ("keys.js", "presence.js", "leaderboard.js")
#: Least seconds between two tables that are sent to the browser.
SEND_S = 0.25


class Leaderboard(anywidget.AnyWidget):
    """The view of one sweep.

    Parameters
    ----------
    sweep : Sweep
        Any object with ``trials``, ``is_live``, ``wait_for_change`` and ``stop()``, which returns at once.
    """

    _esm = "\n".join((Path(__file__).parent / part).read_text("utf-8") for part in PARTS)
    _css = Path(__file__).parent / "leaderboard.css"
    #: The table as HTML.
    table = traitlets.Unicode().tag(sync=True)
    #: The trials as parallel coordinates, see `live_coordinates`; it stands above the table, which grows.
    chart = traitlets.Unicode().tag(sync=True)
    #: Whether the button was pressed, as the browser is told.
    is_stopping = traitlets.Bool(False).tag(sync=True)
    #: Whether the sweep has ended; seen where the static table could not take this one's place, after a reload.
    is_over = traitlets.Bool(False).tag(sync=True)
    #: See `leaderboard.if_restarted`.
    if_restarted = traitlets.Dict().tag(sync=True)

    def __init__(self, sweep: Any) -> None:
        self._sweep = sweep
        name = secrets.token_hex(6)
        #: The display ids of the widget's output, and of an empty one below it.
        self._display_ids = (f"mlless-sweep-{name}", f"mlless-trials-{name}")
        self._feed = threading.Thread(target=self._follow, name=f"mlless-leaderboard-{name}", daemon=True)
        super().__init__(table=as_html(sweep), chart=live_coordinates(sweep), if_restarted=if_restarted(sweep))
        let_browser_choose_subshell(self.comm)
        self.on_msg(self._on_message)

    def display(self) -> None:
        """Show it in the present cell's output."""
        display(self, display_id=self._display_ids[0])
        display({"text/plain": ""}, raw=True, display_id=self._display_ids[1])
        self._feed.start()

    def join(self, timeout_s: float | None = None) -> None:
        """Wait until the end is shown."""
        self._feed.join(timeout_s)

    def _follow(self) -> None:
        seen = 0
        while self._sweep.is_live:
            seen = self._sweep.wait_for_change(seen, 1.0)
            self._draw()
            time.sleep(SEND_S)
        with self.hold_sync():
            self._draw()
            self.is_over = True
        # the figure, if there is one, where the drawing was
        for bundle, display_id in zip(reversed(static_bundles(self._sweep)), self._display_ids, strict=False):
            update_display(bundle, raw=True, display_id=display_id)

    def _draw(self) -> None:
        with self.hold_sync():
            self.table, self.chart = as_html(self._sweep), live_coordinates(self._sweep)

    def _on_message(self, _widget: Any, message: Any, _buffers: Any) -> None:
        command = message.get("cmd") if isinstance(message, dict) else None
        if command == "stop":  # may come again
            self._sweep.stop()
            self.is_stopping = True
        if command in ("stop", "ping"):  # a page that hears nothing takes the kernel for restarted
            self.send({"kind": "pong"})
