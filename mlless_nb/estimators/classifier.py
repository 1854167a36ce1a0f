"""A classifier of scikit-learn: logistic regression, softmax regression or a linear SVM, trained on functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from ..data.checks import checked_features
from ..data.csr import Csr
from ..errors import DataError, JobError
from ..models import LinearSVM, LogisticRegression, Model, SoftmaxRegression
from ..validation import check_choice
from .training import MLLessEstimator

LOSSES = ("log_loss", "hinge")


class MLLessClassifier(ClassifierMixin, MLLessEstimator):  # type: ignore[misc]
    """Linear classification of dense or sparse rows.

    With two classes a `LogisticRegression` (or `LinearSVM`), with more a `SoftmaxRegression`. Columns are scaled in
    training; coefficients are in their own units.

    Parameters
    ----------
    loss : {"log_loss", "hinge"}
        "hinge" is for two classes.
    l2 : float, optional
        At least 0; scikit-learn's ``C`` for n rows is ``1 / (n * l2)``. None: as ``C = 1``.
    epochs, workers, budget, random_state, job
        See `MLLessEstimator`.

    Attributes
    ----------
    classes_ : (n_classes,)
    coef_ : float32 (1 or n_classes, n_features)
    intercept_ : float32 (1 or n_classes,)
    model_, cost_usd_, n_features_in_
        See `MLLessEstimator`.
    """

    def __init__(
        self,
        loss: str = "log_loss",
        l2: float | None = None,
        epochs: float = 50,
        workers: int | None = None,
        budget: float | None = None,
        random_state: int | None = None,
        job: Mapping[str, Any] | None = None,
    ) -> None:
        self.loss, self.l2, self.epochs, self.workers = loss, l2, epochs, workers
        self.budget, self.random_state, self.job = budget, random_state, job

    def fit(self, X: Any, y: Any) -> Self:
        """Train on rows and their classes.

        Parameters
        ----------
        X : array_like or scipy sparse (n, n_features)
        y : array_like (n,)
            Labels of any kind, two or more different ones.
        """
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float32)
        check_classification_targets(y)
        check_choice("loss", self.loss, LOSSES)
        self.classes_, numbers = np.unique(y, return_inverse=True)
        n_classes = len(self.classes_)
        if n_classes < 2:
            raise DataError("y", self.classes_.tolist(), "of two or more classes; there is one class")
        if n_classes > 2 and self.loss == "hinge":
            raise JobError("loss", "hinge", f"'log_loss' for more than two classes; y has {n_classes} classes")
        model: Model = LogisticRegression(l2=self.l2) if self.loss == "log_loss" else LinearSVM(l2=self.l2)
        if n_classes > 2:
            model = SoftmaxRegression(n_classes, l2=self.l2)
        fitted = self._train(model, Csr(checked_features("X", X), numbers.astype(np.float32)))
        weights = fitted.params["weights"]
        self.coef_, self.intercept_ = np.atleast_2d(weights), fitted.params["intercept"]
        return self

    def decision_function(self, X: Any) -> NDArray[Any]:
        """Scores of rows: (n,) for two classes, (n, n_classes) for more."""
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float32, reset=False)
        scores: NDArray[Any] = X @ self.coef_.T.astype(np.float64) + self.intercept_
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """The class of each row, (n,)."""
        scores = self.decision_function(X)
        places = (scores > 0).astype(np.int64) if scores.ndim == 1 else scores.argmax(1)
        found: NDArray[Any] = self.classes_[places]
        return found

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Probabilities of the classes, (n, n_classes); of the log loss only."""
        if self.loss != "log_loss":
            raise AttributeError("predict_proba is of loss='log_loss'")
        scores = self.decision_function(X)
        if scores.ndim == 1:
            scores = np.column_stack([np.zeros(len(scores)), scores])
        powers = np.exp(scores - scores.max(1, keepdims=True))
        chances: NDArray[Any] = powers / powers.sum(1, keepdims=True)
        return chances

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_class = self.loss != "hinge"
        return tags
