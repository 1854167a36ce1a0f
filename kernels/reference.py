"""The kernels in plain, readable NumPy, for the tests to compare with; not for training.

Each function has the name, arguments and effects of the compiled one, which differs by rounding only (split and
addition are bit-identical). The functions of frames are in ``reference_frames``, those of
``products`` in ``reference_products``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .significance import SignificanceSplit

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Int32 = NDArray[np.int32]
UInt16 = NDArray[np.uint16]
UInt32 = NDArray[np.uint32]


def pmf_gradient(
    params: Float32,
    rows: Int32,
    user: Int32,
    item: Int32,
    rating: Float32,
    mean: float,
    l2: float,
    divisor: float,
    biases: bool,
    grad: Float32,
) -> float:
    """Gradient of the sum of ``e^2/2 + l2/2 (|p_u|^2 + |q_i|^2)``, over divisor; e = r - mean - b_u - b_i - p_u.q_i."""
    table = params[rows].astype(np.float64)
    p, q = table[user], table[item]
    rank = params.shape[1] - biases
    error = rating - mean - (p[:, :rank] * q[:, :rank]).sum(1)
    d_user, d_item = l2 * p, l2 * q
    if biases:
        error -= p[:, rank] + q[:, rank]
        d_user[:, rank] -= error
        d_item[:, rank] -= error
    d_user[:, :rank] -= error[:, None] * q[:, :rank]
    d_item[:, :rank] -= error[:, None] * p[:, :rank]
    total = np.zeros(grad.shape)
    np.add.at(total, user, d_user)
    np.add.at(total, item, d_item)
    grad[:] = total / divisor
    return float((error**2).sum())


def pmf_predict(params: Float32, user: Int32, item: Int32, mean: float, biases: bool, out: Float32) -> None:
    """``mean + b_u + b_i + p_u.q_i``; user and item are rows of params."""
    p, q = params[user].astype(np.float64), params[item].astype(np.float64)
    rank = params.shape[1] - biases
    score = mean + (p[:, :rank] * q[:, :rank]).sum(1)
    out[:] = score + p[:, rank] + q[:, rank] if biases else score


def pmf_sgd_pass(
    params: Float32,
    rows: Int32,
    user: Int32,
    item: Int32,
    rating: Float32,
    mean: float,
    l2: float,
    rate: float,
    biases: bool,
) -> float:
    """``p += rate * (e*q - l2*p)``, q likewise with the old p, and the biases, one rating after another."""
    rank, squared = params.shape[1] - biases, 0.0
    for u, i, r in zip(rows[user], rows[item], rating.astype(np.float64), strict=True):
        p, q = params[u].astype(np.float64), params[i].astype(np.float64)
        error = r - mean - p[:rank] @ q[:rank] - (p[rank] + q[rank] if biases else 0.0)
        by_p, by_q = error * p, error * q
        if biases:
            by_p[rank] = by_q[rank] = error
        params[u], params[i] = p + rate * (by_q - l2 * p), q + rate * (by_p - l2 * q)
        squared += error**2
    return squared


def pmf_squared_error(
    params: Float32,
    rows: Int32,
    user: Int32,
    item: Int32,
    rating: Float32,
    mean: float,
    biases: bool,
) -> float:
    """Sum of ``e^2``."""
    score = np.empty(len(rating), np.float64)
    pmf_predict(params, rows[user], rows[item], mean, biases, score)  # type: ignore[arg-type]
    return float(((rating - score) ** 2).sum())


def _dense(indptr: Int32, indices: UInt16 | Int32, values: Float32, n_columns: int) -> NDArray[np.float64]:
    X = np.zeros((len(indptr) - 1, n_columns))
    np.add.at(X, (np.repeat(np.arange(len(X)), np.diff(indptr)), indices), values)
    return X


def linear_gradient(
    loss: str,
    params: Float32,
    ids: Int32,
    columns: Int32,
    dense: Float32,
    indptr: Int32,
    indices: UInt16 | Int32,
    values: Float32,
    labels: Float32,
    divisor: float,
    grad: Float32,
) -> float:
    """Gradient of the sum of losses, over divisor: for each of ``ids``, then for the intercept (last row of params)."""
    X = _dense(indptr, indices, values if len(values) else np.ones(len(indices), np.float32), len(ids) + 1)
    X[:, columns] += dense.T
    X[:, -1] += 1.0
    margin = X @ params[np.append(ids, -1), 0].astype(np.float64)
    losses, slopes = _LOSSES[loss](margin, labels.astype(np.float64))
    grad[:, 0] = X.T @ slopes / divisor
    return float(losses.sum())


def _logistic(margin: Float64, label: Float64) -> tuple[Float64, Float64]:
    """``log(1 + exp(z)) - y z``."""
    return np.logaddexp(0.0, margin) - label * margin, 1.0 / (1.0 + np.exp(-np.clip(margin, -700, 700))) - label


def _squared(margin: Float64, label: Float64) -> tuple[Float64, Float64]:
    """``(z - y)^2``, and the slope of half of it."""
    return (margin - label) ** 2, margin - label


def _hinge(margin: Float64, label: Float64) -> tuple[Float64, Float64]:
    """``max(0, 1 - s z)``; s is 1 if the label is above 0, else -1."""
    sign = np.where(label > 0, 1.0, -1.0)
    return np.maximum(1.0 - sign * margin, 0.0), np.where(sign * margin < 1.0, -sign, 0.0)


_LOSSES = {"logistic": _logistic, "squared": _squared, "hinge": _hinge}


def linear_loss(
    loss: str,
    params: Float32,
    ids: Int32,
    columns: Int32,
    dense: Float32,
    indptr: Int32,
    indices: UInt16 | Int32,
    values: Float32,
    labels: Float32,
) -> float:
    """Sum of the losses."""
    grad = np.empty((len(ids) + 1, 1), np.float32)
    return linear_gradient(loss, params, ids, columns, dense, indptr, indices, values, labels, 1.0, grad)


def linear_margins(params: Float32, indptr: Int32, indices: Int32, values: Float32, out: Float32) -> None:
    """``w.x + intercept``; indices are features."""
    out[:] = _dense(indptr, indices, values, len(params) - 1) @ params[:-1, 0].astype(np.float64) + params[-1, 0]


def split_significant(params: Float32, rows: Int32 | None, update: Float32, split: SignificanceSplit) -> int:
    """``residual += update``; values above ``threshold * |x|``, if that is finite, move to (positions, values)."""
    walked = np.arange(len(params)) if rows is None else rows
    total = split.residual[walked] + update
    with np.errstate(invalid="ignore"):
        sent = (total != 0) & ~(np.abs(total) <= np.float32(split.threshold) * np.abs(params[walked]))
    sent &= split.threshold < np.inf
    split.residual[walked] = np.where(sent, np.float32(0), total)
    at, column = np.nonzero(sent)
    split.positions = (np.asarray(walked, np.int64)[at] * params.shape[1] + column).astype(np.uint32)
    split.values, split.count = total[sent], len(at)
    return split.count


def flush_residual(residual: Float32, positions: UInt32, values: Float32) -> int:
    """Move every non-zero to (positions, values)."""
    at = np.flatnonzero(residual)
    positions[: len(at)], values[: len(at)] = at, residual.ravel()[at]
    residual[:] = 0
    return len(at)


def _slope(
    params: Float32, rows: Int32, grad: Float32, l2: float, l2_rows: int, out: Float32
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The rows to update and their gradient, including the penalty."""
    walked = np.asarray(rows, np.int64) if len(out) == len(rows) else np.arange(len(params))
    slope = np.zeros(params.shape)
    slope[rows] = grad
    slope[:l2_rows] += l2 * params[:l2_rows]
    return walked, slope[walked]


def _write(
    params: Float32, walked: NDArray[np.int64], update: Float64, out: Float32, split: SignificanceSplit | None
) -> None:
    out[:] = update
    if split is not None:
        split_significant(params, walked.astype(np.int32), out, split)
        if split.moves:
            params[walked] += out


def sgd_update(
    params: Float32,
    rows: Int32,
    grad: Float32,
    rate: float,
    l2: float,
    l2_rows: int,
    out: Float32,
    split: SignificanceSplit | None = None,
) -> None:
    """``out = -rate * g``."""
    walked, slope = _slope(params, rows, grad, l2, l2_rows, out)
    _write(params, walked, -rate * slope, out, split)


def momentum_update(
    params: Float32,
    rows: Int32,
    grad: Float32,
    velocity: Float32,
    rate: float,
    momentum: float,
    nesterov: bool,
    l2: float,
    l2_rows: int,
    out: Float32,
    split: SignificanceSplit | None = None,
) -> None:
    """``v = momentum*v + g``; ``out = -rate * v``, or ``-rate * (g + momentum*v)``."""
    walked, slope = _slope(params, rows, grad, l2, l2_rows, out)
    v = momentum * velocity[walked] + slope
    velocity[walked] = v
    _write(params, walked, -rate * (slope + momentum * v if nesterov else v), out, split)


def adam_update(
    params: Float32,
    rows: Int32,
    grad: Float32,
    first: Float32,
    second: Float32,
    rate: float,
    b1: float,
    b2: float,
    eps: float,
    step: int,
    l2: float,
    l2_rows: int,
    out: Float32,
    split: SignificanceSplit | None = None,
) -> None:
    """Kingma and Ba's Adam; eps is added to the root of the corrected second moment."""
    walked, slope = _slope(params, rows, grad, l2, l2_rows, out)
    m = b1 * first[walked] + (1 - b1) * slope
    v = b2 * second[walked] + (1 - b2) * slope**2
    first[walked], second[walked] = m, v
    _write(params, walked, -rate * (m / (1 - b1**step)) / (np.sqrt(v / (1 - b2**step)) + eps), out, split)


def adagrad_update(
    params: Float32,
    rows: Int32,
    grad: Float32,
    squares: Float32,
    rate: float,
    eps: float,
    l2: float,
    l2_rows: int,
    out: Float32,
    split: SignificanceSplit | None = None,
) -> None:
    """``s = s + g^2``; ``out = -rate * g / (sqrt(s) + eps)``."""
    walked, slope = _slope(params, rows, grad, l2, l2_rows, out)
    s = squares[walked] + slope**2
    squares[walked] = s
    _write(params, walked, -rate * slope / (np.sqrt(s) + eps), out, split)


def _ftrl_weight(z: Float64, n: Float64, rate: float, beta: float, l1: float, ridge: float) -> Float64:
    return -np.sign(z) * np.maximum(np.abs(z) - l1, 0) / ((beta + np.sqrt(n)) / rate + ridge)


def ftrl_update(
    params: Float32,
    rows: Int32,
    grad: Float32,
    z: Float32,
    n: Float32,
    scale: float,
    rate: float,
    beta: float,
    l1: float,
    ridge: float,
    l2: float,
    l2_rows: int,
    out: Float32,
    split: SignificanceSplit | None = None,
) -> None:
    """McMahan et al. 2013, Algorithm 1; writes the change of w."""
    walked, slope = _slope(params, rows, grad, l2, l2_rows, out)
    old_z, old_n = z[walked].astype(np.float64), n[walked].astype(np.float64)
    before = _ftrl_weight(old_z, old_n, rate, beta, l1, ridge)
    new_n = old_n + slope**2
    new_z = old_z + slope - (np.sqrt(new_n) - np.sqrt(old_n)) / rate * before
    z[walked], n[walked] = new_z, new_n
    _write(params, walked, scale * (_ftrl_weight(new_z, new_n, rate, beta, l1, ridge) - before), out, split)


def cut_ratings(
    users: Int32, items: Int32, ratings: Float32, taken: NDArray[np.int64], n_users: int, n_items: int
) -> tuple[Int32, Int32, Int32, Float32]:
    """The taken ratings, sorted by (user, item), and the rows that they touch."""
    taken = taken[np.lexsort((items[taken], users[taken]))]
    user_rows, user = np.unique(users[taken], return_inverse=True)
    item_rows, item = np.unique(items[taken], return_inverse=True)
    rows = np.concatenate([user_rows, n_users + item_rows]).astype(np.int32)
    return rows, user.astype(np.int32), (len(user_rows) + item).astype(np.int32), ratings[taken]


def apply_rows(params: Float32, rows: Int32 | None, update: Float32) -> None:
    """``params[rows] += update``."""
    params[slice(None) if rows is None else rows] += update


def snapshot_rows(params: Float32, rows: Int32 | None, base: Float32, marks: UInt32, round_id: int) -> None:
    """``base[rows] = params[rows]`` for rows that are not marked in this round yet."""
    walked = np.arange(len(params)) if rows is None else rows
    fresh = walked[marks[walked] != round_id]
    base[fresh] = params[fresh]
    marks[fresh] = round_id


def extract_delta(params: Float32, rows: Int32 | None, base: Float32, scale: float, out: Float32) -> None:
    """``out = (params - base) * scale``; ``params = base``."""
    walked = slice(None) if rows is None else rows
    out[:] = (params[walked] - base[walked]) * np.float32(scale)
    params[walked] = base[walked]
