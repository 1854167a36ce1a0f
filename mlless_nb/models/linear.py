"""The common part of linear models of sparse features, for any loss: the table, the intercept, the fitted form."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from ..kernels import linear_gradient, linear_loss, linear_margins
from ..plurals import count
from . import exports
from .base import Model
from .fitted import FittedModel
from .tables import features_of

Float32 = NDArray[np.float32]
Int32 = NDArray[np.int32]
#: The end of an error about labels: what takes more kinds of them.
MORE_CLASSES = "SoftmaxRegression(n_classes) takes more"


class FittedLinearModel(FittedModel):
    """A fitted linear model: ``w.x + intercept`` of a row, from which a subclass makes predictions.

    Attributes
    ----------
    params : dict
        weights (n_features,), intercept (1,); float32.
    link : str
        The ONNX operator that makes the predictions from the scores; "" if they are the predictions.
    """

    kind: ClassVar[str]
    link: ClassVar[str] = ""

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

    @property
    def shape(self) -> tuple[int, ...]:
        """(n_features,)."""
        return self.params["weights"].shape

    @property
    def intercept(self) -> float:
        """What is added to the features times their `coefficients`."""
        return float(self.params["intercept"][0])

    def _margins(self, X: Any) -> Float32:
        """``w.x + intercept`` of each row of X, scipy sparse, array (n, n_features) or table; float32 (n,)."""
        rows = features_of(self.features(X), len(self.params["weights"]), np.float32)
        if rows.nnz > 2**31 - 1:
            raise DataError("X", f"{rows.nnz:,} non-zeros", "less than 2**31 of them: predict in pieces")
        out = np.empty(rows.shape[0], np.float32)
        params = np.concatenate([self.params["weights"], self.params["intercept"]])[:, None]
        linear_margins(
            params, rows.indptr.astype(np.int32), rows.indices.astype(np.int32), np.ascontiguousarray(rows.data), out
        )
        return out

    def to_torch(self) -> Any:
        """A ``torch.nn.Linear`` that maps rows of features to the score ``w.x + intercept``; see `FittedModel`."""
        return exports.torch_linear(self.params["weights"], self.params["intercept"])

    def to_onnx(self, path: str | Path) -> None:
        """Write the model as ONNX: rows of features become probabilities of class 1, or scores; see `FittedModel`."""
        exports.onnx_linear(path, self.params["weights"], self.params["intercept"], self.link)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {count(len(self.params['weights']), 'feature')}>"


class LinearModel(Model):
    """Minimises the mean of a loss of ``w.x + intercept`` and the label, plus ``l2/2 * |w|^2``.

    The table has one row for each feature, then the intercept's row, which is not penalised and which every minibatch
    touches. It starts at 0.

    Attributes
    ----------
    loss : str
        Its name in `mlless_nb.kernels.linear_gradient`.
    fitted_type : type of `FittedLinearModel`
    """

    loss: ClassVar[str]
    data_kind: ClassVar[str] = "csr"
    is_convex: ClassVar[bool] = True
    fitted_type: ClassVar[type[FittedLinearModel]]

    def table_shape(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """(n_features + 1, 1)."""
        return shape[0] + 1, 1

    def rows(self, minibatch: Any, shape: tuple[int, ...]) -> Int32:
        """The rows of the minibatch's features, then the intercept's."""
        ids = minibatch.ids
        rows = np.empty(len(ids) + 1, np.int32)
        rows[:-1], rows[-1] = ids, shape[0]
        return rows

    def n_touched(self, n_ids: int) -> int:
        """One more than the ids, for the intercept."""
        return n_ids + 1

    def init(self, shape: tuple[int, ...], mean: float, seed: int) -> Float32:
        """Zeros."""
        return np.zeros(self.table_shape(shape), np.float32)

    def gradient(self, params: Float32, minibatch: Any, mean: float, divisor: float, grad: Float32) -> float:
        """Overwrite ``grad`` (m, 1), without the penalty; returns the sum of losses before any update."""
        return linear_gradient(self.loss, params, **vars(minibatch), divisor=divisor, grad=grad)

    def evaluate(self, params: Float32, minibatch: Any, mean: float) -> float:
        """Sum of losses."""
        return linear_loss(self.loss, params, **vars(minibatch))

    def dense_l2_rows(self, shape: tuple[int, ...]) -> int:
        """All rows except the intercept's."""
        return shape[0]

    def fitted(self, params: Float32, shape: tuple[int, ...], mean: float) -> Any:
        """The trained model; its arrays are copies."""
        return self.fitted_type({"weights": params[:-1, 0].copy(), "intercept": params[-1, :1].copy()})

    def table_of(self, model: FittedLinearModel) -> Float32:
        """The table of a fitted model."""
        return np.concatenate([model.params["weights"], model.params["intercept"]])[:, None]


def check_binary(field: str, labels: NDArray[Any], model: str) -> None:
    """Raise DataError, which names the first wrong label, unless all ``labels`` (n,) are 0 or 1, for ``model``."""
    is_wrong = (labels != 0) & (labels != 1)
    if bool(is_wrong.any()):
        at = int(np.flatnonzero(is_wrong)[0])
        hint = ""
        if bool((labels == -1).any()):
            hint = " (for labels -1 and 1 hand in (y + 1) / 2)"
        elif bool((np.isfinite(labels) & (labels >= 0)).all() and (labels == np.floor(labels)).all()):
            hint = f" ({MORE_CLASSES})"
        raise DataError(f"{field}[{at}]", float(labels[at]), f"0 or 1 for {model}{hint}")
