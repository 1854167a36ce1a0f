"""Adam."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...kernels import adam_update
from ...validation import specification
from .base import AT_LEAST_ZERO, BELOW_ONE, POSITIVE, DecayingOptimizer, Kernel


@specification
@dataclass(frozen=True)
class Adam(DecayingOptimizer):
    """Adam: first and second moments, both bias-corrected; eps is outside the square root.

    Parameters
    ----------
    b1, b2, eps : float
        As in Kingma and Ba 2015, Algorithm 1: ``u = -lr * m' / (sqrt(v') + eps)``.
    learning_rate, decay, lazy
        As in `SGD`.
    """

    learning_rate: float | None = None
    b1: float = 0.9
    b2: float = 0.999
    eps: float = 1e-8
    decay: float = 0.0
    lazy: bool | str = "auto"
    kind: ClassVar[str] = "adam"

    def __post_init__(self) -> None:
        self._check(learning_rate=POSITIVE, b1=BELOW_ONE, b2=BELOW_ONE, eps=POSITIVE, decay=AT_LEAST_ZERO)
        self._check_lazy()

    @property
    def state_names(self) -> tuple[str, ...]:
        """The two moments."""
        return "first", "second"

    def moves_untouched(self, l2: float) -> bool:
        """True unless lazy."""
        return self.lazy is not True

    def _kernel(self, step: int, scale: float) -> Kernel:
        return adam_update, (scale * self.rate(step), self.b1, self.b2, self.eps, step)

    def __str__(self) -> str:
        return f"Adam {self._shown_rate}{self._suffix}"
