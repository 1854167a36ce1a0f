"""Prepares telemetry rows for a view: selects the drawn columns and limits the number of rows. Pure."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..telemetry.live import COLUMNS

#: The columns that charts and tables need, in the order in which dashboard.js reads them.
VIEW_COLUMNS = ("step", "epoch", "time_s", "loss", "validation_loss", "n_workers", "spent_usd", "servers_usd")
#: Most rows in the snapshot that a reloaded page starts from: 32 bytes each, so at most 19 kB.
SNAPSHOT_ROWS = 600

_INDICES = [COLUMNS.index(column) for column in VIEW_COLUMNS]
_LOSS, _VALIDATION, _WORKERS = (VIEW_COLUMNS.index(name) for name in ("loss", "validation_loss", "n_workers"))

Rows = NDArray[np.float64]
ViewRows = NDArray[np.float32]


def view_rows(rows: Rows) -> ViewRows:
    """The columns that are drawn, float32 of shape (n, len(VIEW_COLUMNS)), C-contiguous."""
    return np.ascontiguousarray(rows[:, _INDICES], dtype=np.float32)


def decimate(rows: ViewRows, most: int = SNAPSHOT_ROWS) -> ViewRows:
    """At most ``most`` of ``rows``, chosen so that the curves look the same.

    Kept are the first and the last row, the lowest and the highest loss of every stretch (so that spikes stay), evenly
    spaced evaluations and the best one, and the steps at which the number of workers changed. ``most`` is at least 16.
    """
    if len(rows) <= most:
        return rows
    part = most // 4
    kept = [np.array([0, len(rows) - 1])]
    changes = np.flatnonzero(np.diff(rows[:, _WORKERS])) + 1
    # both rows of a change, otherwise the line would slope
    kept += [changes[: part // 2] - 1, changes[: part // 2]]
    evaluated = np.flatnonzero(np.isfinite(rows[:, _VALIDATION]))
    if len(evaluated):
        kept.append(evaluated[np.linspace(0, len(evaluated) - 1, min(part - 1, len(evaluated))).astype(np.intp)])
        kept.append(evaluated[[np.argmin(rows[evaluated, _VALIDATION])]])  # the best one is marked in the chart
    n_stretches = (most - 2 - 2 * (part // 2) - part) // 2
    length = -(-len(rows) // n_stretches)
    starts = np.arange(0, len(rows), length)
    stretches = np.full((len(starts), length), np.nan, dtype=np.float32)  # the last one may be shorter
    stretches.flat[: len(rows)] = rows[:, _LOSS]
    kept.append(starts + np.argmin(np.where(np.isfinite(stretches), stretches, np.inf), axis=1))
    kept.append(starts + np.argmax(np.where(np.isfinite(stretches), stretches, -np.inf), axis=1))
    thinned: ViewRows = rows[np.unique(np.concatenate(kept))]
    return thinned


def encode_snapshot(rows: ViewRows, most: int = SNAPSHOT_ROWS) -> bytes:
    """Decimated ``rows``, preceded by a row that holds the original number of rows. Little-endian float32."""
    head = np.zeros((1, len(VIEW_COLUMNS)), dtype=np.float32)
    head[0, 0] = len(rows)
    return np.concatenate([head, decimate(rows, most)]).astype("<f4").tobytes()
