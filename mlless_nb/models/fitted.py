"""What all trained models share: arrays, the user's own names, a file, and measures of their predictions."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError, ModelError
from ..frames.names import Names, TableNames
from ..frames.sources import described, is_frame
from .storage import write_arrays


class FittedModel:
    """A trained model, as the user gets it.

    Attributes
    ----------
    kind : str
        That of its `Model`.
    params : dict
        Its arrays by name.
    names : RatingNames, TableNames or None
        The user's ids or columns, if the training data came with some: predictions take and give these.
    """

    kind: ClassVar[str]
    params: dict[str, NDArray[Any]]
    names: Names | None = None

    def __init__(self, params: dict[str, NDArray[Any]]) -> None:
        """Raise ValueError or KeyError if the arrays do not match."""
        self.params = params

    @property
    def shape(self) -> tuple[int, ...] | None:
        """That of its data: (n_users, n_items) or (n_features,); None if it is not known."""
        return None

    def with_names(self, names: Names | None) -> Self:
        """The same model with these names; ValueError if they are of other data."""
        if names is not None and self.shape is not None and names.shape != self.shape:
            raise ValueError(f"names are of shape {names.shape}: must be {self.shape}")
        named = copy.copy(self)
        named.names = names
        return named

    def save(self, path: str | Path) -> None:
        """Write the model, with its names, to ``path`` as .npz; `mlless_nb.models.load_model` reads it."""
        names = {} if self.names is None else self.names.to_arrays()
        write_arrays(path, self.kind, {**self.params, **names})

    @property
    def feature_names(self) -> list[str] | None:
        """The names of the features, in the order of the coefficients; None where columns have no names."""
        return self.names.coding.features if isinstance(self.names, TableNames) else None

    def features(self, X: Any) -> Any:
        """``X`` as rows of features: a table is coded as the training rows were, all else stays as it is."""
        return self.names.coding.encoded(X) if isinstance(self.names, TableNames) and is_frame(X) else X

    def labels(self, numbers: NDArray[Any]) -> Any:
        """Predicted labels (n,), from the numbers that stand for them."""
        classes = self.names.classes if isinstance(self.names, TableNames) else None
        return numbers if classes is None else classes[numbers.astype(np.int64)]

    def coefficients(self) -> dict[str, float]:
        """The coefficient of each feature by name, the largest first; for models with one coefficient a feature.

        A coefficient is for one unit of its column, so the order depends on the units. Those of a column's categories
        are to be compared with each other only. ``model.intercept`` is what is added to them. A positive one raises the
        estimate of a linear regression, and speaks for the second of ``class_labels(2)`` in models of two classes:
        labels that are texts are numbered in ascending order. ModelError, a TypeError, for other models, as from all
        methods that a kind of model does not have.
        """
        weights = self.params.get("weights")
        if weights is None or weights.ndim != 1:
            raise ModelError(f"{type(self).__name__} has no single coefficient for each feature: see model.params")
        names = self.feature_names or [f"feature {place}" for place in range(len(weights))]
        order = np.argsort(-np.abs(weights), kind="stable")
        return {names[place]: float(weights[place]) for place in order.tolist()}

    def evaluate(self, data: Any) -> dict[str, float]:
        """Measures of the predictions for the rows of a dataset, by name.

        Parameters
        ----------
        data : dataset
            With labels; made with ``like=`` the model or its training data, if these had names.
        """
        raise ModelError(f"{type(self).__name__} has no measures: see its params")

    def to_sklearn(self) -> Any:
        """A fitted estimator of scikit-learn that predicts the same, on rows of features; of linear models and k-means.

        Such rows of a table in memory are ``datasets.table(frame, like=model).X``. ServiceError if scikit-learn is
        missing (``pip install 'mlless_nb[sklearn]'``).
        """
        raise ModelError(f"{type(self).__name__} has no counterpart in scikit-learn")

    def to_torch(self) -> Any:
        """A ``torch.nn.Linear`` that maps rows of features to the model's scores; of linear models.

        ServiceError if PyTorch is missing (``pip install 'mlless_nb[torch]'``).
        """
        raise ModelError(f"{type(self).__name__} has no counterpart in PyTorch: see its params")

    def to_onnx(self, path: str | Path) -> None:
        """Write the model as ONNX: input "X", float32 (n, n_features), output "Y", float32; of linear models.

        "Y" is the probability of class 1, (n, 1); those of all classes, (n, n_classes); or the score, (n, 1).
        ServiceError if onnx is missing (``pip install 'mlless_nb[onnx]'``).
        """
        raise ModelError(f"{type(self).__name__} cannot be written as ONNX: see its params")

    def class_labels(self, n: int) -> NDArray[Any]:
        """The labels of the classes numbered 0 to n - 1, (n,)."""
        classes: NDArray[Any] = np.asarray(self.labels(np.arange(n)))
        return classes.astype(str) if classes.dtype == object else classes

    def predicted(
        self, data: Any, score: Callable[[Any], NDArray[Any]], *, needs_labels: bool = True
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """The labels of a dataset's rows, (n,), and the model's ``score`` of their features, (n, ...)."""
        call = "datasets.table(frame, label=..., like=model)" if self.names else "datasets.csr(X, y)"
        if getattr(data, "kind", None) != "csr":
            raise DataError("data", described(data), f"a dataset of feature rows, e.g. {call}")
        if self.shape is not None and data.shape != self.shape:
            raise DataError("data", data, f"rows of {self.shape[0]} features")
        self.check_names(data)
        if needs_labels and not getattr(data, "has_labels", True):
            raise DataError("data.y", None, f"labels, with which the predictions are compared, e.g. {call}")
        blocks = data.blocks() if hasattr(data, "blocks") else [(data.X, data.y)]
        scores = [(np.asarray(y), score(X)) for X, y in blocks if len(y)]
        return np.concatenate([y for y, _ in scores]), np.concatenate([found for _, found in scores])

    def check_names(self, data: Any) -> None:
        """Raise DataError unless the rows of ``data`` are coded as the training rows were."""
        if self.names is not None and getattr(data, "names", None) != self.names:
            call = "datasets.table" if isinstance(self.names, TableNames) else "datasets.ratings"
            raise DataError("data", data, f"made by {call}(..., like=model): its ids or columns are numbered otherwise")
