"""Measures of predictions that people quote. Pure functions of arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError

Float64 = NDArray[np.float64]

#: Bins of equal width in which predicted probabilities are compared with the share of ones.
N_BINS = 10
#: Probabilities are kept this far from 0 and 1, so that a log loss is finite.
LEAST = 1e-7


def ones(y: NDArray[Any]) -> NDArray[np.bool_]:
    """Which of the labels (n,) are 1; DataError unless the others are all 0, or all -1."""
    is_one: NDArray[np.bool_] = y == 1
    other = -1 if bool((y == -1).any()) else 0
    _refuse(y, ~is_one & (y != other), "0 or 1, or all labels -1 or 1")
    return is_one


def class_numbers(y: NDArray[Any], n_classes: int) -> NDArray[np.int64]:
    """Labels (n,) as numbers of classes; DataError unless they are such."""
    _refuse(y, (y < 0) | (y >= n_classes) | (y != np.floor(y)), f"an integer from 0 to {n_classes - 1}")
    return y.astype(np.int64)


def _refuse(y: NDArray[Any], is_wrong: NDArray[np.bool_], valid: str) -> None:
    if bool(is_wrong.any()):
        at = int(np.flatnonzero(is_wrong)[0])
        raise DataError(f"data.y[{at}]", float(y[at]), valid)


def errors(y: NDArray[Any], predicted: NDArray[Any]) -> dict[str, float]:
    """RMSE, MAE and R2 (the share of the variance that is predicted; NaN if all labels are equal), for (n,) values."""
    off = predicted.astype(np.float64) - y
    square, spread = float(np.mean(off * off)), float(np.var(y.astype(np.float64)))
    return {
        "RMSE": square**0.5,
        "MAE": float(np.mean(np.abs(off))),
        "R2": 1.0 - square / spread if spread else float("nan"),
    }


def auc(is_one: NDArray[np.bool_], scores: NDArray[Any]) -> float:
    """Area under the ROC curve: how often a one has a higher score than a zero, ties counting half; NaN without both.

    Parameters
    ----------
    is_one : bool (n,)
    scores : (n,)

    References
    ----------
    Mann and Whitney 1947: the U statistic over the number of pairs.
    """
    n_ones = int(np.count_nonzero(is_one))
    n_zeros = len(is_one) - n_ones
    if not n_ones or not n_zeros:
        return float("nan")
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2.0  # the mean rank of equal scores
    return float((ranks[place][is_one].sum() - n_ones * (n_ones + 1) / 2) / n_ones / n_zeros)


def probabilities(is_one: NDArray[np.bool_], predicted: NDArray[Any]) -> dict[str, float]:
    """Log loss (nats), Brier score and calibration error of predicted probabilities of ones; both (n,)."""
    chance = np.clip(predicted.astype(np.float64), LEAST, 1 - LEAST)
    return {
        "log loss": float(-np.mean(np.log(np.where(is_one, chance, 1 - chance)))),
        "Brier score": float(np.mean((predicted - is_one) ** 2)),
        "calibration error": calibration_error(is_one, predicted),
    }


def calibration_error(is_right: NDArray[np.bool_], chance: NDArray[Any]) -> float:
    """Mean difference of predicted and true share in `N_BINS` bins of predictions, weighted by their rows.

    References
    ----------
    Guo, Pleiss, Sun and Weinberger 2017, equation 3 (expected calibration error).
    """
    place = np.minimum((chance * N_BINS).astype(np.int64), N_BINS - 1)
    said = np.bincount(place, chance, N_BINS)
    was = np.bincount(place, is_right, N_BINS)
    return float(np.abs(said - was).sum() / len(chance))


def ranking(is_hit: NDArray[np.bool_], n_relevant: NDArray[Any]) -> dict[str, float]:
    """Precision, recall and NDCG of the first k places of rankings, means over users.

    Parameters
    ----------
    is_hit : bool (n_users, k)
        Whether the item in each place is relevant.
    n_relevant : (n_users,)
        Relevant items of each user, at least one.

    References
    ----------
    Järvelin and Kekäläinen 2002 (discounted cumulative gain), with relevance 0 or 1.
    """
    k = is_hit.shape[1]
    weights = 1.0 / np.log2(np.arange(2, k + 2))
    ideal = np.append(0.0, np.cumsum(weights))[np.minimum(n_relevant, k)]
    n_hits = is_hit.sum(1)
    return {
        f"precision@{k}": float(np.mean(n_hits / k)),
        f"recall@{k}": float(np.mean(n_hits / n_relevant)),
        f"NDCG@{k}": float(np.mean((is_hit @ weights) / ideal)),
    }
