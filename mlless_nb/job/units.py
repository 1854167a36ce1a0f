"""Units of training: data is scaled so that learning rates and penalties mean the same for all data.

Users see losses, predictions and coefficients in the data's own units. Ratings become ``(rating - mean) / deviation``.
Columns are divided by the root mean square of their non-zero values, so that sparse rows stay sparse. Columns with a
value in nearly every row, which are stored dense anyway, are centred by their mean and divided by their deviation.
Columns of ones and twos (categories, hashed) are not changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..data.csr import Csr
from ..data.dataset import Dataset, digest
from ..data.ratings import Ratings
from ..data.stored_files import StoredRows
from ..data.stream import CsrStream
from ..models import FittedModel, Model
from .column_sums import LEAST, MOST, column_sums

Rows = TypeVar("Rows", bound=Dataset)
Float64 = NDArray[np.float64]


@dataclass(frozen=True)
class OwnUnits:
    """The data's own units: nothing is changed."""

    def apply(self, dataset: Rows) -> Rows:
        """``dataset`` in the units of training."""
        return dataset

    def restore(self, model: FittedModel) -> FittedModel:
        """``model``, fitted in the units of training, converted to the data's own units."""
        return model

    def adopt(self, model: FittedModel) -> FittedModel:
        """``model``, in the data's own units, converted to the units of training: undoes `restore`."""
        return model

    @property
    def key(self) -> str:
        """A string that is equal for equal units."""
        return ""


@dataclass(frozen=True)
class RatingUnits(OwnUnits):
    """Standardised ratings: ``(rating - origin) / deviation``."""

    origin: float
    deviation: float

    @classmethod
    def of(cls, dataset: Ratings) -> RatingUnits:
        """Mean and standard deviation; 1 where all ratings are the same."""
        deviation = float(dataset.ratings.std(dtype=np.float64))
        return cls(dataset.mean, deviation if LEAST < deviation < MOST else 1.0)

    def apply(self, dataset: Rows) -> Rows:
        """See `OwnUnits`."""
        assert isinstance(dataset, Ratings)
        return dataset.in_units(self.origin, self.deviation)  # type: ignore[return-value]

    def restore(self, model: FittedModel) -> FittedModel:
        """See `OwnUnits`; the factors share the deviation evenly."""
        params = model.params
        factors = {name: params[name] * np.sqrt(self.deviation) for name in ("user_factors", "item_factors")}
        biases = {name: params[name] * self.deviation for name in ("user_bias", "item_bias")}
        mean = np.asarray(self.origin + self.deviation * float(params["mean"]))
        return type(model)({**factors, **biases, "mean": mean})

    def adopt(self, model: FittedModel) -> FittedModel:
        """See `OwnUnits`."""
        params = model.params
        factors = {name: params[name] / np.sqrt(self.deviation) for name in ("user_factors", "item_factors")}
        biases = {name: params[name] / self.deviation for name in ("user_bias", "item_bias")}
        mean = np.asarray((float(params["mean"]) - self.origin) / self.deviation)
        return type(model)({**factors, **biases, "mean": mean})

    @property
    def key(self) -> str:
        """See `OwnUnits`."""
        return f"{self.origin!r} {self.deviation!r}"


@dataclass(frozen=True, eq=False)
class ColumnUnits(OwnUnits):
    """Columns minus ``shift``, divided by ``scale``; both float64 (n_features,), 0 and 1 for unchanged columns."""

    shift: Float64
    scale: Float64

    @classmethod
    def none(cls, n_features: int) -> ColumnUnits:
        """All columns unchanged."""
        return cls(np.zeros(n_features), np.ones(n_features))

    @classmethod
    def of(cls, dataset: Csr | CsrStream) -> ColumnUnits:
        """Root mean squares, or means and deviations, of a dataset's columns; for a stream, of its first rows."""
        return cls(*column_sums(dataset).units())

    def apply(self, dataset: Rows) -> Rows:
        """See `OwnUnits`."""
        assert isinstance(dataset, (Csr, CsrStream))
        if not self.shift.any() and (self.scale == 1.0).all():
            return dataset
        n_centred = int(np.count_nonzero(self.shift))
        return dataset.with_rows(self, self.key, n_centred)  # type: ignore[return-value]

    def __call__(self, X: Any) -> Any:
        """Rows ``X``, CSR (n, n_features), in the units of training."""
        from scipy.sparse import csr_array

        indptr, indices, values = X.indptr, X.indices, X.data
        centred = np.flatnonzero(self.shift)
        if len(centred):
            indptr, indices, values = _written_out(X, centred)
        scaled = values * (1.0 / self.scale).astype(np.float32)[indices]
        if len(centred):
            at = np.flatnonzero((self.shift != 0.0)[indices])  # in float64: a mean may be much larger than a deviation
            column = indices[at]
            scaled[at] = (values[at] - self.shift[column]) / self.scale[column]
        return csr_array((scaled, indices, indptr), shape=X.shape)

    def restore(self, model: FittedModel) -> FittedModel:
        """See `OwnUnits`."""
        weights = model.params["weights"] / self.scale
        intercept = model.params["intercept"] - weights @ self.shift
        return type(model)({**model.params, "weights": weights, "intercept": intercept})

    def adopt(self, model: FittedModel) -> FittedModel:
        """See `OwnUnits`."""
        weights = model.params["weights"]
        intercept = model.params["intercept"] + weights @ self.shift
        return type(model)({**model.params, "weights": weights * self.scale, "intercept": intercept})

    @property
    def key(self) -> str:
        """See `OwnUnits`."""
        return digest("columns", self.shift.shape, self.shift, self.scale)


def _written_out(X: Any, columns: NDArray[np.intp]) -> tuple[Any, Any, Any]:
    """``X`` as (indptr, indices, values), where every row has an explicit value, maybe 0, in each of ``columns``."""
    n, n_features = X.shape
    place = np.full(n_features, -1, np.int32)
    place[columns] = np.arange(len(columns), dtype=np.int32)
    row, there = np.repeat(np.arange(n), np.diff(X.indptr)), place[X.indices]
    is_missing = np.ones((n, len(columns)), bool)
    is_missing[row[there >= 0], there[there >= 0]] = False
    rows, missing = np.nonzero(is_missing)
    if not len(rows):
        return X.indptr, X.indices, X.data
    missing = columns[missing]
    # Entries are sorted by row and column, and so are the missing ones.
    at = np.searchsorted(row * n_features + X.indices, rows * n_features + missing)
    counts = np.append(0, np.cumsum(np.bincount(rows, minlength=n)))
    indices = np.insert(X.indices, at, missing.astype(X.indices.dtype))
    return (X.indptr + counts).astype(X.indptr.dtype), indices, np.insert(X.data, at, 0.0)


Units = OwnUnits


def stored_squared_length(rows: StoredRows) -> float:
    """The mean squared length of stored rows in their units."""
    # Functions sum the columns as they are in the files; rows that are read here have their units.
    is_changed = rows.sum_columns is not None and isinstance(rows.change, ColumnUnits)
    change = rows.change if is_changed else ColumnUnits.none(rows.shape[0])
    assert isinstance(change, ColumnUnits)
    return column_sums(rows).squared_length(change.shift, change.scale)


def units_of(model: Model, dataset: Dataset) -> Units:
    """The units in which ``model`` is trained on ``dataset``."""
    if isinstance(dataset, Ratings) and getattr(model, "standardize", False):
        return RatingUnits.of(dataset)
    if isinstance(dataset, (Csr, CsrStream)) and getattr(model, "scale", False):
        return ColumnUnits.of(dataset)
    return OwnUnits()
