"""How well items' parameters predict ratings of users whose own parameters are not known: leave-one-out errors.

Where users are sharded across workers, the parameters of a user are current at the owner only, and those of the items
differ between replicas. Replicas are therefore compared without users' parameters: a user's are solved for, by
regularised least squares on some ratings and this replica's items, and judged on a rating that was left out. Every
replica does so on the same held-out ratings, so nothing is exchanged, and only what replicas share is judged. What a
worker has learnt of its own users plays no role, and must not: it is handed over whole when the worker leaves. To judge
on the ratings that were solved for would favour items with large or random factors, which fit anything. The users'
initial parameters predict nothing but biases, and the owner's would have to be sent.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: Users that are judged, those with most ratings, and ratings of each at most. Few, so that it takes about as long as
#: the evaluation of a large minibatch: solving takes the cube of the ratings of a user.
N_USERS, N_RATINGS = 64, 8
#: Least penalty per rating, about the default on MovieLens-1M. Without one, few ratings fit rank + 1 numbers exactly.
LEAST_PENALTY = 0.05


def leave_one_out(
    params: NDArray[np.float32], minibatch: object, mean: float, penalty: float, *, has_biases: bool
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
    user, item, rating = minibatch.user, minibatch.item, minibatch.rating  # type: ignore[attr-defined]
    counts = np.bincount(user)  # the ratings are sorted by user
    begins = np.cumsum(counts) - counts
    chosen = np.argsort(-counts, kind="stable")[: min(N_USERS, np.count_nonzero(counts))]
    n_of, n_taken = counts[chosen, None], np.minimum(counts[chosen, None], N_RATINGS)
    turn = np.arange(N_RATINGS)
    is_taken = turn < n_taken
    # Spread evenly over a user's ratings, which are sorted by item; what is not taken stays zero and adds nothing.
    at = (begins[chosen, None] + turn * n_of // n_taken)[is_taken]
    rows = params[minibatch.ids[item[at]]].astype(np.float64)  # type: ignore[attr-defined]
    residual = rating[at] - mean
    if has_biases:
        residual = residual - rows[:, -1]
        rows[:, -1] = 1.0
    features, target = np.zeros((*is_taken.shape, rows.shape[1])), np.zeros(is_taken.shape)
    features[is_taken], target[is_taken] = rows, residual
    kernel = features @ features.transpose(0, 2, 1)
    diagonal = kernel.reshape(len(chosen), -1)[:, :: N_RATINGS + 1]  # a view
    # The second term is rounding's: equal ratings of equal items would be singular where factors have exploded.
    diagonal += max(penalty, LEAST_PENALTY) * n_taken + 1e-9 * diagonal.max(axis=1, keepdims=True)
    inverse = np.linalg.inv(kernel)
    errors = np.einsum("uij,uj->ui", inverse, target) / inverse.reshape(len(chosen), -1)[:, :: N_RATINGS + 1]
    return float(np.square(errors).sum()), float(len(at))
