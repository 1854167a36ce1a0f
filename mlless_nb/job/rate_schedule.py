"""The learning-rate schedule: a pure state machine over validation losses. Every worker runs one; all agree.

While the validation loss falls the learning rate stays. When the loss has not fallen for two epochs, the steps are too
long or fit noise: the rate is then cut, a few times in all. When the loss does not fall at the lowest rate either, the
descent has settled.

A factorisation stays on a plateau before its main descent, while its factors emerge from their random start. A cut
there would keep it there, so the schedule waits much longer until the factors have emerged.
"""

from __future__ import annotations

import math
from typing import Any

#: Valid values of a job's ``schedule``.
SCHEDULES = ("auto", "constant")
#: A cut multiplies the rate by this factor.
CUT = 0.3
#: Most cuts of a run.
CUTS = 3
#: A loss has fallen if it is lower than the best one by at least this share of it.
LEAST_FALL = 1e-4
#: The rate is cut when the loss has not fallen for this many epochs, and steps, and evaluations.
PATIENCE_EPOCHS, PATIENCE_STEPS, PATIENCE_EVALUATIONS = 2.0, 100, 2
#: Factor of the patience while a factorisation's factors have not emerged.
PLATEAU_PATIENCE = 10
#: Factor of the patience after which the descent has settled with a constant rate.
CONSTANT_PATIENCE = 5


class Schedule:
    """The factor of the learning rate, as a function of the validation losses so far.

    Parameters
    ----------
    kind : {"auto", "constant"}
        Whether the rate is cut; under "constant" the factor is always 1.
    factor : float
        Initial factor, below 1 if an earlier run has cut the rate.

    Attributes
    ----------
    factor : float
        Factor of the learning rate from the next step on.
    is_settled : bool
        Whether the loss no longer falls at the lowest rate.
    """

    def __init__(self, kind: str, factor: float = 1.0) -> None:
        self.factor, self.is_settled = factor if kind == "auto" else 1.0, False
        self._cuts_left = max(CUTS - round(math.log(self.factor, CUT)), 0) if kind == "auto" else 0
        self._patience = 1 if kind == "auto" else CONSTANT_PATIENCE
        self._lowest = math.inf
        self._fell_at = (0, 0.0)  # step and epoch
        self._n_since = 0

    def observe(self, step: int, epoch: float, loss: float, *, has_emerged: bool = True) -> float:
        """Take in the validation loss reported with ``step`` (1-based), after ``epoch`` passes over the training rows.

        ``has_emerged`` comes from the model, see `models.base.Model`. Returns ``factor``.
        """
        if loss < self._lowest * (1.0 - LEAST_FALL):
            self._lowest = loss
            self._wait_from(step, epoch)
            return self.factor
        self._n_since += 1
        least = (PATIENCE_STEPS, PATIENCE_EPOCHS, PATIENCE_EVALUATIONS)
        waited = (step - self._fell_at[0], epoch - self._fell_at[1] + 1e-9, self._n_since)
        times = self._patience * (1 if has_emerged else PLATEAU_PATIENCE)
        if all(length >= times * patience for length, patience in zip(waited, least, strict=True)):
            if self._cuts_left:
                self._cuts_left -= 1
                self.factor *= CUT
                self._wait_from(step, epoch)
            else:
                self.is_settled = True
        return self.factor

    def state(self) -> list[Any]:
        """What the losses so far have left, as JSON."""
        return [self.factor, self.is_settled, self._cuts_left, self._lowest, *self._fell_at, self._n_since]

    def resume(self, state: list[Any]) -> None:
        """Go on from a `state`."""
        self.factor, self.is_settled, self._cuts_left, self._lowest, step, epoch, self._n_since = state
        self._fell_at = (step, epoch)

    def _wait_from(self, step: int, epoch: float) -> None:
        self._fell_at, self._n_since = (step, epoch), 0
