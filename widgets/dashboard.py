"""The live widget: one anywidget, whose face is charts.js, store.js and dashboard.js.

Two ways lead to the browser. Custom messages carry what is new (float32 rows in a buffer, and the figures); those sent
before a view is there are lost. So the ``snapshot`` and ``status`` traits carry a small whole, and a view says hello
when it appears and whenever a batch is missing, and is answered with all. The only way back is a custom message.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anywidget
import plotly
import traitlets
from IPython.display import display, update_display

from ..telemetry.live import RunState
from .controls import Controls
from .feed import Feed
from .rows import Rows, encode_snapshot, view_rows
from .static import static_bundle
from .view_model import RECENT_ROWS, view_of

_HERE = Path(__file__).parent
#: Sent once a page, on request: inside ``_esm`` it would lie in every widget and every saved notebook.
PLOTLY_JS = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
#: Rows that answer a hello: a view that is there can take more than a saved snapshot.
HELLO_ROWS = 4000


class Dashboard(anywidget.AnyWidget):
    """Curves, figures and controls of one run, live.

    Parameters
    ----------
    run : TrainingRun
        Anything with ``telemetry``, ``stop()``, ``scale_in(n)`` and a ``budget``, all of which return at once.
    """

    _esm = "\n".join((_HERE / part).read_text("utf-8") for part in ("charts.js", "store.js", "dashboard.js"))
    _css = _HERE / "dashboard.css"
    #: float32: one row whose first value is the number of rows of the run, then at most 600 rows; see rows.py.
    snapshot = traitlets.Bytes(b"").tag(sync=True)
    #: What `state.view_of` returns.
    status = traitlets.Dict().tag(sync=True)

    def __init__(self, run: Any) -> None:
        self._run = run
        self._controls = Controls(run)
        #: Whether a browser has shown this widget.
        self.is_seen = False
        self._told: object = None  # the events that the browser has
        self._display_id = ""
        self._feed = Feed(run.telemetry, self, self._on_end)
        rows = view_rows(run.telemetry.rows_since(0))
        super().__init__(status=self._view(run.telemetry.state), snapshot=encode_snapshot(rows))
        _let_browser_choose_subshell(self.comm)
        self.on_msg(self._on_message)

    def display(self) -> None:
        """Show the widget in the present cell's output; the static picture takes that place at the end of the run."""
        self._display_id = f"mlless-{self.model_id}"
        display(self, display_id=self._display_id)
        self._feed.start()

    def join(self, timeout_s: float | None = None) -> None:
        """Wait until the run's end is shown."""
        self._feed.join(timeout_s)

    def close(self) -> None:
        """Stop feeding and take the widget from the page. Idempotent."""
        self._feed.close()
        super().close()

    # ------------------------------------------------------------------ from the feed, on its thread
    def on_rows(self, first: int, rows: Rows, state: RunState) -> None:
        """See `Sink`."""
        view = self._view(state)
        if state.events is self._told:
            del view["events"]
        self._told = state.events
        self.send({"kind": "rows", "first": first, "status": view}, buffers=[view_rows(rows).astype("<f4").tobytes()])

    def on_snapshot(self, rows: Rows, state: RunState) -> None:
        """See `Sink`."""
        with self.hold_sync():
            self.snapshot = encode_snapshot(view_rows(rows))
            self.status = self._view(state)

    def _on_end(self) -> None:
        if self._display_id:
            update_display(static_bundle(self._run), raw=True, display_id=self._display_id)

    # ------------------------------------------------------------------ from the browser, on whatever thread
    def _on_message(self, _widget: Any, message: Any, _buffers: Any) -> None:
        if not isinstance(message, dict):
            return
        self.is_seen = True
        command = message.get("cmd")
        if command == "hello":
            state, rows = self._run.telemetry.state, view_rows(self._run.telemetry.rows_since(0))
            self.send({"kind": "all", "status": self._view(state)}, buffers=[encode_snapshot(rows, HELLO_ROWS)])
        elif command == "plotly":
            self.send({"kind": "plotly"}, buffers=[PLOTLY_JS.read_bytes()])
        else:
            self.send(self._controls.handle(message))

    def _view(self, state: RunState) -> dict[str, Any]:
        telemetry = self._run.telemetry
        recent = telemetry.rows_since(max(telemetry.n_rows - RECENT_ROWS, 0))
        return view_of(state, recent, stop_asked=self._controls.stop_asked)


def _let_browser_choose_subshell(comm: Any) -> None:
    """Have presses handled where the browser asks for, while a cell is busy too.

    ipykernel 7.4 routes every message of a comm to the subshell that last published on it: with a feed thread that is
    the busy main one, or one that a page reload deleted. Browsers ask for a subshell of their own, as in 7.3.
    """
    if hasattr(comm, "_reply_subshell_for"):
        comm._reply_subshell_for = lambda _data, default: default
