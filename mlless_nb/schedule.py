"""When the learning rate falls: a pure state machine over validation losses. Every worker runs one and has one rate.

While the validation loss falls the rate stays. Once it has not fallen for two epochs the steps are too long for what is
left to learn, or begin to learn the noise: the rate is then cut, a few times in all. When the loss does not fall at the
lowest rate either, the descent has settled.

A factorisation rests on a plateau before its main descent, while its factors emerge from their random start: to cut the
rate there would be to stay there. Until they have emerged it waits for much longer.
"""

from __future__ import annotations

import math

#: What a job may ask for.
SCHEDULES = ("auto", "constant")
#: The rate is cut to this share of itself,
CUT = 0.3
#: so many times at most.
CUTS = 3
#: A loss that is lower by less than this share of the best one has not fallen.
LEAST_FALL = 1e-4
#: The rate is cut when the loss has not fallen for so many epochs, steps and evaluations, all of them.
PATIENCE_EPOCHS, PATIENCE_STEPS, PATIENCE_EVALUATIONS = 2.0, 100, 2
#: So many times as long where factors have not emerged yet.
PLATEAU_PATIENCE = 10
#: At a rate that is never cut the descent has settled after so many times as long.
CONSTANT_PATIENCE = 5


class Schedule:
    """The factor of the learning rate, told by the validation losses so far.

    Parameters
    ----------
    kind : {"auto", "constant"}
        Whether the rate is cut; where it is not, the factor is always 1.
    factor : float
        To begin with, where an earlier run has cut the rate.

    Attributes
    ----------
    factor : float
        What the learning rate is multiplied by from the next step on.
    is_settled : bool
        Whether the loss falls no more, at the lowest rate that there is.
    """

    def __init__(self, kind: str, factor: float = 1.0) -> None:
        self.factor, self.is_settled = factor if kind == "auto" else 1.0, False
        self._cuts_left = max(CUTS - round(math.log(self.factor, CUT)), 0) if kind == "auto" else 0
        self._patience = 1 if kind == "auto" else CONSTANT_PATIENCE
        self._lowest = math.inf
        self._fell_at = (0, 0.0)  # step and epoch
        self._n_since = 0

    def observe(self, step: int, epoch: float, loss: float, *, has_emerged: bool = True) -> float:
        """Take in the validation loss that was told with ``step`` (1-based), ``epoch`` passes into the training rows.

        ``has_emerged`` is that of the model, see `models.base.Model`. Returns ``factor``.
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

    def _wait_from(self, step: int, epoch: float) -> None:
        self._fell_at, self._n_since = (step, epoch), 0
