"""Overfitting: a state machine that advises the user when the validation loss has stopped falling."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

#: Least evaluations since the best one before the user is advised.
LEAST_EVALUATIONS = 5
#: Least epochs since the best evaluation: an absolute number, and a share of the epochs before it.
LEAST_EPOCHS, SHARE_OF_BEST = 1.0, 0.25
#: The advice is repeated for the same best evaluation when the run's cost has grown by this factor.
AGAIN = 1.5
#: Advice is given only if the remaining cost is at least this share of the cost so far.
WORTH_TELLING = 0.02


class Evaluation(NamedTuple):
    """The held-out rows' loss after a step (1-based), ``time_s`` seconds since the functions were invoked."""

    step: int
    epoch: float
    time_s: float
    loss: float


class Overfitting:
    """Advises when the validation loss has not improved for long: what a stop now would keep and save.

    Parameters
    ----------
    stop : dict
        Fields of ``Stop``, to estimate when the run ends.
    """

    def __init__(self, stop: dict[str, Any]) -> None:
        self._stop = stop
        self._best: Evaluation | None = None
        self._newest: Evaluation | None = None
        self._n_since_best = 0
        self._told_at_usd: float | None = None  # cost at the newest advice on the present best

    def observe(self, evaluation: Evaluation) -> None:
        """Take in one evaluation; they come in the order of their steps."""
        self._newest = evaluation
        if self._best is None or evaluation.loss < self._best.loss:
            self._best, self._n_since_best, self._told_at_usd = evaluation, 0, None
        else:
            self._n_since_best += 1

    def advise(self, spent_usd: float, rate_usd_s: float, cap_usd: float | None) -> str | None:
        """A sentence when one is due: once per best evaluation, and again when much more was spent since.

        Parameters
        ----------
        spent_usd : float
            Everything billed so far, US dollars.
        rate_usd_s : float
            Dollars per second with the present number of workers.
        cap_usd : float or None
            The budget.
        """
        best, newest = self._best, self._newest
        if best is None or newest is None or self._n_since_best < LEAST_EVALUATIONS:
            return None
        if newest.epoch - best.epoch < max(LEAST_EPOCHS, SHARE_OF_BEST * best.epoch):
            return None
        if self._told_at_usd is not None and spent_usd < AGAIN * self._told_at_usd:
            return None
        left_usd = self._left_usd(best, newest, spent_usd, rate_usd_s, cap_usd)
        if left_usd is not None and left_usd < WORTH_TELLING * spent_usd:
            return None
        self._told_at_usd = spent_usd
        saves = f" and saves {_dollars(left_usd)}" if left_usd else ""
        return f"No better since epoch {_epoch(best.epoch)}: a stop now keeps {best.loss:.4f}{saves}"

    def _left_usd(
        self, best: Evaluation, newest: Evaluation, spent_usd: float, rate_usd_s: float, cap_usd: float | None
    ) -> float | None:
        """Dollars that the run would still spend until its first stop rule or its budget; None if unknown."""
        seconds = newest.time_s - best.time_s  # only since the best one, since workers may have left before
        left_s = []
        for rule, now, gained in (
            ("steps", newest.step, newest.step - best.step),
            ("epochs", newest.epoch, newest.epoch - best.epoch),
            ("patience", self._n_since_best, self._n_since_best),
            ("time_s", newest.time_s, seconds),
        ):
            end = self._stop.get(rule)
            if end is not None:
                left_s.append(max(end - now, 0.0) * seconds / gained)
        left_usd = [rate_usd_s * min(left_s)] if left_s else []
        if cap_usd is not None:
            left_usd.append(max(cap_usd - spent_usd, 0.0))
        return min(left_usd, default=None)


def _epoch(epoch: float) -> str:
    return f"{epoch:.1f}" if epoch < 10 else f"{epoch:.0f}"


def _dollars(usd: float) -> str:
    """Dollars with two significant digits, and at least cents: $0.002, $0.35, $12.00."""
    decimals = min(max(1 - math.floor(math.log10(usd)), 2), 9)
    text = f"${usd:,.{decimals}f}"
    return text.rstrip("0") if decimals > 2 else text
