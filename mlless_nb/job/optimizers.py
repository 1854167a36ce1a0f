"""Optimisers: from a minibatch's gradient to what is added to the parameters.

A specification is a frozen dataclass; all state is in the arrays that ``init`` returns, so that it can be stored and
handed over. Each equals its PyTorch namesake step by step; FTRL, which has none, its paper. Three things are common:

- the learning rate at step ``t`` (1-based) is ``learning_rate / sqrt(1 + decay * (t - 1))`` (FTRL's is constant);
- ``update`` writes ``scale`` times the update (1/P where P workers' updates are averaged); the state sees the whole
  gradient;
- momentum, Adam and an l2 penalty move parameters that the minibatch did not touch. They do so here too, by walking the
  whole table, unless ``lazy=True``, which names the variant that leaves such parameters, and their state, as they are.
  ``lazy="auto"`` is decided once the data is packed: True where the table is much larger than what a minibatch touches.

A ``learning_rate`` of None is chosen for the model and its data when a run starts, see `mlless_nb.job.defaults`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ..errors import JobError
from ..kernels import SignificanceSplit, adagrad_update, adam_update, ftrl_update, momentum_update, sgd_update
from ..validation import check_flag, is_number, specification

Float32 = NDArray[np.float32]
State = dict[str, Float32]


class _Optimizer:
    """What all have in common; the fields are the specifications' own."""

    kind: ClassVar[str]
    learning_rate: float | None

    def resolved(self, learning_rate: float) -> Self:
        """Itself, with ``learning_rate`` where it has none of its own."""
        return self if self.learning_rate is not None else replace(self, learning_rate=learning_rate)  # type: ignore[type-var]

    @property
    def state_names(self) -> tuple[str, ...]:
        """Names of the arrays that ``init`` returns, in the kernel's order."""
        raise NotImplementedError

    def moves_untouched(self, l2: float) -> bool:
        """Whether exactness needs the whole table walked each step, given the model's ``dense_l2``."""
        raise NotImplementedError

    def rate(self, step: int) -> float:
        """The learning rate at a step, 1-based."""
        raise NotImplementedError

    def _kernel(self, step: int, scale: float) -> tuple[Callable[..., None], tuple[Any, ...]]:
        """The compiled step and its arguments between state and penalty."""
        raise NotImplementedError

    def init(self, n_rows: int, width: int) -> State:
        """State before the first step: zeros of shape (n_rows, width)."""
        return {name: np.zeros((n_rows, width), np.float32) for name in self.state_names}

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
        split: SignificanceSplit | None = None,
    ) -> None:
        """Write to ``out`` what is to be added to ``params``; ``state`` changes in place, ``params`` does not.

        Parameters
        ----------
        params : float32 (n_rows, width)
            Its rows, and those of the state, may be spaced.
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
        split : SignificanceSplit, optional
            Splits what is significant off ``out`` in the same pass.
        """
        kernel, knobs = self._kernel(step, scale)
        kernel(params, rows, grad, *(state[name] for name in self.state_names), *knobs, l2, l2_rows, out, split)

    def to_json(self) -> dict[str, Any]:
        """The optimiser as plain JSON."""
        return {"kind": self.kind, **asdict(self)}  # type: ignore[call-overload]


@specification
@dataclass(frozen=True)
class SGD(_Optimizer):
    """Stochastic gradient descent, plain or with (Nesterov) momentum.

    ``v = momentum*v + g``; ``u = -lr*v``, or Nesterov's ``u = -lr*(g + momentum*v)``.

    Parameters
    ----------
    learning_rate : float, optional
        Greater than 0. None: chosen when a run starts.
    momentum : float
        In [0, 1).
    nesterov : bool
        Nesterov's variant; needs momentum.
    decay : float
        At least 0; 1 gives the ``1/sqrt(t)`` of the paper's convergence proof.
    lazy : bool or "auto"
        Leave what the minibatch did not touch as it is; "auto" does so where the whole table is much larger.
    per_sample : bool
        Step after every rating of a minibatch instead of once, each at the whole learning rate: the sequential SGD of
        the matrix factorisation libraries. PMF only, without momentum.

    References
    ----------
    MLLess (journal), section 2; Sutskever et al. 2013 for the momenta.
    """

    learning_rate: float | None = None
    momentum: float = 0.0
    nesterov: bool = False
    decay: float = 0.0
    lazy: bool | str = "auto"
    per_sample: bool = False
    kind: ClassVar[str] = "sgd"

    def __post_init__(self) -> None:
        _check(self, learning_rate=_POSITIVE, momentum=_BELOW_ONE, decay=_AT_LEAST_ZERO)
        _check_flags(self, "nesterov", "per_sample")
        _check_lazy(self)
        if self.nesterov and not self.momentum:
            raise JobError("SGD.nesterov", self.nesterov, "False where momentum is 0")
        if self.per_sample and self.momentum:
            raise JobError("SGD.per_sample", self.per_sample, "False where there is momentum")

    @property
    def state_names(self) -> tuple[str, ...]:
        """The velocity, where there is momentum."""
        return ("velocity",) if self.momentum else ()

    def moves_untouched(self, l2: float) -> bool:
        """With momentum or a penalty, unless lazy."""
        return self.lazy is not True and (self.momentum != 0 or l2 != 0)

    def rate(self, step: int) -> float:
        """``learning_rate / sqrt(1 + decay * (step - 1))``."""
        return _decayed(self, step)

    def _kernel(self, step: int, scale: float) -> tuple[Callable[..., None], tuple[Any, ...]]:
        rate = scale * self.rate(step)
        return (momentum_update, (rate, self.momentum, self.nesterov)) if self.momentum else (sgd_update, (rate,))

    def __str__(self) -> str:
        momentum = f", {'Nesterov ' if self.nesterov else ''}momentum {self.momentum:g}" if self.momentum else ""
        return f"SGD {_rate(self)}{momentum}{', per sample' if self.per_sample else ''}{_suffix(self)}"


@specification
@dataclass(frozen=True)
class Adam(_Optimizer):
    """Adam: first and second moments, both corrected for their start at 0; eps outside the root.

    Parameters
    ----------
    b1, b2, eps : float
        As in Kingma and Ba 2015, Algorithm 1: ``u = -lr * m' / (sqrt(v') + eps)``.
    learning_rate, decay, lazy
        As in :class:`SGD`.
    """

    learning_rate: float | None = None
    b1: float = 0.9
    b2: float = 0.999
    eps: float = 1e-8
    decay: float = 0.0
    lazy: bool | str = "auto"
    kind: ClassVar[str] = "adam"

    def __post_init__(self) -> None:
        _check(self, learning_rate=_POSITIVE, b1=_BELOW_ONE, b2=_BELOW_ONE, eps=_POSITIVE, decay=_AT_LEAST_ZERO)
        _check_lazy(self)

    @property
    def state_names(self) -> tuple[str, ...]:
        """The two moments."""
        return "first", "second"

    def moves_untouched(self, l2: float) -> bool:
        """Unless lazy."""
        return self.lazy is not True

    def rate(self, step: int) -> float:
        """As :meth:`SGD.rate`."""
        return _decayed(self, step)

    def _kernel(self, step: int, scale: float) -> tuple[Callable[..., None], tuple[Any, ...]]:
        return adam_update, (scale * self.rate(step), self.b1, self.b2, self.eps, step)

    def __str__(self) -> str:
        return f"Adam {_rate(self)}{_suffix(self)}"


@specification
@dataclass(frozen=True)
class AdaGrad(_Optimizer):
    """AdaGrad: ``s = s + g^2``; ``u = -lr * g / (sqrt(s) + eps)``. Exact on sparse gradients: what is untouched stays.

    Parameters
    ----------
    eps : float
        As in Duchi et al. 2011.
    learning_rate, decay, lazy
        As in :class:`SGD`.
    """

    learning_rate: float | None = None
    eps: float = 1e-10
    decay: float = 0.0
    lazy: bool | str = "auto"
    kind: ClassVar[str] = "adagrad"

    def __post_init__(self) -> None:
        _check(self, learning_rate=_POSITIVE, eps=_POSITIVE, decay=_AT_LEAST_ZERO)
        _check_lazy(self)

    @property
    def state_names(self) -> tuple[str, ...]:
        """The sums of squares."""
        return ("squares",)

    def moves_untouched(self, l2: float) -> bool:
        """With a penalty, unless lazy."""
        return self.lazy is not True and l2 != 0

    def rate(self, step: int) -> float:
        """As :meth:`SGD.rate`."""
        return _decayed(self, step)

    def _kernel(self, step: int, scale: float) -> tuple[Callable[..., None], tuple[Any, ...]]:
        return adagrad_update, (scale * self.rate(step), self.eps)

    def __str__(self) -> str:
        return f"AdaGrad {_rate(self)}{_suffix(self)}"


@specification
@dataclass(frozen=True)
class FTRL(_Optimizer):
    """FTRL-Proximal: a learning rate a coordinate, and weights that are exactly 0 until they are worth their l1.

    ``w(z, n) = 0`` where ``|z| <= l1``, else ``-(z - sign(z)*l1) / ((beta + sqrt(n))/lr + l2)``; the update is the
    change of ``w`` that a gradient brings. One worker is FTRL exactly, to rounding; with several the parameters are the
    mean of their trajectories. Made for parameters that start at 0. What is untouched stays, a model's own penalty on
    it too.

    Parameters
    ----------
    learning_rate : float, optional
        The paper's alpha; greater than 0. None: chosen when a run starts.
    beta, l1, l2 : float
        The paper's beta, lambda_1 and lambda_2; at least 0.

    References
    ----------
    McMahan et al. 2013, "Ad Click Prediction: a View from the Trenches", Algorithm 1.
    """

    learning_rate: float | None = None
    beta: float = 1.0
    l1: float = 0.0
    l2: float = 0.0
    kind: ClassVar[str] = "ftrl"

    def __post_init__(self) -> None:
        _check(self, learning_rate=_POSITIVE, beta=_AT_LEAST_ZERO, l1=_AT_LEAST_ZERO, l2=_AT_LEAST_ZERO)
        if not self.beta and not self.l2:
            raise JobError("FTRL.beta", self.beta, "> 0 where l2 is 0: what has no gradient yet would be 0 / 0")

    @property
    def state_names(self) -> tuple[str, ...]:
        """The sums of adjusted gradients, and of squares."""
        return "z", "n"

    def moves_untouched(self, l2: float) -> bool:
        """Never."""
        return False

    def rate(self, step: int) -> float:
        """The same at every step: the coordinates' own rates fall by themselves."""
        return _known(self.learning_rate)

    def _kernel(self, step: int, scale: float) -> tuple[Callable[..., None], tuple[Any, ...]]:
        return ftrl_update, (scale, self.rate(step), self.beta, self.l1, self.l2)

    def __str__(self) -> str:
        penalties = "".join(f", {name} {getattr(self, name):g}" for name in ("l1", "l2") if getattr(self, name))
        return f"FTRL {_rate(self)}{penalties}"


Optimizer = SGD | Adam | AdaGrad | FTRL


def optimizer_from_json(spec: dict[str, Any]) -> Optimizer:
    """The optimiser that ``to_json`` wrote.

    Raises
    ------
    JobError
        When it is of no known kind or a field is wrong.
    """
    kinds: dict[str, type[Optimizer]] = {each.kind: each for each in (SGD, Adam, AdaGrad, FTRL)}
    fields = dict(spec)
    kind = fields.pop("kind", None)
    if kind not in kinds:
        raise JobError("optimizer.kind", kind, f"one of {', '.join(kinds)}")
    return kinds[kind](**fields)


def _decayed(optimizer: SGD | Adam | AdaGrad, step: int) -> float:
    return _known(optimizer.learning_rate) / math.sqrt(1.0 + optimizer.decay * (step - 1))


def _known(learning_rate: float | None) -> float:
    assert learning_rate is not None, "a rate is chosen before the first step"
    return learning_rate


def _rate(optimizer: Optimizer) -> str:
    return "at its own rate" if optimizer.learning_rate is None else f"{optimizer.learning_rate:g}"


def _suffix(optimizer: SGD | Adam | AdaGrad) -> str:
    return (f", decay {optimizer.decay:g}" if optimizer.decay else "") + (", lazy" if optimizer.lazy is True else "")


_Rule = tuple[Callable[[float], bool], str]
_POSITIVE: _Rule = (lambda value: value > 0, "a finite number > 0")
_AT_LEAST_ZERO: _Rule = (lambda value: value >= 0, "a finite number >= 0")
_BELOW_ONE: _Rule = (lambda value: 0 <= value < 1, "a number in [0, 1)")


def _check(optimizer: Optimizer, **rules: _Rule) -> None:
    for field, (holds, valid) in rules.items():
        value = getattr(optimizer, field)
        if field == "learning_rate" and value is None:
            continue
        if not is_number(value) or not holds(value):
            or_none = " or None" if field == "learning_rate" else ""
            raise JobError(f"{type(optimizer).__name__}.{field}", value, valid + or_none)


def _check_flags(optimizer: Optimizer, *fields: str) -> None:
    for field in fields:
        check_flag(f"{type(optimizer).__name__}.{field}", getattr(optimizer, field))


def _check_lazy(optimizer: SGD | Adam | AdaGrad) -> None:
    if not isinstance(optimizer.lazy, bool) and optimizer.lazy != "auto":
        raise JobError(f"{type(optimizer).__name__}.lazy", optimizer.lazy, "True, False or 'auto'")
