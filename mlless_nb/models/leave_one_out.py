"""How well items' parameters predict ratings of users whose own parameters are not known: leave-one-out errors.

Where users are sharded across workers, the parameters of a user are current at the owner only, and those of the items
differ between replicas. Replicas are therefore compared without users' parameters: a user's are solved for, by
regularised least squares on some ratings and this replica's items, and judged on a rating that was left out. Every
replica does so on the same held-out ratings, so nothing is exchanged, and only what replicas share is judged. What a
worker has learnt of its own users plays no role, and must not: it is handed over whole when the worker leaves. To judge
on the ratings that were solved for would favour items with large or random factors, which fit anything. The users'
initial parameters predict nothing but biases, and the owner's would have to be sent.

On MovieLens-1M (rank 20), eight replicas whose items were disturbed by 20 to 100 % of their size were ranked by 512
ratings as by the loss of all held-out rows with trained users, with a rank correlation of 0.87; 0.5 for 6 to 30 %. The
loss of 512 ratings with trained users has 0.89 and 0.63. As many ratings of fewer users are no better.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Users that are judged, those with most ratings, and ratings of each at most. Few, so that it takes 0.1 ms at rank 20,
#: however many ratings there are (evaluating 6,250 takes 0.04 ms): solving takes the cube of a user's ratings.
N_USERS, N_RATINGS = 64, 8
#: Least penalty per rating, about the default on MovieLens-1M. Without one, few ratings fit rank + 1 numbers exactly.
LEAST_PENALTY = 0.05


def leave_one_out(
    params: NDArray[np.float32], minibatch: Any, mean: float, penalty: float, *, has_biases: bool
) -> tuple[float, float]:
    """Sum of squared leave-one-out errors of some ratings of a minibatch, and their number.

    With ``z_i`` an item's factors (and 1, for the user's bias), ``K = Z Z^T`` over the ratings of a user, and ``t`` the
    ratings less the mean and the items' biases, the error of rating i if the user's parameters are fitted to the others
    is ``(A^-1 t)_i / (A^-1)_ii``, where ``A = K + n penalty I``: PMF's objective for this user alone.

    Parameters
    ----------
    params : float32 (n_rows, width)
        The rows of items are read, those of users are not.
    minibatch : RatingsMinibatch
    mean, penalty : float
    has_biases : bool
        Whether the last column is the bias.

    References
    ----------
    Hastie, Tibshirani and Friedman, "The Elements of Statistical Learning" (2009), equation 7.64.
    """
    rows, rating, is_taken, ridge = _sample(minibatch)
    values = params[rows].astype(np.float64)
    residual = rating - mean
    if has_biases:
        residual = residual - values[:, -1]
        values[:, -1] = 1.0
    features, target = np.zeros((*is_taken.shape, values.shape[1])), np.zeros((*is_taken.shape, 1))
    features[is_taken], target[is_taken, 0] = values, residual
    kernel = features @ features.transpose(0, 2, 1)
    diagonal = kernel.reshape(len(kernel), -1)[:, :: N_RATINGS + 1]  # a view
    # The second term is rounding's: equal ratings of equal items would be singular where factors have exploded.
    diagonal += max(penalty, LEAST_PENALTY) * ridge + 1e-9 * diagonal.max(axis=1, keepdims=True)
    inverse = np.linalg.inv(kernel)
    errors = (inverse @ target)[:, :, 0] / inverse.reshape(len(kernel), -1)[:, :: N_RATINGS + 1]
    return float(np.square(errors).sum()), float(len(rows))


@functools.lru_cache(maxsize=4)
def _sample(minibatch: Any) -> tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.bool_], NDArray[np.intp]]:
    """The ratings that are judged: their items' rows of the table, and their values; both (n,).

    Then, for the users that are judged, which places in (n_users, N_RATINGS) the ratings fill, in their order, and how
    many; (n_users, N_RATINGS) and (n_users, 1).
    """
    counts = np.bincount(minibatch.user)  # the ratings are sorted by user, then by item
    begins = np.cumsum(counts) - counts
    users = np.argsort(-counts, kind="stable")[: min(N_USERS, np.count_nonzero(counts))]
    n_of, turn = counts[users, None], np.arange(N_RATINGS)
    n_taken = np.minimum(n_of, N_RATINGS)
    is_taken = turn < n_taken
    at = (begins[users, None] + turn * n_of // n_taken)[is_taken]  # spread evenly over a user's ratings
    return minibatch.ids[minibatch.item[at]], minibatch.rating[at], is_taken, n_taken
