"""Least squares for the times of DBW, under its three monotonicity constraints. Pure.

With ``x[h, k]`` the mean time until the k-th gradient of a step whose predecessor waited for h gradients, h and k from
1 to n, the fit minimises ``sum_hk count[h, k] * (x[h, k] - mean[h, k])**2`` subject to::

    x[h, k] <= x[h, k + 1]        x[h + 1, k] <= x[h, k]        x[k, k] <= x[k + 1, k + 1]

This is an isotonic regression over a partial order. The solver splits the cells recursively. A block of cells has its
weighted mean as value if no lower set of it (a set that with a cell holds all smaller cells of the block) has a smaller
mean; otherwise it is split there. A lower set is a staircase: row h holds the columns up to ``f(h)``, ``f`` does not
fall, and the third constraint says that ``f(h) >= h`` for the first rows only. So the best lower set is found by
dynamic programming over the rows, in time proportional to the cells of the block. The result is exact.

References
----------
Xu, Neglia and Sebastianelli, "Dynamic backup workers for parallel machine learning", problem (17); Spouge, Wan and
Wilbur, "Least squares isotonic regression in two dimensions" (2003), for the recursion.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]
#: A lower set is better if it gains more than this, relative to the sum of all weighted means.
TINY = 1e-12


def fit_times(mean: Float64, count: Float64) -> Float64:
    """The constrained least-squares fit, float64 (n, n); row ``h - 1`` and column ``k - 1`` stand for (h, k).

    Cells without samples do not matter to the sum. They get the least value that the constraints allow, or the largest
    if all values are allowed below it: an unknown number of workers then looks fast, is tried, and is known afterwards.

    Parameters
    ----------
    mean : float64 (n, n)
        Mean of each cell's samples, seconds; ignored where there are none.
    count : float64 (n, n)
        Number of each cell's samples, at least one in all.
    """
    rows = [row for row in range(len(mean)) if count[row].any()]
    weights = [[0.0, *np.cumsum(count[row]).tolist()] for row in rows]
    sums = [[0.0, *np.cumsum(np.where(count[row] > 0, count[row] * mean[row], 0.0)).tolist()] for row in rows]
    least_gain = TINY * sum(abs(row[-1]) for row in sums)
    values = np.full(mean.shape, math.nan)
    blocks = [([0] * len(rows), [len(mean)] * len(rows))]
    while blocks:
        low, high = blocks.pop()
        weight = sum(row[end] - row[first] for row, first, end in zip(weights, low, high, strict=True))
        if weight <= 0:
            continue
        level = sum(row[end] - row[first] for row, first, end in zip(sums, low, high, strict=True)) / weight
        split = _best_lower_set(rows, weights, sums, low, high, level, least_gain)
        if split is None:
            for row, first, end in zip(rows, low, high, strict=True):
                values[row, first:end] = level
        else:
            blocks += [(low, split), (split, high)]
    values[count <= 0] = math.nan
    return _extended(values)


def _best_lower_set(
    rows: list[int],
    weights: list[list[float]],
    sums: list[list[float]],
    low: list[int],
    high: list[int],
    level: float,
    least_gain: float,
) -> list[int] | None:
    """The lower set, between two others, whose mean lies furthest below ``level``, by weight; None if there is none.

    Lower sets are given by the number of columns in each of ``rows``. ``weights`` and ``sums`` are cumulative by row.
    """
    active = [index for index in range(len(rows)) if low[index] < high[index]]
    chosen = list(low)
    totals: list[float] = []
    choices: list[list[int]] = []  # by row and number of columns: the position of the best choice in the row before
    before = -1
    for index in active:
        row, first, weight, total = rows[index], low[index], weights[index], sums[index]
        # Best of the choices before with at most so many columns: any of them, and those beyond the diagonal.
        best = best_beyond = 0.0 if before < 0 else -math.inf
        at = at_beyond = place = 0
        now: list[float] = []
        come: list[int] = []
        for n_columns in range(first, high[index] + 1):
            if before >= 0:
                while place < len(totals) and low[before] + place <= n_columns:
                    if totals[place] > best:
                        best, at = totals[place], place
                    if low[before] + place > rows[before] and totals[place] > best_beyond:
                        best_beyond, at_beyond = totals[place], place
                    place += 1
            gain = level * (weight[n_columns] - weight[first]) - (total[n_columns] - total[first])
            is_beyond = n_columns > row  # holds the diagonal cell of this row
            now.append(gain + (best_beyond if is_beyond else best))
            come.append(at_beyond if is_beyond else at)
        totals, before = now, index
        choices.append(come)
    if not active or max(totals) <= least_gain:
        return None
    place = totals.index(max(totals))
    for index, come in zip(reversed(active), reversed(choices), strict=True):
        chosen[index] = low[index] + place
        place = come[place]
    # A choice with all cells gains nothing, up to rounding.
    return None if chosen in (low, high) else chosen


def _extended(values: Float64) -> Float64:
    """``values``, NaN where there are no samples, with the least (else the largest) value allowed in those cells."""
    n = len(values)
    found = np.where(np.isnan(values), -math.inf, values)
    for k in range(n):
        for h in range(n - 1, -1, -1):
            smaller = [found[h, k]]
            smaller += [found[h + 1, k]] if h + 1 < n else []
            smaller += [found[h, k - 1]] if k else []
            smaller += [found[k - 1, k - 1]] if h == k and k else []
            found[h, k] = max(smaller)
    # The largest cell, (1, n), is above all samples, so each of the others has a larger one with a value.
    for k in range(n - 1, -1, -1):
        for h in range(n):
            if found[h, k] == -math.inf:
                larger = [found[h - 1, k]] if h else []
                larger += [found[h, k + 1]] if k + 1 < n else []
                larger += [found[k + 1, k + 1]] if h == k and k + 1 < n else []
                found[h, k] = min(larger)
    return found
