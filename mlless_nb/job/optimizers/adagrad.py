"""AdaGrad."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...kernels import adagrad_update
from ...validation import specification
from .base import AT_LEAST_ZERO, POSITIVE, DecayingOptimizer, Kernel


@specification
@dataclass(frozen=True)
class AdaGrad(DecayingOptimizer):
    """AdaGrad: ``s = s + g^2``; ``u = -lr * g / (sqrt(s) + eps)``. A zero gradient changes nothing.

    Parameters
    ----------
    eps : float
        As in Duchi et al. 2011.
    learning_rate, decay, lazy
        As in `SGD`.
    """

    learning_rate: float | None = None
    eps: float = 1e-10
    decay: float = 0.0
    lazy: bool | str = "auto"
    kind: ClassVar[str] = "adagrad"

    def __post_init__(self) -> None:
        self._check(learning_rate=POSITIVE, eps=POSITIVE, decay=AT_LEAST_ZERO)
        self._check_lazy()

    @property
    def state_names(self) -> tuple[str, ...]:
        """The sums of squares."""
        return ("squares",)

    def moves_untouched(self, l2: float) -> bool:
        """True with a penalty, unless lazy."""
        return self.lazy is not True and l2 != 0

    def _kernel(self, step: int, scale: float) -> Kernel:
        return adagrad_update, (scale * self.rate(step), self.eps)

    def __str__(self) -> str:
        return f"AdaGrad {self._shown_rate}{self._suffix}"
