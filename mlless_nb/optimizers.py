"""Optimisers: from a minibatch's gradient to what is added to the parameters.

A specification is a frozen dataclass; all state is in the arrays that ``init`` returns, so that it can be stored and
handed over. Each equals its PyTorch namesake step by step. Three things are common to all:

- the learning rate at step ``t`` (1-based) is ``learning_rate / sqrt(1 + decay * (t - 1))``;
- ``update`` writes ``scale`` times the update (1/P where P workers' updates are averaged); the state sees the whole
  gradient;
- momentum, Adam and an l2 penalty move parameters that the minibatch did not touch. They do so here too, by walking the
  whole table, unless ``lazy=True``, which names the variant that leaves such parameters, and their state, as they are.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from .errors import JobError
from .kernels import adagrad_update, adam_update, momentum_update, sgd_update
from .plain import make_plain

Float32 = NDArray[np.float32]
State = dict[str, Float32]


@dataclass(frozen=True)
class SGD:
    """Stochastic gradient descent, plain or with (Nesterov) momentum.

    ``v = momentum*v + g``; ``u = -lr*v``, or Nesterov's ``u = -lr*(g + momentum*v)``.

    Parameters
    ----------
    learning_rate : float
        Greater than 0.
    momentum : float
        In [0, 1).
    nesterov : bool
        Nesterov's variant; needs momentum.
    decay : float
        At least 0; 1 gives the ``1/sqrt(t)`` of the paper's convergence proof.
    lazy : bool
        Leave what the minibatch did not touch as it is.

    References
    ----------
    MLLess (journal), section 2; Sutskever et al. 2013 for the momenta.
    """

    learning_rate: float
    momentum: float = 0.0
    nesterov: bool = False
    decay: float = 0.0
    lazy: bool = False
    kind: ClassVar[str] = "sgd"

    def __post_init__(self) -> None:
        make_plain(self)
        _check(self, learning_rate=_POSITIVE, momentum=_BELOW_ONE, decay=_AT_LEAST_ZERO)
        _check_flags(self, "nesterov", "lazy")
        if self.nesterov and not self.momentum:
            raise JobError("SGD.nesterov", self.nesterov, "False where momentum is 0")

    def moves_untouched(self, l2: float) -> bool:
        """Whether exactness needs the whole table walked each step, given the model's ``dense_l2``."""
        return not self.lazy and (self.momentum != 0 or l2 != 0)

    def init(self, n_rows: int, width: int) -> State:
        """State before the first step: arrays of shape (n_rows, width)."""
        return {"velocity": np.zeros((n_rows, width), np.float32)} if self.momentum else {}

    def update(
        self,
        params: Float32,
        rows: NDArray[np.int32],
        grad: Float32,
        state: State,
        step: int,
        scale: float,
        l2: float,
        l2_rows: int,
        out: Float32,
    ) -> None:
        """Write to ``out`` what is to be added to ``params``; ``state`` changes in place, ``params`` does not.

        Parameters
        ----------
        params : float32 (n_rows, width)
        rows : int32 (m,)
            The touched rows, strictly ascending.
        grad : float32 (m, width)
        step : int
            1-based.
        scale : float
            Factor of the written update.
        l2, l2_rows : float, int
            The gradient of rows below ``l2_rows`` grows by ``l2 * params``.
        out : float32
            (n_rows, width) where ``moves_untouched(l2)``, else (m, width).
        """
        rate = scale * _rate(self, step)
        if self.momentum:
            momentum_update(params, rows, grad, state["velocity"], rate, self.momentum, self.nesterov, l2, l2_rows, out)
        else:
            sgd_update(params, rows, grad, rate, l2, l2_rows, out)

    def to_json(self) -> dict[str, Any]:
        """The optimiser as plain JSON."""
        return {"kind": self.kind, **asdict(self)}

    def __str__(self) -> str:
        momentum = f", {'Nesterov ' if self.nesterov else ''}momentum {self.momentum:g}" if self.momentum else ""
        return f"SGD {self.learning_rate:g}{momentum}{_suffix(self)}"


@dataclass(frozen=True)
class Adam:
    """Adam: first and second moments, both corrected for their start at 0; eps outside the root.

    Parameters
    ----------
    learning_rate, b1, b2, eps : float
        As in Kingma and Ba 2015, Algorithm 1: ``u = -lr * m' / (sqrt(v') + eps)``.
    decay, lazy
        As in :class:`SGD`.
    """

    learning_rate: float = 0.001
    b1: float = 0.9
    b2: float = 0.999
    eps: float = 1e-8
    decay: float = 0.0
    lazy: bool = False
    kind: ClassVar[str] = "adam"

    def __post_init__(self) -> None:
        make_plain(self)
        _check(self, learning_rate=_POSITIVE, b1=_BELOW_ONE, b2=_BELOW_ONE, eps=_POSITIVE, decay=_AT_LEAST_ZERO)
        _check_flags(self, "lazy")

    def moves_untouched(self, l2: float) -> bool:
        """As :meth:`SGD.moves_untouched`."""
        return not self.lazy

    def init(self, n_rows: int, width: int) -> State:
        """As :meth:`SGD.init`."""
        return {name: np.zeros((n_rows, width), np.float32) for name in ("first", "second")}

    def update(
        self,
        params: Float32,
        rows: NDArray[np.int32],
        grad: Float32,
        state: State,
        step: int,
        scale: float,
        l2: float,
        l2_rows: int,
        out: Float32,
    ) -> None:
        """As :meth:`SGD.update`."""
        rate = scale * _rate(self, step)
        first, second = state["first"], state["second"]
        adam_update(params, rows, grad, first, second, rate, self.b1, self.b2, self.eps, step, l2, l2_rows, out)

    def to_json(self) -> dict[str, Any]:
        """The optimiser as plain JSON."""
        return {"kind": self.kind, **asdict(self)}

    def __str__(self) -> str:
        return f"Adam {self.learning_rate:g}{_suffix(self)}"


@dataclass(frozen=True)
class AdaGrad:
    """AdaGrad: ``s = s + g^2``; ``u = -lr * g / (sqrt(s) + eps)``. Exact on sparse gradients: what is untouched stays.

    Parameters
    ----------
    learning_rate, eps : float
        As in Duchi et al. 2011.
    decay, lazy
        As in :class:`SGD`.
    """

    learning_rate: float = 0.01
    eps: float = 1e-10
    decay: float = 0.0
    lazy: bool = False
    kind: ClassVar[str] = "adagrad"

    def __post_init__(self) -> None:
        make_plain(self)
        _check(self, learning_rate=_POSITIVE, eps=_POSITIVE, decay=_AT_LEAST_ZERO)
        _check_flags(self, "lazy")

    def moves_untouched(self, l2: float) -> bool:
        """As :meth:`SGD.moves_untouched`."""
        return not self.lazy and l2 != 0

    def init(self, n_rows: int, width: int) -> State:
        """As :meth:`SGD.init`."""
        return {"squares": np.zeros((n_rows, width), np.float32)}

    def update(
        self,
        params: Float32,
        rows: NDArray[np.int32],
        grad: Float32,
        state: State,
        step: int,
        scale: float,
        l2: float,
        l2_rows: int,
        out: Float32,
    ) -> None:
        """As :meth:`SGD.update`."""
        rate = scale * _rate(self, step)
        adagrad_update(params, rows, grad, state["squares"], rate, self.eps, l2, l2_rows, out)

    def to_json(self) -> dict[str, Any]:
        """The optimiser as plain JSON."""
        return {"kind": self.kind, **asdict(self)}

    def __str__(self) -> str:
        return f"AdaGrad {self.learning_rate:g}{_suffix(self)}"


Optimizer = SGD | Adam | AdaGrad


def optimizer_from_json(spec: dict[str, Any]) -> Optimizer:
    """The optimiser that ``to_json`` wrote.

    Raises
    ------
    JobError
        When it is of no known kind or a field is wrong.
    """
    kinds: dict[str, type[Optimizer]] = {each.kind: each for each in (SGD, Adam, AdaGrad)}
    fields = dict(spec)
    kind = fields.pop("kind", None)
    if kind not in kinds:
        raise JobError("optimizer.kind", kind, f"one of {', '.join(kinds)}")
    return kinds[kind](**fields)


def _rate(optimizer: Optimizer, step: int) -> float:
    return optimizer.learning_rate / math.sqrt(1.0 + optimizer.decay * (step - 1))


def _suffix(optimizer: Optimizer) -> str:
    return (f", decay {optimizer.decay:g}" if optimizer.decay else "") + (", lazy" if optimizer.lazy else "")


_Rule = tuple[Callable[[float], bool], str]
_POSITIVE: _Rule = (lambda value: value > 0, "a finite number > 0")
_AT_LEAST_ZERO: _Rule = (lambda value: value >= 0, "a finite number >= 0")
_BELOW_ONE: _Rule = (lambda value: 0 <= value < 1, "a number in [0, 1)")


def _check(optimizer: Optimizer, **rules: _Rule) -> None:
    for field, (holds, valid) in rules.items():
        value = getattr(optimizer, field)
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not is_number or not abs(value) <= sys.float_info.max or not holds(value):
            raise JobError(f"{type(optimizer).__name__}.{field}", value, valid)


def _check_flags(optimizer: Optimizer, *fields: str) -> None:
    for field in fields:
        if not isinstance(getattr(optimizer, field), bool):
            raise JobError(f"{type(optimizer).__name__}.{field}", getattr(optimizer, field), "True or False")
