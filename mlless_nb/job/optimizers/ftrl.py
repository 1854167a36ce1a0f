"""FTRL-Proximal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...errors import JobError
from ...kernels import ftrl_update
from ...validation import specification
from .base import AT_LEAST_ZERO, POSITIVE, BaseOptimizer, Kernel


@specification
@dataclass(frozen=True)
class FTRL(BaseOptimizer):
    """FTRL-Proximal: one learning rate per coordinate, and weights that are exactly 0 while ``|z| <= l1``.

    ``w(z, n) = 0`` where ``|z| <= l1``, else ``-(z - sign(z)*l1) / ((beta + sqrt(n))/lr + l2)``; the update is the
    change of ``w`` that a gradient causes. With one worker this is FTRL exactly, to rounding; with several the
    parameters are the mean of the workers' trajectories. Parameters are assumed to start at 0. Rows that the minibatch
    does not touch are not changed, not even by the model's penalty.

    Parameters
    ----------
    learning_rate : float, optional
        The paper's alpha, greater than 0. None: chosen when a run starts.
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
        self._check(learning_rate=POSITIVE, beta=AT_LEAST_ZERO, l1=AT_LEAST_ZERO, l2=AT_LEAST_ZERO)
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
        """Constant: the rates per coordinate fall with ``n``."""
        return self._known_rate

    def _kernel(self, step: int, scale: float) -> Kernel:
        return ftrl_update, (scale, self.rate(step), self.beta, self.l1, self.l2)

    def __str__(self) -> str:
        penalties = "".join(f", {name} {getattr(self, name):g}" for name in ("l1", "l2") if getattr(self, name))
        return f"FTRL {self._shown_rate}{penalties}"
