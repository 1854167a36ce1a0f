"""A model that a user wrote with NumPy: its parameters, loss and gradients, on dense rows."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..errors import JobError
from ..validation import check_number, specification
from .base import Model, register_model
from .definition import Definition, said
from .storage import write_arrays

Float32 = NDArray[np.float32]
Int32 = NDArray[np.int32]
Arrays = dict[str, Float32]
#: Width of the table that all parameters fill, row by row.
WIDTH = 64
#: Rows that a model is tried out on before anything is launched.
TRIED_ROWS = 32


class FittedArrays:
    """The trained parameters of a model that a user wrote.

    Attributes
    ----------
    params : dict
        The arrays by name, float32, in the order and shapes of the model's ``parameters``.
    """

    kind: ClassVar[str] = "numpy"

    def __init__(self, params: dict[str, NDArray[Any]]) -> None:
        if not params:
            raise ValueError("there are no arrays")
        self.params: dict[str, NDArray[Any]] = {name: np.asarray(array, np.float32) for name, array in params.items()}

    def save(self, path: str | Path) -> None:
        """Write the model to ``path`` as .npz; :func:`mlless_nb.models.load_model` reads it."""
        write_arrays(path, self.kind, self.params)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join(f'{name} {array.shape}' for name, array in self.params.items())}>"


@register_model
@specification
@dataclass(frozen=True)
class NumpyModel(Model):
    """A class of the notebook that says parameters, loss and gradients, trained on dense rows with labels.

    The class goes to the job's functions as source text, and is never pickled. It is made without arguments, imports
    what it uses inside its body (NumPy is there as ``np``), and has three methods::

        def parameters(self, n_features, seed): ...   # dict of float arrays by name, at the start
        def loss(self, params, X, y): ...             # mean loss of the rows, a number
        def gradients(self, params, X, y): ...        # dict of its gradients, shaped like the parameters

    ``X`` is float32 (n, n_features), ``y`` float32 (n,); ``params`` are float32 and cannot be written to.
    All parameters lie one after the other in one table, so protocols, codecs and algorithms apply as to any model.

    Parameters
    ----------
    definition : type
        The class.
    l2 : float
        At least 0: a penalty ``l2/2 * |params|^2`` on all parameters.

    Raises
    ------
    JobError
        If the class's source cannot be found, or does not define the same class by itself.
    """

    definition: Any
    l2: float | None = 0.0
    kind: ClassVar[str] = "numpy"
    metric: ClassVar[str] = "loss"
    data_kind: ClassVar[str] = "csr"
    fitted_type: ClassVar[type[FittedArrays]] = FittedArrays

    def __post_init__(self) -> None:
        check_number("NumpyModel.l2", self.l2, least=0.0)
        given = self.definition
        if isinstance(given, dict):
            object.__setattr__(self, "definition", Definition(**given))
        elif not isinstance(given, Definition):
            object.__setattr__(self, "definition", Definition.of(given, "NumpyModel.definition"))

    # -- the table: all parameters one after the other, then zeros

    def _start(self, n_features: int, seed: int) -> Arrays:
        return _start(self.definition, n_features, seed)

    def table_shape(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """(n_rows, 64), for as many parameters as there are."""
        # Minibatches do not tell the number of features, so it is kept here for `gradient` and `evaluate`.
        object.__setattr__(self, "_n_features", shape[0])
        n = sum(array.size for array in self._start(shape[0], 0).values())
        return max(-(-n // WIDTH), 1), WIDTH

    def rows(self, minibatch: Any, shape: tuple[int, ...]) -> Int32:
        """All rows."""
        return _all_rows(self.table_shape(shape)[0])

    def n_touched(self, n_ids: int) -> int:
        """More than any table has: a minibatch touches all rows."""
        return 2**31 - 1

    def init(self, shape: tuple[int, ...], mean: float, seed: int) -> Float32:
        """The user's ``parameters``."""
        return _flat(self._start(shape[0], seed), self.table_shape(shape))

    def _arrays(self, params: Float32) -> Arrays:
        """The table as the user's arrays."""
        flat, arrays, end = params.reshape(-1), {}, 0
        for name, array in self._start(self._features, 0).items():
            first, end = end, end + array.size
            arrays[name] = flat[first:end].reshape(array.shape)
            arrays[name].flags.writeable = False
        return arrays

    @property
    def _features(self) -> int:
        return int(vars(self)["_n_features"])

    # -- loss and gradient

    def gradient(self, params: Float32, minibatch: Any, mean: float, divisor: float, grad: Float32) -> float:
        """Overwrite ``grad`` (n_rows, 64) with the user's gradients; returns the sum of losses."""
        X, y = dense_rows(minibatch, self._features)
        arrays, user = self._arrays(params), _made(self.definition)
        grads = user.gradients(arrays, X, y)
        flat, end = np.zeros(grad.size, np.float32), 0
        for name, array in arrays.items():
            first, end = end, end + array.size
            flat[first:end] = np.asarray(grads[name], np.float32).reshape(-1)
        flat *= np.float32(minibatch.n / divisor)
        grad[...] = flat.reshape(grad.shape)
        return float(user.loss(arrays, X, y)) * int(minibatch.n)

    def evaluate(self, params: Float32, minibatch: Any, mean: float) -> float:
        """Sum of losses."""
        X, y = dense_rows(minibatch, self._features)
        return float(_made(self.definition).loss(self._arrays(params), X, y)) * int(minibatch.n)

    # -- before and after training

    def check_data(self, dataset: Any, field: str = "data") -> None:
        """See `Model`; the class is tried out on the first rows."""
        super().check_data(dataset, field)
        X, y = (dataset.X, dataset.y) if hasattr(dataset, "X") else next(iter(dataset.blocks()))
        n = min(TRIED_ROWS, X.shape[0])
        self._try_out(np.ascontiguousarray(X[:n].toarray(), np.float32), np.asarray(y[:n], np.float32))

    def _try_out(self, X: Float32, y: Float32) -> None:
        """Raise JobError unless loss and gradients of these rows are numbers of the right shapes."""
        params, user = self._arrays(self.init((X.shape[1],), 0.0, 0)), _made(self.definition)
        try:
            loss = user.loss(params, X, y)
            grads = user.gradients(params, X, y)
        except Exception as error:
            raise self._wrong(f"a class whose loss and gradients can be computed; it raises {said(error)}") from error
        if np.ndim(loss) != 0 or not np.isfinite(loss):
            raise self._wrong(f"a class whose loss is a finite number; on the first rows it is {loss!r:.60}")
        if not isinstance(grads, dict) or set(grads) != set(params):
            raise self._wrong(f"a class whose gradients are a dict of {', '.join(params)}")
        for name, array in params.items():
            if np.shape(grads[name]) != array.shape:
                shapes = f"of shape {array.shape}, as the parameter; it is {np.shape(grads[name])}"
                raise self._wrong(f"a class whose gradient of {name} is {shapes}")
            if not np.isfinite(grads[name]).all():
                raise self._wrong(f"a class whose gradient of {name} is finite on the first rows")

    def _wrong(self, valid: str) -> JobError:
        return JobError("model", str(self), valid)

    def fitted(self, params: Float32, shape: tuple[int, ...], mean: float) -> FittedArrays:
        """The trained parameters by name; copies."""
        self.table_shape(shape)
        return FittedArrays({name: array.copy() for name, array in self._arrays(params).items()})

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


@functools.lru_cache(maxsize=8)
def _made(definition: Definition) -> Any:
    """The user's class, made."""
    try:
        return definition.load("model")()
    except JobError:
        raise
    except Exception as error:
        raise JobError("model", definition.name, f"a class that is made without arguments; {said(error)}") from error


@functools.lru_cache(maxsize=8)
def _start(definition: Definition, n_features: int, seed: int) -> Arrays:
    """The user's parameters at the start."""
    try:
        made = _made(definition).parameters(n_features, seed)
        arrays = {str(name): np.asarray(array, np.float32) for name, array in made.items()}
    except JobError:
        raise
    except Exception as error:
        valid = f"a class whose parameters are a dict of arrays; {said(error)}"
        raise JobError("model", definition.name, valid) from error
    if not arrays or not all(array.size and np.isfinite(array).all() for array in arrays.values()):
        raise JobError("model", definition.name, "a class whose parameters are arrays of finite numbers")
    return arrays


def _flat(arrays: dict[str, NDArray[Any]], shape: tuple[int, int]) -> Float32:
    table = np.zeros(math.prod(shape), np.float32)
    flat = np.concatenate([np.asarray(array, np.float32).reshape(-1) for array in arrays.values()])
    table[: len(flat)] = flat
    return table.reshape(shape)
