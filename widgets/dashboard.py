"""The live widget: one anywidget; its front end is the .js files of `PARTS`.

Data reaches the browser in two ways. Custom messages carry new rows (float32, in a buffer) and figures; messages sent
before a view exists are lost. The ``snapshot`` and ``status`` traits therefore carry a small version of the whole run.
A view sends "hello" when it appears and whenever a batch is missing, and receives all rows in reply. The browser
answers by custom messages only; a "ping" of a page that has heard nothing for a while is answered, so that a kernel
that was restarted is noticed. At the end a static view replaces the widget in the notebook; as long as the kernel
lives, the browser shows the live view in its place.
"""

from __future__ import annotations

import secrets
import threading
import time
from pathlib import Path
from typing import Any

import anywidget
import traitlets
from IPython import get_ipython
from IPython.display import display, update_display

from ..driver import runs as registry
from ..telemetry.live import RunState
from .access import access_to
from .controls import Controls
from .earlier import curves_of
from .feed import Feed
from .rows import Rows, encode_snapshot, view_rows
from .static import static_bundle
from .view_model import RECENT_ROWS, cost_text, words_of, workers_of

#: The parts of the widget's one module, in their order.
PARTS = (
    "keys.js",
    "presence.js",
    "panels.js",
    "charts.js",
    "store.js",
    "table.js",
    "details.js",
    "field.js",
    "dashboard.js",
)
#: Most rows in the reply to "hello": more than in a snapshot, which is saved with the notebook.
HELLO_ROWS = 4000
#: Least seconds between two computations of the workers' times, unless somebody comes or leaves.
WORKERS_S = 1.0


class Dashboard(anywidget.AnyWidget):
    """Curves, figures and controls of one run, live.

    Parameters
    ----------
    run : TrainingRun
        Any object with ``telemetry``, ``stop()``, ``scale_in(n)`` and ``budget``, all of which return at once.
    """

    _esm = "\n".join((Path(__file__).parent / part).read_text("utf-8") for part in PARTS)
    _css = Path(__file__).parent / "dashboard.css"
    #: float32: one row whose first value is the number of rows of the run, then at most 600 rows; see rows.py.
    snapshot = traitlets.Bytes(b"").tag(sync=True)
    #: As `view_model.view_of`, and more.
    status = traitlets.Dict().tag(sync=True)
    #: Earlier runs of the notebook, see `earlier.curves_of`.
    earlier = traitlets.List().tag(sync=True)

    def __init__(self, run: Any) -> None:
        self._run = run
        self._controls = Controls(run, self._show_resumed)
        #: The class of the static view's element, by which the browser finds it.
        self._card = f"mlless-end-{secrets.token_hex(6)}"
        #: Whether a browser has shown this widget.
        self.is_seen = False
        self._sent: dict[str, Any] = {}  # the view that the browser has
        # Held while a view is made and sent: else a reply to "hello" could bring back what has changed meanwhile, and
        # the feed, which sends changes only, would not mend it.
        self._telling = threading.Lock()
        # the part of it on the workers' times: who worked then, when it was computed, and what
        self._workers: tuple[Any, float, dict[str, Any]] = (None, 0.0, {})
        self._display_id = ""
        self._feed = Feed(run.telemetry, self, self._on_end)
        rows = view_rows(run.telemetry.rows_since(0))
        view = self._view(run.telemetry.state)
        super().__init__(status=view, snapshot=encode_snapshot(rows), earlier=curves_of(run, registry.handles()))
        let_browser_choose_subshell(self.comm)
        self.on_msg(self._on_message)

    def display(self, instead_of: str = "") -> None:
        """Show the widget in the present cell's output; the static view replaces it at the end of the run.

        ``instead_of``: the display id of an output that it replaces.
        """
        self._display_id = instead_of or f"mlless-{self.model_id}"
        display(self, display_id=self._display_id, update=bool(instead_of))
        self._feed.start()
        from ..adviser import foresight  # takes a moment to import, while the page draws

        foresight.announce(self._run)

    def join(self, timeout_s: float | None = None) -> None:
        """Wait until the run's end is shown."""
        self._feed.join(timeout_s)

    def close(self) -> None:
        """Stop the feed and remove the widget from the page. Idempotent."""
        self._feed.close()
        super().close()

    # ------------------------------------------------------------------ from the feed, on its thread
    def on_rows(self, first: int, rows: Rows, state: RunState) -> None:
        """See `Sink`."""
        with self._telling:
            view, sent = self._view(state, is_batch=True), self._sent
            changed = {name: value for name, value in view.items() if name not in sent or sent[name] != value}
            self._sent = view
            self.send(
                {"kind": "rows", "first": first, "status": changed}, buffers=[view_rows(rows).astype("<f4").tobytes()]
            )

    def on_snapshot(self, rows: Rows, state: RunState) -> None:
        """See `Sink`."""
        with self._telling, self.hold_sync():
            self.snapshot = encode_snapshot(view_rows(rows))
            self.status = self._sent = self._view(state)

    def _on_end(self) -> None:
        if self._display_id:
            update_display(static_bundle(self._run, card=self._card), raw=True, display_id=self._display_id)

    # ------------------------------------------------------------------ from the browser, on whatever thread
    def _on_message(self, _widget: Any, message: Any, _buffers: Any) -> None:
        if not isinstance(message, dict):
            return
        self.is_seen = True
        command = message.get("cmd")
        if command == "ping":
            self.send({"kind": "pong"})
        elif command != "hello":
            self.send(self._controls.handle(message))
        if command in ("hello", "continue"):  # after the end no feed tells the browser what has changed
            with self._telling:
                state, rows = self._run.telemetry.state, view_rows(self._run.telemetry.rows_since(0))
                self._sent = self._view(state)
                self.send({"kind": "all", "status": self._sent}, buffers=[encode_snapshot(rows, HELLO_ROWS)])

    def _show_resumed(self, run: Any) -> None:
        """Show the run that goes on from this one in its place, and give it the notebook's variable of its name."""
        shell, variable = get_ipython(), run.name.replace("-", "_")
        if shell is not None and shell.user_ns.get(variable) is self._run:
            shell.user_ns[variable] = run
        Dashboard(run).display(instead_of=self._display_id)

    def _view(self, state: RunState, *, is_batch: bool = False) -> dict[str, Any]:
        """What the browser shows beside the curves; for a batch of rows maybe with workers' times of a second ago."""
        telemetry = self._run.telemetry
        recent = telemetry.rows_since(max(telemetry.n_rows - RECENT_ROWS, 0))
        view = words_of(state, recent, stop_asked=self._controls.stop_asked, access=access_to(self._run))
        now, working = time.monotonic(), (state.status, state.n_workers, state.leaving)
        before, computed_s, shown = self._workers
        if not is_batch or before != working or now >= computed_s + WORKERS_S:
            shown = workers_of(state, recent)
            self._workers = working, now, shown
        view |= shown
        view["card"] = self._card
        view["cost_text"] = cost_text(self._run.cost)
        if not state.is_live:
            view["cannot"]["resume"] = self._controls.cannot_resume
        return view


def let_browser_choose_subshell(comm: Any) -> None:
    """Handle the browser's messages in the subshell that it names, also while a cell is busy.

    ipykernel 7.4 routes every message of a comm to the subshell that last published on it. With a feed thread this is
    the busy main one, or one that a page reload deleted. With this change browsers choose the subshell, as in 7.3.
    """
    if hasattr(comm, "_reply_subshell_for"):
        comm._reply_subshell_for = lambda _data, default: default
