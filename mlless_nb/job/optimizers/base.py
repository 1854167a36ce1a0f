"""Base of the optimisers: the state, the learning rate at a step, the compiled step, and the checks of fields."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ...errors import JobError
from ...kernels import SignificanceSplit
from ...validation import check_flag, is_number

Float32 = NDArray[np.float32]
State = dict[str, Float32]
#: A compiled step, and the arguments that it takes between the state and the penalty.
Kernel = tuple[Callable[..., None], tuple[Any, ...]]
#: A test whether a field's value is valid, and the valid values in words.
Rule = tuple[Callable[[float], bool], str]
POSITIVE: Rule = (lambda value: value > 0, "a finite number > 0")
AT_LEAST_ZERO: Rule = (lambda value: value >= 0, "a finite number >= 0")
BELOW_ONE: Rule = (lambda value: 0 <= value < 1, "a number in [0, 1)")


class BaseOptimizer:
    """Common base of all optimisers; each subclass declares its own fields."""

    kind: ClassVar[str]
    learning_rate: float | None

    def resolved(self, learning_rate: float) -> Self:
        """This optimiser, with ``learning_rate`` if it has none of its own."""
        return self if self.learning_rate is not None else replace(self, learning_rate=learning_rate)  # type: ignore[type-var]

    @property
    def state_names(self) -> tuple[str, ...]:
        """Names of the arrays that ``init`` returns, in the kernel's order."""
        raise NotImplementedError

    def moves_untouched(self, l2: float) -> bool:
        """Whether a step also changes rows that the minibatch did not touch, given the model's ``dense_l2``."""
        raise NotImplementedError

    def rate(self, step: int) -> float:
        """The learning rate at a step, 1-based."""
        raise NotImplementedError

    def _kernel(self, step: int, scale: float) -> Kernel:
        """The compiled step, and its arguments between state and penalty."""
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
        """Write the update of ``params`` to ``out``; ``state`` changes in place, ``params`` does not.

        Parameters
        ----------
        params : float32 (n_rows, width)
            Its rows, and those of the state, may be padded (strided).
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
            Moves the significant values out of ``out`` in the same pass.
        """
        kernel, knobs = self._kernel(step, scale)
        kernel(params, rows, grad, *map(state.__getitem__, self.state_names), *knobs, l2, l2_rows, out, split)

    def to_json(self) -> dict[str, Any]:
        """The optimiser as plain JSON."""
        return {"kind": self.kind, **asdict(self)}  # type: ignore[call-overload]

    @property
    def _known_rate(self) -> float:
        """The learning rate, which is set once a run has started."""
        assert self.learning_rate is not None, "a learning rate is chosen before the first step"
        return self.learning_rate

    @property
    def _shown_rate(self) -> str:
        return "at its own rate" if self.learning_rate is None else f"{self.learning_rate:g}"

    def _check(self, **rules: Rule) -> None:
        """Raise `JobError` for the first of the named fields that breaks its rule."""
        for field, (holds, valid) in rules.items():
            value = getattr(self, field)
            if field == "learning_rate" and value is None:
                continue
            if not is_number(value) or not holds(value):
                or_none = " or None" if field == "learning_rate" else ""
                raise JobError(f"{type(self).__name__}.{field}", value, valid + or_none)

    def _check_flags(self, *fields: str) -> None:
        for field in fields:
            check_flag(f"{type(self).__name__}.{field}", getattr(self, field))


class DecayingOptimizer(BaseOptimizer):
    """Base of the optimisers whose learning rate decays with the steps, and that can be lazy."""

    decay: float
    lazy: bool | str

    def rate(self, step: int) -> float:
        """The learning rate at a step, 1-based: ``learning_rate / sqrt(1 + decay * (step - 1))``."""
        return self._known_rate / math.sqrt(1.0 + self.decay * (step - 1))

    def _check_lazy(self) -> None:
        if not isinstance(self.lazy, bool) and self.lazy != "auto":
            raise JobError(f"{type(self).__name__}.lazy", self.lazy, "True, False or 'auto'")

    @property
    def _suffix(self) -> str:
        return (f", decay {self.decay:g}" if self.decay else "") + (", lazy" if self.lazy is True else "")
