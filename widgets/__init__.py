"""The views of a run: a live dashboard in the notebook, and SVG, tables and text for the saved notebook.

Views read telemetry and send the user's commands; they decide nothing::

    view_model.py    RunState and rows -> words and figures, pure; uses format.py rows.py
    forecast.py      how far a run is and what is ahead; strip.py loss_range.py earlier.py: parts of a view, pure
    dashboard.py     the live widget, with its .js and .css; uses feed.py controls.py
    static.py        SVG, table and text of a saved notebook; uses svg.py
    plotly_figure.py  the same curves for plotly; plotly_style.py: colours and layout of all plotly figures
    advice_chart.py  seconds against dollars, before a run
    workflow.py      one step of a stateless run: its functions, objects and times
    live_line.py     one line of a terminal, rewritten
    tables.py        tables as text and HTML, pure; run_tables.py comparison.py: many runs
    leaderboard.py   a sweep as a table; parallel_coordinates.py: its trials as a figure
    live_leaderboard.py  both during the sweep, with .js and .css; uses live_coordinates.py
    display.py       chooses the view for a front end; uses frontend.py
    access.py        how code there reaches the run
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .advice_chart import advice_chart
from .display import show
from .frontend import can_click, detect
from .live_line import follow
from .plotly_figure import plot
from .static import static_bundle, text_summary

if TYPE_CHECKING:
    from .dashboard import Dashboard

__all__ = [
    "Dashboard",
    "advice_chart",
    "can_click",
    "detect",
    "follow",
    "plot",
    "show",
    "static_bundle",
    "text_summary",
]


def __getattr__(name: str) -> Any:
    # imported on first use: the widget's packages take 0.3 s to import, and a terminal does not need them
    if name == "Dashboard":
        from .dashboard import Dashboard

        return Dashboard
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
