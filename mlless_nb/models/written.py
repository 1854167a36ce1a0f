"""The common part of models that a user wrote: a source that travels, one table of all parameters, dense rows."""

from __future__ import annotations

import functools
import math
from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..errors import JobError
from ..validation import check_number
from .base import Model
from .definition import Definition
from .fitted import FittedModel

Float32 = NDArray[np.float32]
Int32 = NDArray[np.int32]
Arrays = dict[str, Float32]
#: Width of the table that all parameters fill, row by row.
WIDTH = 64
#: Rows that a model is tried out on before anything is launched.
TRIED_ROWS = 32


class FittedArrays(FittedModel):
    """The trained parameters of a model that a user wrote.

    Attributes
    ----------
    params : dict
        The arrays by name, float32, in the model's order and shapes.
    """

    kind: ClassVar[str] = "numpy"

    def __init__(self, params: dict[str, NDArray[Any]]) -> None:
        if not params:
            raise ValueError("there are no arrays")
        self.params: dict[str, NDArray[Any]] = {name: np.asarray(array, np.float32) for name, array in params.items()}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join(f'{name} {array.shape}' for name, array in self.params.items())}>"


class WrittenModel(Model):
    """A model whose class or function a user wrote. All parameters lie one after the other in one table, then zeros.

    Attributes
    ----------
    definition : Definition
    modules : tuple of str
        Modules that the source finds by name, besides NumPy; see `Model`.
    """

    definition: Any
    metric: ClassVar[str] = "loss"
    data_kind: ClassVar[str] = "csr"
    fitted_type: ClassVar[type[FittedArrays]]

    def __post_init__(self) -> None:
        name = type(self).__name__
        check_number(f"{name}.l2", self.l2, least=0.0)
        given = self.definition
        if isinstance(given, dict):
            object.__setattr__(self, "definition", Definition(**given))
        elif not isinstance(given, Definition):
            object.__setattr__(self, "definition", Definition.of(given, f"{name}.definition", self.modules))

    @abstractmethod
    def start(self, n_features: int, seed: int) -> Arrays:
        """The parameters at the start, by name."""

    @abstractmethod
    def try_out(self, X: Float32, y: Float32) -> None:
        """Raise JobError unless loss and gradients of these rows are finite and of the right shapes."""

    def table_shape(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """(n_rows, 64), for as many parameters as there are."""
        # Minibatches do not tell the number of features, so it is kept here for `gradient` and `evaluate`.
        object.__setattr__(self, "_n_features", shape[0])
        n = sum(array.size for array in self.start(shape[0], 0).values())
        return max(-(-n // WIDTH), 1), WIDTH

    def rows(self, minibatch: Any, shape: tuple[int, ...]) -> Int32:
        """All rows."""
        return _all_rows(self.table_shape(shape)[0])

    def n_touched(self, n_ids: int) -> int:
        """More than any table has: a minibatch touches all rows."""
        return 2**31 - 1

    def init(self, shape: tuple[int, ...], mean: float, seed: int) -> Float32:
        """The user's parameters at the start."""
        return _flat(self.start(shape[0], seed), self.table_shape(shape))

    def arrays(self, params: Float32) -> Arrays:
        """The table as the user's arrays."""
        flat, arrays, end = params.reshape(-1), {}, 0
        for name, array in self.start(self.n_features, 0).items():
            first, end = end, end + array.size
            arrays[name] = flat[first:end].reshape(array.shape)
            arrays[name].flags.writeable = False
        return arrays

    @property
    def n_features(self) -> int:
        """Number of columns of the rows, once the table's shape is known."""
        return int(vars(self)["_n_features"])

    def check_data(self, dataset: Any, field: str = "data") -> None:
        """See `Model`; the definition is tried out on the first rows."""
        super().check_data(dataset, field)
        X, y = (dataset.X, dataset.y) if hasattr(dataset, "X") else next(iter(dataset.blocks()))
        n = min(TRIED_ROWS, X.shape[0])
        self.try_out(np.ascontiguousarray(X[:n].toarray(), np.float32), np.asarray(y[:n], np.float32))

    def wrong(self, valid: str) -> JobError:
        """The error that the model must be ``valid``."""
        return JobError("model", str(self), valid)

    def fitted(self, params: Float32, shape: tuple[int, ...], mean: float) -> FittedArrays:
        """The trained parameters by name; copies."""
        self.table_shape(shape)
        return self.fitted_type({name: array.copy() for name, array in self.arrays(params).items()})

    def table_of(self, model: FittedArrays) -> Float32:
        """The table of trained parameters."""
        n = sum(array.size for array in model.params.values())
        return _flat(model.params, (max(-(-n // WIDTH), 1), WIDTH))

    def __str__(self) -> str:
        return str(self.definition.name)


def dense_rows(minibatch: Any, n_features: int) -> tuple[Float32, Float32]:
    """The features of a `CsrMinibatch` as float32 (n, n_features), and its labels, float32 (n,)."""
    X = np.zeros((minibatch.n, n_features), np.float32)
    X[:, minibatch.ids[minibatch.columns]] = minibatch.dense.T
    if len(minibatch.indices):
        row = np.repeat(np.arange(minibatch.n), np.diff(minibatch.indptr))
        X[row, minibatch.ids[minibatch.indices]] += minibatch.values if len(minibatch.values) else np.float32(1)
    return X, minibatch.labels


@functools.lru_cache(maxsize=8)
def _all_rows(n: int) -> Int32:
    return np.arange(n, dtype=np.int32)


def _flat(arrays: dict[str, NDArray[Any]], shape: tuple[int, int]) -> Float32:
    table = np.zeros(math.prod(shape), np.float32)
    flat = np.concatenate([np.asarray(array, np.float32).reshape(-1) for array in arrays.values()])
    table[: len(flat)] = flat
    return table.reshape(shape)
