"""Telemetry rows on their way to a view: the columns that are drawn, and how many of them. Pure."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..telemetry.live import COLUMNS

#: The columns a chart or the table needs, in the order in which dashboard.js reads them.
VIEW_COLUMNS = ("step", "epoch", "time_s", "loss", "validation_loss", "n_workers", "spent_usd", "servers_usd")
#: Rows in the snapshot that a reloaded page starts from: 32 bytes each, so at most 19 kB.
SNAPSHOT_ROWS = 600

_INDICES = [COLUMNS.index(column) for column in VIEW_COLUMNS]
_LOSS, _VALIDATION, _WORKERS = (VIEW_COLUMNS.index(name) for name in ("loss", "validation_loss", "n_workers"))

Rows = NDArray[np.float64]
ViewRows = NDArray[np.float32]


def view_rows(rows: Rows) -> ViewRows:
    """The columns that are drawn, float32 of shape (n, len(VIEW_COLUMNS)), C-contiguous."""
    return np.ascontiguousarray(rows[:, _INDICES], dtype=np.float32)


def decimate(rows: ViewRows, most: int = SNAPSHOT_ROWS) -> ViewRows:
    """At most ``most`` of ``rows`` that draw the same picture.

    Kept are the first and the last row, the lowest and the highest loss of every stretch (so spikes stay), evaluated
    steps evenly over the run and the best of them, and the steps at which the number of workers changed. ``most`` is at
    least 16.
    """
    if len(rows) <= most:
        return rows
    part = most // 4
    kept = [np.array([0, len(rows) - 1])]
    changes = np.flatnonzero(np.diff(rows[:, _WORKERS])) + 1
    # both sides of a change, or the line would slope
    kept += [changes[: part // 2] - 1, changes[: part // 2]]
    evaluated = np.flatnonzero(np.isfinite(rows[:, _VALIDATION]))
    if len(evaluated):
        kept.append(evaluated[np.linspace(0, len(evaluated) - 1, min(part - 1, len(evaluated))).astype(np.intp)])
        kept.append(evaluated[[np.argmin(rows[evaluated, _VALIDATION])]])  # the best: it is marked
    n_stretches = (most - 2 - 2 * (part // 2) - part) // 2
    length = len(rows) // n_stretches
    starts = np.arange(n_stretches) * length
    stretches = rows[: n_stretches * length, _LOSS].reshape(n_stretches, length)
    kept.append(starts + np.argmin(np.where(np.isfinite(stretches), stretches, np.inf), axis=1))
    kept.append(starts + np.argmax(np.where(np.isfinite(stretches), stretches, -np.inf), axis=1))
    thinned: ViewRows = rows[np.unique(np.concatenate(kept))]
    return thinned


def encode_snapshot(rows: ViewRows, most: int = SNAPSHOT_ROWS) -> bytes:
    """``rows`` decimated, after one row that holds how many rows they stand for. Little-endian float32."""
    head = np.zeros((1, len(VIEW_COLUMNS)), dtype=np.float32)
    head[0, 0] = len(rows)
    return np.concatenate([head, decimate(rows, most)]).astype("<f4").tobytes()
