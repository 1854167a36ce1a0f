"""The style of the plotly figures: colours and layout of the dashboard, on a page of any colour and width."""

from __future__ import annotations

from typing import Any

#: Of texts and axes: stands out from white and from JupyterLab's dark grey.
_GREY, _GRID = "#7a7d82", "rgba(128,128,128,0.25)"
_CLEAR = "rgba(0,0,0,0)"


def styled(figure: Any, height: int, **layout: Any) -> Any:
    """``figure``, ``height`` pixels high, without a background of its own and with its legend above the axes."""
    figure.update_layout(
        template="none",
        paper_bgcolor=_CLEAR,
        plot_bgcolor=_CLEAR,
        font={"color": _GREY, "size": 12, "family": "system-ui, sans-serif"},
        legend={"orientation": "h", "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom"},
        height=height,
        **{"margin": {"t": 40, "b": 45, "l": 55, "r": 12}, **layout},
    )
    axes = {"gridcolor": _GRID, "linecolor": _GRID, "zerolinecolor": _GRID, "automargin": True}
    figure.update_xaxes(**axes, nticks=5, tickangle=0, title_standoff=8)
    figure.update_yaxes(**axes, title_standoff=8)
    return figure
