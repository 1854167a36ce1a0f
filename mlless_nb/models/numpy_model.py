"""A model that a user wrote with NumPy: its parameters, loss and gradients, on dense rows."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..errors import JobError
from ..validation import specification
from .base import register_model
from .definition import Definition, said
from .written import Arrays, FittedArrays, Float32, WrittenModel, dense_rows

#: What the user's class has.
METHODS = ("parameters", "loss", "gradients")


@register_model
@specification
@dataclass(frozen=True)
class NumpyModel(WrittenModel):
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
    fitted_type: ClassVar[type[FittedArrays]] = FittedArrays

    def start(self, n_features: int, seed: int) -> Arrays:
        """The user's ``parameters``."""
        return _start(self.definition, n_features, seed)

    def gradient(self, params: Float32, minibatch: Any, mean: float, divisor: float, grad: Float32) -> float:
        """Overwrite ``grad`` (n_rows, 64) with the user's gradients; returns the sum of losses."""
        X, y = dense_rows(minibatch, self.n_features)
        arrays, user = self.arrays(params), _made(self.definition)
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
        X, y = dense_rows(minibatch, self.n_features)
        return float(_made(self.definition).loss(self.arrays(params), X, y)) * int(minibatch.n)

    def try_out(self, X: Float32, y: Float32) -> None:
        """See `WrittenModel`."""
        params, user = self.arrays(self.init((X.shape[1],), 0.0, 0)), _made(self.definition)
        try:
            loss = user.loss(params, X, y)
            grads = user.gradients(params, X, y)
            is_finite = np.ndim(loss) == 0 and bool(np.isfinite(np.float32(loss)))
        except Exception as error:
            raise self.wrong(f"a class whose loss and gradients can be computed; it raises {said(error)}") from error
        if not is_finite:
            raise self.wrong(f"a class whose loss is a finite number; on the first rows it is {loss!r:.60}")
        if not isinstance(grads, dict) or set(grads) != set(params):
            raise self.wrong(f"a class whose gradients are a dict of {', '.join(params)}")
        for name, array in params.items():
            try:
                grad = np.asarray(grads[name], np.float32)
            except (TypeError, ValueError) as error:
                raise self.wrong(f"a class whose gradient of {name} is numbers; {said(error)}") from error
            if grad.shape != array.shape:
                shapes = f"of shape {array.shape}, as the parameter; it is {grad.shape}"
                raise self.wrong(f"a class whose gradient of {name} is {shapes}")
            if not np.isfinite(grad).all():
                raise self.wrong(f"a class whose gradient of {name} is finite on the first rows")


@functools.lru_cache(maxsize=8)
def _made(definition: Definition) -> Any:
    """The user's class, made."""
    kind = definition.load("model")
    try:
        made = kind()
    except Exception as error:
        raise JobError("model", definition.name, f"a class that is made without arguments; {said(error)}") from error
    if missing := [name for name in METHODS if not callable(getattr(made, name, None))]:
        valid = f"a class with the methods {', '.join(METHODS)}; it has no {' and no '.join(missing)}"
        raise JobError("model", definition.name, valid)
    return made


@functools.lru_cache(maxsize=8)
def _start(definition: Definition, n_features: int, seed: int) -> Arrays:
    """The user's parameters at the start."""
    user = _made(definition)
    try:
        made = user.parameters(n_features, seed)
        arrays = {str(name): np.asarray(array, np.float32) for name, array in made.items()}
    except Exception as error:
        valid = f"a class whose parameters are a dict of arrays; {said(error)}"
        raise JobError("model", definition.name, valid) from error
    if not arrays or not all(array.size and np.isfinite(array).all() for array in arrays.values()):
        raise JobError("model", definition.name, "a class whose parameters are arrays of finite numbers")
    return arrays
