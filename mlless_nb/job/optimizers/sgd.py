"""SGD, plain or with momentum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...errors import JobError
from ...kernels import momentum_update, sgd_update
from ...validation import specification
from .base import AT_LEAST_ZERO, BELOW_ONE, POSITIVE, DecayingOptimizer, Kernel


@specification
@dataclass(frozen=True)
class SGD(DecayingOptimizer):
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
        Do not change rows that the minibatch did not touch; "auto": only if these are more than 3/4 of the table.
    per_sample : bool
        Step after every rating of a minibatch instead of once per minibatch, each at the full learning rate: the
        sequential SGD of matrix factorisation libraries. PMF only, without momentum.

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
        self._check(learning_rate=POSITIVE, momentum=BELOW_ONE, decay=AT_LEAST_ZERO)
        self._check_flags("nesterov", "per_sample")
        self._check_lazy()
        if self.nesterov and not self.momentum:
            raise JobError("SGD.nesterov", self.nesterov, "False where momentum is 0")
        if self.per_sample and self.momentum:
            raise JobError("SGD.per_sample", self.per_sample, "False where there is momentum")

    @property
    def state_names(self) -> tuple[str, ...]:
        """The velocity, where there is momentum."""
        return ("velocity",) if self.momentum else ()

    def moves_untouched(self, l2: float) -> bool:
        """True with momentum or a penalty, unless lazy."""
        return self.lazy is not True and (self.momentum != 0 or l2 != 0)

    def _kernel(self, step: int, scale: float) -> Kernel:
        rate = scale * self.rate(step)
        return (momentum_update, (rate, self.momentum, self.nesterov)) if self.momentum else (sgd_update, (rate,))

    def __str__(self) -> str:
        momentum = f", {'Nesterov ' if self.nesterov else ''}momentum {self.momentum:g}" if self.momentum else ""
        return f"SGD {self._shown_rate}{momentum}{', per sample' if self.per_sample else ''}{self._suffix}"
