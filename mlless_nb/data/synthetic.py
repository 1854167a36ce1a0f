"""Generated datasets by seed, with a planted model that can be learned; they are shown as synthetic everywhere.

One seed gives the same bytes on every machine. Sums are taken in a fixed order and powers by the C library, because the
results of NumPy and BLAS differ in the last bit between instruction sets. The random draws use the C library too, whose
last bits also depend on the processor. But they only decide ids, half steps and labels, or are rounded to float32, so
that a last bit practically never has an effect.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from .checks import checked_count
from .csr import Csr
from .ratings import Ratings

#: Distinct values of the 26 categories of generated clicks: from a handful to a million, as in click logs.
CATEGORIES = tuple(round(3 * 10 ** (power / 4.6)) for power in range(26))
N_NUMERIC = 13
#: Rows generated at once.
BLOCK_ROWS = 1 << 17


def synthetic_ratings(n_users: int, n_items: int, n: int, rank: int = 10, seed: int = 0) -> Ratings:
    """Ratings in half steps from 1 to 5 with a planted mean, biases and factors, and noise of 0.5.

    Pairs are unique; users and items have long tails.

    Parameters
    ----------
    n_users, n_items : int
    n : int
        Ratings, at most ``n_users * n_items``.
    rank : int
        Rank of the planted factors.
    seed : int
    """
    n_users, n_items = checked_count("n_users", n_users), checked_count("n_items", n_items)
    n = checked_count("n", n, most=min(n_users * n_items, 2**31 - 1))
    rank = checked_count("rank", rank, most=1000)
    rng = _rng(seed)
    pairs = _pairs(rng, n_users, n_items, n)
    users, items = (pairs // n_items).astype(np.int32), (pairs % n_items).astype(np.int32)
    # Falling weights, so that the first few factors explain most; together their standard deviation is 0.65.
    weights = 1 / np.sqrt(np.arange(1, rank + 1))
    weights *= 0.65 / math.sqrt(math.fsum(weights**2))
    tastes, traits = rng.normal(size=(n_users, rank)) * weights, rng.normal(size=(n_items, rank))
    user_bias, item_bias = rng.normal(0, 0.45, n_users), rng.normal(0, 0.55, n_items)
    ratings = np.empty(n, np.float32)
    for start in range(0, n, BLOCK_ROWS):
        at = slice(start, start + BLOCK_ROWS)
        u, i = users[at], items[at]
        score = 3.55 + user_bias[u] + item_bias[i]
        for factor in range(rank):
            score += tastes[u, factor] * traits[i, factor]
        ratings[at] = np.clip(np.round(2 * (score + rng.normal(0, 0.5, len(u)))) / 2, 1, 5)
    return Ratings(users, items, ratings, (n_users, n_items), "generated ratings", is_synthetic=True)


def _pairs(rng: np.random.Generator, n_users: int, n_items: int, n: int) -> NDArray[np.int64]:
    """``n`` different cells of the (n_users, n_items) table, in random order; some users and items more often."""
    of_user = rng.lognormal(0, 1.1, n_users)
    of_item = rng.permutation(_powers(n_items, 20.0, -0.9))
    if n * 8 > n_users * n_items:
        # Dense: drawing until enough cells differ could take for ever; the n smallest exponential clocks are the same.
        clocks = rng.exponential(size=(n_users, n_items)) / of_user[:, None] / of_item
        return rng.permutation(np.sort(np.argpartition(clocks.ravel(), n - 1)[:n]))
    of_user, of_item = np.cumsum(of_user / math.fsum(of_user)), np.cumsum(of_item / math.fsum(of_item))
    pairs = np.empty(0, np.int64)
    while len(pairs) < n:
        draws = int(1.3 * (n - len(pairs))) + 1000
        # The last cumulative sum may be 1 - 1e-16: a draw above it is the last user.
        users = np.minimum(np.searchsorted(of_user, rng.random(draws)), n_users - 1)
        items = np.minimum(np.searchsorted(of_item, rng.random(draws)), n_items - 1)
        pairs = np.unique(np.concatenate([pairs, users * n_items + items]))
    return rng.permutation(pairs)[:n]


def synthetic_clicks(n: int, n_features: int = 100_013, seed: int = 0) -> Csr:
    """Click-log rows with planted logistic weights: 13 numbers in [0, 1] and 26 categories hashed into the rest.

    About a quarter of the labels are 1.

    Parameters
    ----------
    n : int
        Number of rows, with 39 non-zeros each (fewer if hashes collide).
    n_features : int
        At least 14: 13 numbers and the buckets of the categories.
    seed : int
    """
    from scipy.sparse import csr_array
    from scipy.special import expit

    n = checked_count("n", n)
    n_features = checked_count("n_features", n_features, least=N_NUMERIC + 1, most=2**31 - 2)
    rng = _rng(seed)
    n_buckets, n_fields = n_features - N_NUMERIC, N_NUMERIC + len(CATEGORIES)
    numeric_weights = rng.normal(0, 1.5, N_NUMERIC)
    category_weights = [rng.normal(0, 0.35, count) for count in CATEGORIES]
    powers = np.cumsum(_powers(max(CATEGORIES), 3.0, -1.15))
    sums = [powers[:count] for count in CATEGORIES]
    indices = np.empty((n, n_fields), np.int32)
    values = np.ones((n, n_fields), np.float32)
    indices[:, :N_NUMERIC] = np.arange(N_NUMERIC)
    score = np.empty(n)
    for start in range(0, n, BLOCK_ROWS):
        at = slice(start, min(start + BLOCK_ROWS, n))
        rows = at.stop - start
        numeric = np.minimum(rng.gamma(0.5, 1, (rows, N_NUMERIC)) / 8, 1)
        values[at, :N_NUMERIC] = numeric
        score[at] = 0.0
        for number, weight in enumerate(numeric_weights):
            score[at] += numeric[:, number] * weight
        for field, (weights, sum_) in enumerate(zip(category_weights, sums, strict=True)):
            value = np.minimum(np.searchsorted(sum_, rng.random(rows) * sum_[-1]), len(sum_) - 1)
            score[at] += weights[value]
            hashed = (value * 2654435761 + field * 97531) % 4294967291 % n_buckets
            indices[at, N_NUMERIC + field] = N_NUMERIC + hashed
    chance = expit(score + 0.1 - np.quantile(score, 0.75))
    y = (rng.random(n) < chance).astype(np.float32)
    X = csr_array((values.ravel(), indices.ravel(), np.arange(n + 1) * n_fields), shape=(n, n_features))
    X.sum_duplicates()
    return Csr(X, y, "generated clicks", is_synthetic=True)


def _powers(n: int, first: float, exponent: float) -> NDArray[np.float64]:
    """``(first + k) ** exponent`` for k < n, float64 (n,), by the C library."""
    bases = (np.arange(n) + first).tolist()
    return np.fromiter(map(math.pow, bases, itertools.repeat(exponent)), np.float64, n)


def _rng(seed: int) -> np.random.Generator:
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise DataError("seed", seed, "an integer >= 0")
    return np.random.default_rng(seed)
