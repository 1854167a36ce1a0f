"""Linear support vector machine over sparse features, and its fitted form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from ..frames.names import TableNames
from ..validation import check_flag, check_number, specification
from . import exports
from .base import check_classes, register_model
from .linear import MORE_CLASSES, FittedLinearModel, LinearModel
from .metrics import auc, ones

Float32 = NDArray[np.float32]


class LinearSVMModel(FittedLinearModel):
    """A fitted linear support vector machine.

    Attributes
    ----------
    params : dict
        weights (n_features,), intercept (1,), classes (2,); float32. ``classes`` are the two labels as the training
        data had them, -1 and 1 or 0 and 1; by default 0 and 1.
    """

    kind: ClassVar[str] = "svm"

    def __init__(self, params: dict[str, NDArray[Any]]) -> None:
        super().__init__(params)
        classes = np.asarray(params.get("classes", (0, 1)), np.float32)
        if classes.shape != (2,):
            raise ValueError(f"classes has shape {classes.shape}: must be (2,)")
        self.params["classes"] = classes

    def decision_function(self, X: Any) -> Float32:
        """``w.x + intercept`` of each row of X, scipy sparse or array (n, n_features); float32 (n,).

        ValueError when X has another number of columns.
        """
        return self._margins(X)

    def class_labels(self, n: int) -> NDArray[Any]:
        """The labels of the classes numbered 0 to n - 1, (n,): -1 and 1 if the training rows had these."""
        is_named = isinstance(self.names, TableNames) and self.names.classes is not None
        return super().class_labels(n) if is_named else self.params["classes"].astype(np.int64)[:n]

    def to_sklearn(self) -> Any:
        """A fitted ``LinearSVC`` of scikit-learn, for rows of features; see `FittedModel`."""
        params = self.params
        return exports.sklearn_linear("LinearSVC", params["weights"], params["intercept"], self.class_labels(2))

    def evaluate(self, data: Any) -> dict[str, float]:
        """Hinge loss, AUC and accuracy of a dataset's rows; see `FittedModel`."""
        y, margins = self.predicted(data, self._margins)
        is_one = ones(y)
        hinge = np.maximum(0.0, 1.0 - np.where(is_one, margins, -margins))
        accuracy = float(np.mean((margins > 0) == is_one))
        return {"hinge loss": float(hinge.mean(dtype=np.float64)), "AUC": auc(is_one, margins), "accuracy": accuracy}

    def predict(self, X: Any) -> NDArray[Any]:
        """The class of each row, (n,): int64, coded as in the training data, or the label that its rows had."""
        negative, positive = self.params["classes"].astype(np.int64)
        classes: NDArray[Any] = self.labels(np.where(self._margins(X) > 0, positive, negative))
        return classes


@register_model
@specification
@dataclass(frozen=True)
class LinearSVM(LinearModel):
    """Linear support vector machine: mean hinge loss ``max(0, 1 - y (w.x + intercept))``; labels -1 and 1, or 0 and 1.

    Minimises the mean hinge loss plus ``l2/2 * |w|^2``; the intercept is not penalised. The table has one row for each
    feature, then the intercept's, and starts at 0.

    Parameters
    ----------
    l2 : float, optional
        At least 0. scikit-learn's ``C`` for n rows is ``1 / (n * l2)``. None: chosen when a run starts, as ``C = 1``.
    scale : bool
        Train on columns scaled as by `LogisticRegression`; the penalty is then on the scaled coefficients.

    References
    ----------
    LambdaML, section 5 (SVM on Higgs and RCV1).
    """

    l2: float | None = None
    scale: bool = True
    kind: ClassVar[str] = "svm"
    metric: ClassVar[str] = "hinge loss"
    loss: ClassVar[str] = "hinge"
    fitted_type: ClassVar[type[FittedLinearModel]] = LinearSVMModel

    def __post_init__(self) -> None:
        check_number("LinearSVM.l2", self.l2, least=0.0, or_none=True)
        check_flag("LinearSVM.scale", self.scale)

    def check_data(self, dataset: Any, field: str = "data") -> None:
        """See `Model`; labels must be -1 and 1, or 0 and 1."""
        super().check_data(dataset, field)
        check_classes(f"{field}.y", dataset, 2, f"of two kinds for LinearSVM; {MORE_CLASSES}")
        labels = dataset.y
        if labels.dtype == bool:
            return
        negative = -1 if bool((labels == -1).any()) else 0
        is_wrong = (labels != negative) & (labels != 1)
        if bool(is_wrong.any()):
            at = int(np.flatnonzero(is_wrong)[0])
            valid = "-1 or 1, as other labels are," if negative else "0 or 1 (or all labels -1 or 1)"
            raise DataError(f"{field}.y[{at}]", float(labels[at]), f"{valid} for LinearSVM")

    def kept_of(self, dataset: Any) -> dict[str, NDArray[Any]]:
        """The two labels, as ``dataset`` has them."""
        negative = -1 if dataset.y.dtype != bool and bool((dataset.y == -1).any()) else 0
        return {"classes": np.array([negative, 1], np.float32)}

    def baseline_loss(self, train: Any, held_out: Any) -> float | None:
        """Hinge loss of the best constant score, 1 for the more frequent class: twice the share of the other class."""
        share = float(np.mean(held_out.y > 0))
        return 2.0 * (1.0 - share if float(np.mean(train.y > 0)) >= 0.5 else share)

    def __str__(self) -> str:
        return "linear SVM"
