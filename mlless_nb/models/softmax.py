"""Softmax (multinomial logistic) regression over sparse features, and its fitted form."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError, JobError
from ..kernels import rows_product, transposed_product
from ..plurals import count
from ..validation import check_flag, check_number, is_integer, specification
from . import exports
from .base import Model, check_classes, check_width, register_model
from .fitted import FittedModel
from .metrics import LEAST, calibration_error, class_numbers
from .tables import entries_of, features_of, padded_width, rows_with_last

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Int32 = NDArray[np.int32]


class SoftmaxModel(FittedModel):
    """A fitted softmax regression.

    Attributes
    ----------
    params : dict
        weights (n_classes, n_features), intercept (n_classes,); float32.
    """

    kind: ClassVar[str] = "softmax"

    def __init__(self, params: dict[str, NDArray[Any]]) -> None:
        weights, intercept = params["weights"], params["intercept"]
        if weights.ndim != 2 or intercept.shape != weights.shape[:1]:
            raise ValueError(
                f"weights and intercept have shapes {weights.shape}, {intercept.shape}: must be (c, n), (c,)"
            )
        self.params: dict[str, NDArray[Any]] = {
            "weights": np.asarray(weights, np.float32),
            "intercept": np.asarray(intercept, np.float32),
        }

    @property
    def shape(self) -> tuple[int, ...]:
        """(n_features,)."""
        return self.params["weights"].shape[1:]

    def decision_function(self, X: Any) -> Float64:
        """Scores ``w_c.x + intercept_c`` of the rows of X, sparse or array (n, n_features); float64 (n, n_classes).

        ValueError when X has another number of columns.
        """
        rows, weights = features_of(self.features(X), self.params["weights"].shape[1]), self.params["weights"]
        scores: Float64 = np.asarray(rows @ weights.T.astype(np.float64)) + self.params["intercept"]
        return scores

    def predict_proba(self, X: Any) -> Float32:
        """Probabilities of the classes of each row; float32 (n, n_classes)."""
        scores = self.decision_function(X)
        scores -= scores.max(1, keepdims=True)
        powers = np.exp(scores)
        probabilities: Float32 = (powers / powers.sum(1, keepdims=True)).astype(np.float32)
        return probabilities

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of each row, the lowest in a tie, (n,): int64, or the label of the training rows."""
        classes: NDArray[Any] = self.labels(self.decision_function(X).argmax(1))
        return classes

    def to_sklearn(self) -> Any:
        """A fitted ``LogisticRegression`` of scikit-learn, for rows of features; see `FittedModel`."""
        params = self.params
        classes = self.class_labels(len(params["intercept"]))
        return exports.sklearn_linear("LogisticRegression", params["weights"], params["intercept"], classes)

    def to_torch(self) -> Any:
        """A ``torch.nn.Linear`` that maps rows of features to the scores of the classes; see `FittedModel`."""
        return exports.torch_linear(self.params["weights"], self.params["intercept"])

    def to_onnx(self, path: str | Path) -> None:
        """Write the model as ONNX: rows of features become the probabilities of the classes; see `FittedModel`."""
        exports.onnx_linear(path, self.params["weights"], self.params["intercept"], "Softmax")

    def evaluate(self, data: Any) -> dict[str, float]:
        """Log loss (nats), accuracy and calibration error (of the most probable class) of a dataset's rows."""
        y, chances = self.predicted(data, self.predict_proba)
        y = class_numbers(y, chances.shape[1])
        of_own = np.maximum(chances[np.arange(len(y)), y].astype(np.float64), LEAST)
        is_right = chances.argmax(1) == y
        return {
            "log loss": float(-np.log(of_own).mean()),
            "accuracy": float(is_right.mean()),
            "calibration error": calibration_error(is_right, chances.max(1)),
        }

    def __repr__(self) -> str:
        n_classes, n_features = self.params["weights"].shape
        return f"<SoftmaxModel {n_classes} classes, {count(n_features, 'feature')}>"


@register_model
@specification
@dataclass(frozen=True)
class SoftmaxRegression(Model):
    """Softmax regression: ``P(y = c)`` is proportional to ``exp(w_c.x + intercept_c)``; labels 0 to n_classes - 1.

    Minimises the mean log loss plus ``l2/2 * |w|^2``; the intercepts are not penalised. The table has one row for each
    feature and one column for each class, then the intercepts' row, and starts at 0.

    Parameters
    ----------
    n_classes : int
        2 to 65,535.
    l2 : float, optional
        At least 0. scikit-learn's ``C`` for n rows is ``1 / (n * l2)``. None: chosen when a run starts, as ``C = 1``.
    scale : bool
        Train on columns scaled as by `LogisticRegression`; the penalty is then on the scaled coefficients.
    """

    n_classes: int
    l2: float | None = None
    scale: bool = True
    kind: ClassVar[str] = "softmax"
    metric: ClassVar[str] = "log loss"
    data_kind: ClassVar[str] = "csr"
    fitted_type: ClassVar[Any] = SoftmaxModel
    is_convex: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not is_integer(self.n_classes) or self.n_classes < 2:
            raise JobError("SoftmaxRegression.n_classes", self.n_classes, "an integer >= 2")
        check_width("SoftmaxRegression.n_classes", self.n_classes, self.n_classes)
        check_number("SoftmaxRegression.l2", self.l2, least=0.0, or_none=True)
        check_flag("SoftmaxRegression.scale", self.scale)

    def table_shape(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """(n_features + 1, n_classes)."""
        return shape[0] + 1, self.n_classes

    def rows(self, minibatch: Any, shape: tuple[int, ...]) -> Int32:
        """The rows of the minibatch's features, then the intercepts'."""
        return rows_with_last(minibatch.ids, shape[0])

    def n_touched(self, n_ids: int) -> int:
        """One more than the ids, for the intercepts."""
        return n_ids + 1

    def init(self, shape: tuple[int, ...], mean: float, seed: int) -> Float32:
        """Zeros."""
        return np.zeros(self.table_shape(shape), np.float32)

    def _probabilities(self, params: Float32, minibatch: Any) -> tuple[Float64, float]:
        """Probabilities (n, padded width), 0 in the columns of no class; and the sum of losses."""
        n_classes, width = self.n_classes, padded_width(self.n_classes)
        weights = np.zeros((len(minibatch.ids), width))
        weights[:, :n_classes] = params[minibatch.ids]
        padded = np.zeros((minibatch.n, width))
        scores = padded[:, :n_classes]
        scores += params[-1]
        rows_product(**entries_of(minibatch), weights=weights, out=padded)
        scores -= scores.max(1, keepdims=True)
        at_label = scores[np.arange(minibatch.n), minibatch.labels.astype(np.intp)]
        np.exp(scores, out=scores)
        sums = scores.sum(1, keepdims=True)
        scores /= sums
        return padded, float((np.log(sums[:, 0]) - at_label).sum())

    def gradient(self, params: Float32, minibatch: Any, mean: float, divisor: float, grad: Float32) -> float:
        """Overwrite ``grad`` (m, n_classes), without the penalty; returns the sum of losses before any update."""
        slopes, loss = self._probabilities(params, minibatch)
        slopes[np.arange(minibatch.n), minibatch.labels.astype(np.intp)] -= 1.0
        slopes /= divisor
        total = np.zeros((len(minibatch.ids), slopes.shape[1]))
        transposed_product(**entries_of(minibatch), slopes=slopes, out=total)
        grad[:-1] = total[:, : self.n_classes]
        grad[-1] = slopes[:, : self.n_classes].sum(0)
        return loss

    def evaluate(self, params: Float32, minibatch: Any, mean: float) -> float:
        """Sum of losses."""
        return self._probabilities(params, minibatch)[1]

    def fitted(self, params: Float32, shape: tuple[int, ...], mean: float) -> SoftmaxModel:
        """The trained model; its arrays are copies."""
        return SoftmaxModel({"weights": params[:-1].T.copy(), "intercept": params[-1].copy()})

    def table_of(self, model: SoftmaxModel) -> Float32:
        """The table of a fitted model."""
        return np.concatenate([model.params["weights"].T, model.params["intercept"][None]]).astype(np.float32)

    def check_data(self, dataset: Any, field: str = "data") -> None:
        """See `Model`; labels must be 0 to n_classes - 1."""
        super().check_data(dataset, field)
        check_classes(f"{field}.y", dataset, self.n_classes, f"of at most n_classes={self.n_classes} kinds")
        labels = dataset.y
        is_wrong = ~((labels >= 0) & (labels < self.n_classes))  # NaN is neither
        if not is_wrong.any():
            is_wrong = labels != np.floor(labels)
        if bool(is_wrong.any()):
            at = int(np.flatnonzero(is_wrong)[0])
            valid = f"an integer from 0 to {self.n_classes - 1} for SoftmaxRegression(n_classes={self.n_classes})"
            raise DataError(f"{field}.y[{at}]", float(labels[at]), valid)

    def baseline_loss(self, train: Any, held_out: Any) -> float | None:
        """Log loss of predicting the training shares of the classes, in nats; None if a held-out class has none."""
        shares = np.bincount(train.y.astype(np.intp), minlength=self.n_classes) / train.n
        counts = np.bincount(held_out.y.astype(np.intp), minlength=self.n_classes)
        present = counts > 0
        if not shares[present].all() or (shares > 0).sum() < 2:
            return None
        return float(-(counts[present] * np.log(shares[present])).sum() / held_out.n)

    def dense_l2_rows(self, shape: tuple[int, ...]) -> int:
        """All rows except the intercepts'."""
        return shape[0]

    def __str__(self) -> str:
        return f"softmax regression, {self.n_classes} classes"
