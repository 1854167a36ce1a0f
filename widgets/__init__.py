"""The views of a run: a live dashboard in the notebook, and pictures, tables and text that stay when it is saved.

::

    view_model.py  RunState and rows -> words and figures, pure; format.py rows.py
    dashboard.py   the live widget, with its .js and .css; feed.py controls.py
    static.py      picture, table and text that stay in a saved notebook; svg.py
    plotly_figure.py  the same curves for plotly
    display.py     which of these a front end gets; frontend.py
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .display import show
from .frontend import can_click, detect
from .plotly_figure import plot
from .static import static_bundle, text_summary

if TYPE_CHECKING:
    from .dashboard import Dashboard

__all__ = ["Dashboard", "can_click", "detect", "plot", "show", "static_bundle", "text_summary"]


def __getattr__(name: str) -> Any:
    # the widget's packages take 0.3 s to import, and a terminal needs none of them
    if name == "Dashboard":
        from .dashboard import Dashboard

        return Dashboard
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
