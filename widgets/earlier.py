"""The curves of a notebook's earlier runs, drawn faintly behind the present one. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..telemetry.live import COLUMNS

#: Most earlier runs, and most points of each: they are saved with the widget.
MOST_RUNS, MOST_POINTS = 3, 60
_DRAWN = [COLUMNS.index(name) for name in ("step", "time_s", "spent_usd")]
_LOSS, _VALIDATION = COLUMNS.index("loss"), COLUMNS.index("validation_loss")


def curves_of(run: Any, others: Sequence[Any]) -> list[dict[str, Any]]:
    """The newest of ``others`` that ended before ``run`` with losses of the same metric on the same rows.

    Each has the run's ``name`` and ``points``: [step, seconds, dollars, loss]. The loss is the validation loss, or
    without one the training loss.
    """
    state = run.telemetry.state
    found: list[dict[str, Any]] = []
    for other in reversed(others):
        theirs = other.telemetry.state
        if other is run or theirs.is_live or theirs.metric != state.metric or not _are_on_same_data(theirs, state):
            continue
        points = _points(other.telemetry.rows_since(0))
        if len(points) > 1 and len(found) < MOST_RUNS:
            found.append({"name": other.name, "points": points})
    return found


def _are_on_same_data(one: Any, other: Any) -> bool:
    if one.data_key != other.data_key:
        return False
    return bool(one.data_key) or _name_of_data(one) == _name_of_data(other)  # records of older versions have no key


def _name_of_data(state: Any) -> str:
    """The second part of a description such as "PMF rank 20 · MovieLens-1M · ISP 0.7"."""
    return str([*state.description.split(" · "), ""][1])


def _points(rows: Any) -> list[list[float]]:
    losses = rows[:, _VALIDATION]
    if not np.isfinite(losses).any():
        losses = rows[:, _LOSS]
    at = np.flatnonzero(np.isfinite(losses))
    if len(at) > MOST_POINTS:
        at = at[np.linspace(0, len(at) - 1, MOST_POINTS).astype(np.intp)]
    drawn = np.column_stack([rows[at][:, _DRAWN], losses[at]])
    return [[float(f"{value:.5g}") for value in row] for row in drawn]
