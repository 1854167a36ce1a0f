"""The first centroids of k-means: rows of the training data, drawn by seed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]

#: Rows from which centroids are drawn: this many, or this many for each cluster if that is more.
SAMPLE_ROWS, SAMPLE_ROWS_EACH = 10_000, 10
#: Purpose of the seed: its draws are independent of those that split and order the rows.
_START = 3


def first_centers(dataset: Any, k: int, how: str, seed: int) -> Float64:
    """k rows of a bounded sample of ``dataset``, by ``seed``; float64 (k, n_features).

    With "random" all rows are equally likely. With "k-means++" each next row is drawn with a probability proportional
    to its squared distance to the nearest centroid so far; of ``2 + log k`` such draws the one is taken that reduces
    the sum of these distances most.

    Parameters
    ----------
    dataset : Csr or CsrStream
        At least k rows. Of rows that are read from a file, the sample is the first ones.
    how : {"k-means++", "random"}

    References
    ----------
    Arthur and Vassilvitskii, "k-means++: the advantages of careful seeding" (2007), with the greedy draws of its
    section 6.
    """
    rng = np.random.default_rng([seed, _START])
    X = _sample(dataset, max(SAMPLE_ROWS, SAMPLE_ROWS_EACH * k), rng)
    n = X.shape[0]
    if how == "random":
        return np.asarray(X[np.sort(rng.choice(n, k, replace=False))].toarray(), np.float64)
    lengths = np.asarray(X.multiply(X).sum(1)).reshape(-1)
    chosen = [int(rng.integers(n))]
    nearest = _squares(X, lengths, chosen)[:, 0]
    for _ in range(1, k):
        bounds = np.cumsum(nearest)
        if not bounds[-1] > 0:  # fewer different rows than clusters: the others stay without rows
            chosen.append(int(rng.integers(n)))
            continue
        drawn = rng.uniform(0.0, bounds[-1], 2 + int(math.log(k)))
        candidates = np.minimum(np.searchsorted(bounds, drawn, side="right"), n - 1)
        reduced = np.minimum(_squares(X, lengths, candidates.tolist()), nearest[:, None])
        best = int(reduced.sum(0).argmin())
        chosen.append(int(candidates[best]))
        nearest = reduced[:, best]
    return np.asarray(X[chosen].toarray(), np.float64)


def _sample(dataset: Any, n_most: int, rng: np.random.Generator) -> Any:
    """At most ``n_most`` rows, CSR float64."""
    from scipy.sparse import vstack

    if hasattr(dataset, "blocks"):
        parts, n = [], 0
        for X, _ in dataset.blocks():
            parts.append(X[: n_most - n])
            n += parts[-1].shape[0]
            if n >= n_most:
                break
        return vstack(parts, format="csr").astype(np.float64)
    X = dataset.X
    if dataset.n > n_most:
        X = X[np.sort(rng.choice(dataset.n, n_most, replace=False))]
    return X.astype(np.float64)


def _squares(X: Any, lengths: Float64, chosen: list[int]) -> Float64:
    """Squared distances of the rows of X to the chosen rows, float64 (n, number)."""
    centers = X[chosen].toarray()
    squares: Float64 = lengths[:, None] - 2.0 * np.asarray(X @ centers.T) + lengths[chosen]
    return np.maximum(squares, 0.0)
