"""Linear regression over sparse features, and its fitted form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..validation import check_flag, check_number, specification
from . import exports
from .base import check_classes, register_model
from .linear import FittedLinearModel, LinearModel
from .metrics import errors

Float32 = NDArray[np.float32]


class LinearRegressionModel(FittedLinearModel):
    """A fitted linear regression.

    Attributes
    ----------
    params : dict
        weights (n_features,), intercept (1,); float32.
    """

    kind: ClassVar[str] = "linear regression"

    def predict(self, X: Any) -> Float32:
        """The predicted label of each row of X, scipy sparse or array (n, n_features); float32 (n,).

        ValueError when X has another number of columns.
        """
        return self._margins(X)

    def to_sklearn(self) -> Any:
        """A fitted ``LinearRegression`` of scikit-learn, for rows of features; see `FittedModel`."""
        params = self.params
        return exports.sklearn_linear("LinearRegression", params["weights"], params["intercept"], None)

    def evaluate(self, data: Any) -> dict[str, float]:
        """RMSE, MAE and R2 of a dataset's rows, in the units of the labels; see `FittedModel`."""
        return errors(*self.predicted(data, self._margins))


@register_model
@specification
@dataclass(frozen=True)
class LinearRegression(LinearModel):
    """Linear (ridge) regression: minimises ``mean (w.x + intercept - y)^2 / 2 + l2/2 * |w|^2``.

    The intercept is not penalised. The metric is the mean squared error, in the labels' own units, without the half
    and the penalty. The table has one row for each feature, then the intercept's; it starts at 0, and the intercept at
    the mean label of the training rows.

    Parameters
    ----------
    l2 : float, optional
        At least 0. scikit-learn's ``Ridge(alpha)`` for n rows is ``alpha = n * l2``. None: chosen when a run starts,
        as ``alpha = 1``.
    scale : bool
        Train on columns scaled as by `LogisticRegression`; the penalty is then on the scaled coefficients.
    """

    l2: float | None = None
    scale: bool = True
    kind: ClassVar[str] = "linear regression"
    metric: ClassVar[str] = "mean squared error"
    loss: ClassVar[str] = "squared"
    has_squared_loss: ClassVar[bool] = True
    fitted_type: ClassVar[type[FittedLinearModel]] = LinearRegressionModel

    def __post_init__(self) -> None:
        check_number("LinearRegression.l2", self.l2, least=0.0, or_none=True)
        check_flag("LinearRegression.scale", self.scale)

    def check_data(self, dataset: Any, field: str = "data") -> None:
        """See `Model`; labels must be numbers."""
        super().check_data(dataset, field)
        check_classes(f"{field}.y", dataset, 0, "numbers for LinearRegression")

    def start_of(self, dataset: Any, seed: int) -> Float32 | None:
        """Zeros, and the mean label as intercept: the way there is long for labels far from 0."""
        table = np.zeros(self.table_shape(dataset.shape), np.float32)
        table[-1] = np.mean(dataset.y, dtype=np.float64)
        return table

    def baseline_loss(self, train: Any, held_out: Any) -> float | None:
        """Mean squared error of predicting the training mean."""
        mean = float(np.mean(train.y, dtype=np.float64))
        return float(np.mean(np.square(held_out.y.astype(np.float64) - mean)))

    def __str__(self) -> str:
        return "linear regression"
