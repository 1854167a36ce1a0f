"""Logistic regression over sparse features, and its fitted form."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..validation import check_flag, check_number, specification
from . import exports
from .base import check_classes, register_model
from .linear import MORE_CLASSES, FittedLinearModel, LinearModel, check_binary
from .metrics import auc, ones, probabilities

Float32 = NDArray[np.float32]


class LogisticModel(FittedLinearModel):
    """A fitted logistic regression.

    Attributes
    ----------
    params : dict
        weights (n_features,), intercept (1,); float32.
    """

    kind: ClassVar[str] = "logistic"
    link: ClassVar[str] = "Sigmoid"

    def predict_proba(self, X: Any) -> Float32:
        """Probabilities of class 0 and class 1.

        Parameters
        ----------
        X : scipy sparse matrix or array (n, n_features), or table
            A table is one with the columns of the training data, of a model whose data came from one.

        Returns
        -------
        float32 (n, 2)

        Raises
        ------
        ValueError
            When X has another number of columns.
        """
        one = self._sigmoid(self._margins(X))
        return np.column_stack([1.0 - one, one]).astype(np.float32)

    def predict(self, X: Any) -> NDArray[Any]:
        """The more probable class of each row, (n,): 0 or 1, int64, or the label that the training rows had."""
        found: NDArray[Any] = self.labels((self._margins(X) > 0).astype(np.int64))
        return found

    def to_sklearn(self) -> Any:
        """A fitted ``LogisticRegression`` of scikit-learn, for rows of features; see `FittedModel`."""
        params = self.params
        return exports.sklearn_linear(
            "LogisticRegression", params["weights"], params["intercept"], self.class_labels(2)
        )

    def evaluate(self, data: Any) -> dict[str, float]:
        """Log loss (nats), AUC, accuracy, Brier score and calibration error of a dataset's rows; see `FittedModel`."""
        y, margins = self.predicted(data, self._margins)
        is_one = ones(y)
        measures = probabilities(is_one, self._sigmoid(margins))
        return {**measures, "AUC": auc(is_one, margins), "accuracy": float(np.mean((margins > 0) == is_one))}

    @staticmethod
    def _sigmoid(margins: Float32) -> NDArray[np.float64]:
        small = np.exp(-np.abs(margins.astype(np.float64)))
        return np.where(margins >= 0, 1.0, small) / (1.0 + small)


@register_model
@specification
@dataclass(frozen=True)
class LogisticRegression(LinearModel):
    """Logistic regression: ``P(y = 1) = sigmoid(w.x + intercept)``, with log loss; labels are 0 and 1.

    Minimises the mean log loss plus ``l2/2 * |w|^2``; the intercept is not penalised. The table has one row for each
    feature, then the intercept's, and starts at 0.

    Parameters
    ----------
    l2 : float, optional
        At least 0. scikit-learn's ``C`` for n rows is ``1 / (n * l2)``. None: chosen when a run starts, as ``C = 1``.
    scale : bool
        Train on columns divided by the root mean square of their non-zero values (and centred if nearly every row has
        a value), so that learning rate and penalty suit columns on any scale. Rows stay sparse, and columns of ones
        stay ones. The fitted coefficients are for the unscaled data; the penalty is on the scaled coefficients.

    References
    ----------
    MLLess (journal), section 6 (Criteo).
    """

    l2: float | None = None
    scale: bool = True
    kind: ClassVar[str] = "logistic"
    metric: ClassVar[str] = "log loss"
    loss: ClassVar[str] = "logistic"
    fitted_type: ClassVar[type[FittedLinearModel]] = LogisticModel

    def __post_init__(self) -> None:
        check_number("LogisticRegression.l2", self.l2, least=0.0, or_none=True)
        check_flag("LogisticRegression.scale", self.scale)

    def check_data(self, dataset: Any, field: str = "data") -> None:
        """See `Model`; labels must be 0 and 1."""
        super().check_data(dataset, field)
        check_classes(f"{field}.y", dataset, 2, f"of two kinds for {type(self).__name__}; {MORE_CLASSES}")
        check_binary(f"{field}.y", dataset.y, type(self).__name__)

    def baseline_loss(self, train: Any, held_out: Any) -> float | None:
        """Log loss of predicting the training share of ones, in nats; None if all training labels are equal."""
        predicted, share = (float(np.mean(each.y, dtype=np.float64)) for each in (train, held_out))
        return -share * math.log(predicted) - (1 - share) * math.log1p(-predicted) if 0 < predicted < 1 else None

    def __str__(self) -> str:
        return "logistic regression"
