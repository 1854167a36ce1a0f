"""Logistic regression over sparse features, and its fitted form."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..kernels import logistic_gradient, logistic_loss, logistic_margins
from ..validation import check_flag, check_number, specification
from .base import FittedModel, Model, register_model
from .storage import write_arrays

Float32 = NDArray[np.float32]


class LogisticModel:
    """A fitted logistic regression.

    Attributes
    ----------
    params : dict
        weights (n_features,), intercept (1,); float32.
    """

    kind: ClassVar[str] = "logistic"

    def __init__(self, params: dict[str, NDArray[Any]]) -> None:
        weights, intercept = params["weights"], params["intercept"]
        if weights.ndim != 1 or intercept.shape != (1,):
            raise ValueError(
                f"weights and intercept have shapes {weights.shape}, {intercept.shape}: must be (n,), (1,)"
            )
        self.params: dict[str, NDArray[Any]] = {
            "weights": np.asarray(weights, np.float32),
            "intercept": np.asarray(intercept, np.float32),
        }

    def predict_proba(self, X: Any) -> Float32:
        """Probabilities of class 0 and class 1.

        Parameters
        ----------
        X : scipy sparse matrix or array (n, n_features)

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

    def predict(self, X: Any) -> NDArray[np.int64]:
        """The likelier class, 0 or 1, of each row; int64 (n,)."""
        return (self._margins(X) > 0).astype(np.int64)

    def save(self, path: str | Path) -> None:
        """Write the model to ``path`` as .npz; :func:`mlless_nb.models.load_model` reads it."""
        write_arrays(path, self.kind, self.params)

    def _margins(self, X: Any) -> Float32:
        n_features = len(self.params["weights"])
        from scipy.sparse import csr_matrix  # a quarter of a second that no function needs

        rows = csr_matrix(X, dtype=np.float32)
        if rows.shape[1] != n_features:
            raise ValueError(f"X has {rows.shape[1]} columns: must have {n_features}")
        if rows.nnz > 2**31 - 1:
            raise ValueError(f"X has {rows.nnz} non-zeros: must have less than 2**31, predict in pieces")
        out = np.empty(rows.shape[0], np.float32)
        params = np.concatenate([self.params["weights"], self.params["intercept"]])[:, None]
        logistic_margins(
            params, rows.indptr.astype(np.int32), rows.indices.astype(np.int32), np.ascontiguousarray(rows.data), out
        )
        return out

    @staticmethod
    def _sigmoid(margins: Float32) -> NDArray[np.float64]:
        small = np.exp(-np.abs(margins.astype(np.float64)))
        return np.where(margins >= 0, 1.0, small) / (1.0 + small)

    def __repr__(self) -> str:
        return f"<LogisticModel {len(self.params['weights'])} features>"


@register_model
@specification
@dataclass(frozen=True)
class LogisticRegression(Model):
    """Logistic regression: ``P(y = 1) = sigmoid(w.x + intercept)``, by log loss.

    Minimises the mean log loss plus ``l2/2 * |w|^2``; the intercept is not penalised. The table has a row a feature,
    then the intercept, and starts at 0.

    Parameters
    ----------
    l2 : float, optional
        At least 0. scikit-learn's ``C`` for n rows is ``1 / (n * l2)``. None: chosen when a run starts, as ``C = 1``.
    scale : bool
        Train on columns that are divided by the root mean square of their values that are not 0 (and centred where
        nearly every row has one), so that rates and penalty suit columns on any scale. Rows stay sparse, columns of
        ones stay ones, and the fitted coefficients are for the data as they are; the penalty is on the scaled ones.

    References
    ----------
    MLLess (journal), section 6 (Criteo).
    """

    l2: float | None = None
    scale: bool = True
    kind: ClassVar[str] = "logistic"
    metric: ClassVar[str] = "log loss"
    data_kind: ClassVar[str] = "csr"
    fitted_type: ClassVar[type[FittedModel]] = LogisticModel

    def __post_init__(self) -> None:
        check_number("LogisticRegression.l2", self.l2, least=0.0, or_none=True)
        check_flag("LogisticRegression.scale", self.scale)

    def table_shape(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """(n_features + 1, 1)."""
        return shape[0] + 1, 1

    def init(self, shape: tuple[int, ...], mean: float, seed: int) -> Float32:
        """Zeros."""
        return np.zeros(self.table_shape(shape), np.float32)

    def gradient(self, params: Float32, minibatch: Any, mean: float, divisor: float, grad: Float32) -> float:
        """Overwrite ``grad`` (m, 1); returns the sum of log losses before any update. The penalty is not in it."""
        return logistic_gradient(params, **vars(minibatch), divisor=divisor, grad=grad)

    def evaluate(self, params: Float32, minibatch: Any, mean: float) -> float:
        """Sum of log losses."""
        return logistic_loss(params, **vars(minibatch))

    def dense_l2_rows(self, shape: tuple[int, ...]) -> int:
        """Every row but the intercept's."""
        return shape[0]

    def fitted(self, params: Float32, shape: tuple[int, ...], mean: float) -> LogisticModel:
        """The trained model; its arrays are copies."""
        return LogisticModel({"weights": params[:-1, 0].copy(), "intercept": params[-1, :1].copy()})

    def table_of(self, model: LogisticModel) -> Float32:
        """The table of a fitted model."""
        return np.concatenate([model.params["weights"], model.params["intercept"]])[:, None]

    def __str__(self) -> str:
        return "logistic regression"
