"""Probabilistic matrix factorisation with biases."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..kernels import pmf_gradient, pmf_sgd_pass, pmf_squared_error
from ..validation import check_flag, specification
from .base import register_model
from .factors import Factorization
from .leave_one_out import leave_one_out

Float32 = NDArray[np.float32]


@register_model
@specification
@dataclass(frozen=True)
class PMF(Factorization):
    """Matrix factorisation of ratings: ``mean + b_u + b_i + p_u.q_i``, with squared error.

    Minimises the sum over the ratings of ``e^2/2 + l2/2 * (|p_u|^2 + |q_i|^2 + b_u^2 + b_i^2)``. The table has one row
    for each user, then one for each item: the factors, then the bias.

    Parameters
    ----------
    rank : int
        Number of factors of a user and of an item.
    l2 : float, optional
        Penalty that each rating puts on its user and its item. None: chosen when a run starts, from the numbers of
        ratings of a user and of an item; fewer ratings need a larger penalty.
    biases : bool
        Whether users and items have a bias.
    init_scale : float
        Standard deviation of the factors at the start; biases start at 0.
    standardize : bool
        Train on ``(rating - mean) / deviation``, so that learning rate, penalty and start suit ratings on any scale.
        ``e`` above is then in standardised units; losses, targets and the fitted model are in the original units.

    References
    ----------
    Salakhutdinov and Mnih 2007; MLLess (journal), section 6.
    """

    rank: int = 20
    l2: float | None = None
    biases: bool = True
    init_scale: float = 0.05
    standardize: bool = True
    kind: ClassVar[str] = "pmf"
    metric: ClassVar[str] = "RMSE"

    def __post_init__(self) -> None:
        self.check_fields()
        check_flag("PMF.standardize", self.standardize)

    def baseline_loss(self, train: Any, held_out: Any) -> float:
        """RMSE of predicting the training mean."""
        return float(np.sqrt(np.mean((held_out.ratings - train.mean) ** 2, dtype=np.float64)))

    def gradient(self, params: Float32, minibatch: Any, mean: float, divisor: float, grad: Float32) -> float:
        """Overwrite ``grad`` (m, width); returns the sum of squared errors before any update."""
        return pmf_gradient(
            params,
            minibatch.ids,
            minibatch.user,
            minibatch.item,
            minibatch.rating,
            mean,
            self.penalty,
            divisor,
            self.biases,
            grad,
        )

    def evaluate(self, params: Float32, minibatch: Any, mean: float) -> float:
        """Sum of squared errors."""
        return pmf_squared_error(
            params, minibatch.ids, minibatch.user, minibatch.item, minibatch.rating, mean, self.biases
        )

    def evaluate_common(self, params: Float32, minibatch: Any, mean: float) -> tuple[float, float]:
        """See `Model` and `leave_one_out`."""
        return leave_one_out(params, minibatch, mean, self.penalty, has_biases=self.biases)

    def sgd_pass(self, params: Float32, minibatch: Any, mean: float, rate: float) -> float:
        """One step of SGD for each rating, in place; returns the sum of squared errors, each before its step."""
        ratings = minibatch.user, minibatch.item, minibatch.rating
        return pmf_sgd_pass(params, minibatch.ids, *ratings, mean, self.penalty, rate, self.biases)

    def metric_value(self, loss_sum: float, count: float) -> float:
        """RMSE."""
        return math.sqrt(loss_sum / count) if loss_sum >= 0 else math.nan

    def __str__(self) -> str:
        return f"PMF rank {self.rank}"
