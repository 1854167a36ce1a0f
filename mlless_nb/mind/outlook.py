"""What is left of a run, by its curve: steps to its end, and what they take at another number of workers. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .curves import Curve, fit
from .history import History

#: Step times that are averaged at most, the newest.
RECENT = 400
#: The least share of a step's time that one worker less is expected to leave, by what was measured.
LEAST_SHARE = 0.6
#: The likelihood of losing the target from which on a removal counts as breaking it.
MOST_RISK = 0.05


@dataclass(frozen=True)
class Prices:
    """Dollars a second: of one worker, and of all that does not depend on their number."""

    worker_usd_s: float
    fixed_usd_s: float

    def usd_s(self, n_workers: int) -> float:
        """Dollars a second with ``n_workers`` workers."""
        return n_workers * self.worker_usd_s + self.fixed_usd_s


class Rest(NamedTuple):
    """What is left of the run: steps (infinite where the goal is not in sight), seconds, dollars."""

    steps: float
    time_s: float
    usd: float


class StepTimes:
    """Mean step time by number of workers, as measured; others are told from the two numbers measured last."""

    def __init__(self) -> None:
        self._measured: dict[int, float] = {}

    def measure(self, history: History, first: int) -> None:
        """Take the step time of the rows from ``first`` on, which had the present number of workers."""
        step_s = history.step_s(max(first, history.n - RECENT))
        if math.isfinite(step_s) and step_s > 0:
            self._measured[int(history.last("n_workers"))] = step_s

    def at(self, n_workers: int) -> float:
        """Seconds of a step with ``n_workers`` workers; before a removal was measured, those with one more."""
        if n_workers in self._measured:
            return self._measured[n_workers]
        known = sorted(count for count in self._measured if count > n_workers)
        if not known:
            return math.nan
        near = known[0]
        if len(known) < 2:
            return self._measured[near]
        per_worker = (self._measured[known[1]] - self._measured[near]) / (known[1] - near)
        told = self._measured[near] - per_worker * (near - n_workers)
        return min(max(told, LEAST_SHARE * self._measured[near]), self._measured[near])


class Outlook:
    """The end of the run, as its stop rules and the curve through its newest losses have it.

    Parameters
    ----------
    history : History
    stop : dict
        Fields of ``Stop``.
    prices : Prices
    times : StepTimes
    """

    def __init__(self, history: History, stop: dict[str, Any], prices: Prices, times: StepTimes) -> None:
        self._history, self._stop, self.prices, self._times = history, stop, prices, times
        judged = history.judged
        self.judged = judged
        self.curve: Curve | None = fit(judged.steps, judged.losses, "reference") if history.is_finite else None
        self.step = history.last("step")
        self.n_workers = int(history.last("n_workers"))

    @property
    def step_s(self) -> float:
        """Seconds of a step now."""
        return self._times.at(self.n_workers)

    @property
    def target(self) -> float | None:
        """The loss that ends the run, None where none does."""
        return self._stop.get("target")

    def steps_to(self, loss: float) -> float:
        """Steps from now to ``loss``; infinite where the curve does not come down to it."""
        if self.curve is None:
            return math.inf
        return self.curve.steps_to(loss, self.step + 1) - self.step

    def steps_left(self, n_workers: int) -> float:
        """Steps until a rule other than the target ends the run; infinite where none says so."""
        left = math.inf
        if self._stop.get("steps") is not None:
            left = self._stop["steps"] - self.step
        if self._stop.get("epochs") is not None and self.step > 0:
            taken = float(np.sum(self._history.column("n_workers")))
            per_turn = self._history.last("epoch") / max(taken, 1.0)  # epochs that one worker's step makes
            left = min(left, (self._stop["epochs"] - self._history.last("epoch")) / max(per_turn * n_workers, 1e-12))
        if self._stop.get("time_s") is not None:
            step_s = self._times.at(n_workers)
            left = min(left, (self._stop["time_s"] - self._history.last("time_s")) / step_s)
        return max(left, 0.0)

    def rest(self, n_workers: int, worse_by: float = 0.0) -> Rest:
        """What is left with ``n_workers`` workers whose losses lie ``worse_by`` above the curve."""
        step_s = self._times.at(n_workers)
        steps = self.steps_left(n_workers)
        if self.target is not None:
            steps = min(steps, self.steps_to(self.target - worse_by))
        time_s = steps * step_s
        return Rest(steps, time_s, time_s * self.prices.usd_s(n_workers))

    def breaks_target(self, n_workers: int, worse_by: float) -> bool:
        """Whether a target that is in reach now may not be with ``n_workers`` workers, losses ``worse_by`` higher.

        It may where so much of what is likely for the curve's floor would then lie above the target, and where another
        rule would end the run before.
        """
        if self.target is None or self.curve is None:
            return self.target is not None
        steps = self.steps_to(self.target - worse_by)
        if not math.isfinite(steps) or steps > self.steps_left(n_workers):
            return True
        floor, sd = self.curve.floor, max(self.curve.floor_sd, 1e-12)
        in_reach = _normal((self.target - floor) / sd)
        return _normal((self.target - worse_by - floor) / sd) < (1 - MOST_RISK) * in_reach


def _normal(z: float) -> float:
    """The standard normal distribution function."""
    return 0.5 * math.erfc(-z / math.sqrt(2))
