"""Bounded least squares, used to fit all curves. Pure."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]

#: The search ends when an iteration improves the error by no more than this share.
SETTLED = 1e-6
#: Avoids divisions by zero.
TINY = 1e-12


def search(
    values: Callable[[Float64], Float64],
    jacobian: Callable[[Float64], Float64],
    theta: Float64,
    most: Float64,
    prior: Float64,
    y: Float64,
    weights: Float64,
    n_steps: int,
) -> tuple[Float64, float]:
    """Levenberg-Marquardt with 0 <= theta <= ``most``; a theta that reaches a bound is held there.

    ``prior`` are the weights of a quadratic penalty, ``prior @ theta^2``, that is added to the squared error; 0 for no
    penalty. Returns theta and the squared error.
    """
    error = values(theta) - y
    cost, damping = float(weights @ (error * error) + prior @ (theta * theta)), 1e-3
    diagonal = np.arange(len(theta)) * (len(theta) + 1)
    for _ in range(n_steps):
        slopes = jacobian(theta)
        weighted = slopes.T * weights
        gradient, hessian = weighted @ error + prior * theta, weighted @ slopes
        held = (theta <= 0) & (gradient >= 0)
        if held.any():
            gradient[held] = hessian[held] = hessian[:, held] = 0.0
        hessian.flat[diagonal] = np.maximum(hessian.flat[diagonal] + prior * ~held, TINY) * (1 + damping)
        try:
            step = np.linalg.solve(hessian, gradient)
        except np.linalg.LinAlgError:  # the losses do not determine the thetas
            break
        trial = np.minimum(np.maximum(theta - step, 0.0), most)
        trial_error = values(trial) - y
        trial_cost = float(weights @ (trial_error * trial_error) + prior @ (trial * trial))
        if trial_cost < cost:
            has_settled = cost - trial_cost < SETTLED * cost
            theta, error, cost, damping = trial, trial_error, trial_cost, max(damping / 5, 1e-9)
            if has_settled:
                break
        else:
            damping *= 6
            if damping > 1e8:
                break
    return theta, cost
