"""The rest of a run, projected by its loss curve: steps, time and cost at any number of workers. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ...money import Rates
from .curve_ensemble import Mixture, mix
from .curve_fit import LEAST_POINTS, NEWEST, Curve, fit
from .efficiency import StatisticalEfficiency, fit_efficiency
from .least_squares import Float64
from .loss_history import History, Judged
from .pace import horizon
from .step_times import KeptStepTimes

#: Number of newest step times that are averaged.
RECENT = 400
#: A step with one worker less is never predicted to take less than this share of the present time.
LEAST_SHARE = 0.6
#: Records whose mean is taken as the loss at the start.
FIRST_STEPS = 5
#: The fit includes steps with all workers, to learn the effect of fewer, until these are a smaller share of all steps.
LEAST_BEFORE = 0.1
#: A removal breaks the target if it lowers the probability of reaching it by more than this share.
MOST_RISK = 0.05
#: A projected loss is reliable if half of its 80 % interval is at most this share of it: the paper's bound on the error
#: of its curves.
SURE = 0.015
#: The knee is past when the curve's slope is at most this share of its mean over the whole run. By definition the share
#: is 1 at the knee, but early in a run its end is not well known.
KNEE_SLOPE = 0.75


@dataclass(frozen=True)
class Prices:
    """Dollars per second: of one worker, and of everything that does not depend on the number of workers."""

    worker_usd_s: float
    fixed_usd_s: float

    @classmethod
    def of(cls, rates: Rates) -> Prices:
        """The prices of a job: one worker; supervisor and servers together."""
        return cls(rates.function_usd_s, rates.function_usd_s + rates.servers_usd_s)

    def usd_s(self, n_workers: int) -> float:
        """Dollars per second with ``n_workers`` workers."""
        return n_workers * self.worker_usd_s + self.fixed_usd_s


class Rest(NamedTuple):
    """The rest of the run: steps (infinite if no end is predicted), seconds, dollars."""

    steps: float
    time_s: float
    usd: float


class StepTimes:
    """Mean step time by number of workers: measured, or extrapolated from the measured ones.

    A step with fewer workers, each with as many rows and fewer updates to read, does not take longer. If the present
    number of workers measures longer, the machines have become slower, and earlier measurements are raised to it.
    """

    def __init__(self) -> None:
        self._measured: dict[int, float] = {}
        self._present = 0

    def measure(self, history: History, first: int) -> None:
        """Measure the step time of the rows from ``first`` on, which had the present number of workers."""
        step_s = history.step_s(max(first, history.n - RECENT))
        if math.isfinite(step_s) and step_s > 0:
            self._present = int(history.last("n_workers"))
            self._measured[self._present] = step_s

    def at(self, n_workers: int) -> float:
        """Seconds of a step with ``n_workers`` workers; before the first removal, the present step time."""
        if n_workers in self._measured:
            return max(self._measured[n_workers], self._measured[self._present] if self._present <= n_workers else 0.0)
        known = sorted(n for n in self._measured if n > n_workers)
        if not known:
            return math.nan
        near = self.at(known[0])
        if len(known) < 2:
            return near
        # The gain of one removal may be large by chance, when the minibatches happen to divide evenly: the smaller of
        # the newest gain and the mean gain is used.
        per_worker = min((self.at(n) - near) / (n - known[0]) for n in (known[1], known[-1]))
        return max(near - per_worker * (known[0] - n_workers), LEAST_SHARE * near)


class Projection:
    """The projected end of the run, by its stop rules and the curve through its newest losses.

    Parameters
    ----------
    history : History
    stop : dict
        Fields of ``Stop``.
    prices : Prices
    times : StepTimes
    efficiency : StatisticalEfficiency
        The previous estimate of the effect of fewer workers.

    Attributes
    ----------
    curve : Curve or None
        The loss of the run with all its workers, over effective steps: steps of all workers with the same progress.
    efficiency : StatisticalEfficiency
        The new estimate.
    """

    def __init__(
        self,
        history: History,
        stop: dict[str, Any],
        prices: Prices,
        times: StepTimes | KeptStepTimes,
        efficiency: StatisticalEfficiency,
    ) -> None:
        self._history, self._stop, self.prices, self._times = history, stop, prices, times
        self.judged = judged = history.judged
        self.efficiency = efficiency
        self.curve: Curve | None = None
        self.step = self.moved = history.last("step")
        self.n_workers = int(history.last("n_workers"))
        if not history.is_finite or not len(judged.steps):
            return
        workers = history.column("n_workers")
        at = np.searchsorted(history.column("step"), judged.steps)
        lost = efficiency.lost_by(workers[at])
        self._numbers, n_steps = _phases(workers)
        if self.keeps:
            self._lost, self._n_steps = lost, n_steps[at]
            self.curve = fit(*judged[:2], "reference")
            return
        first = self._first_fitted(workers)
        fall = float(history.column("loss")[:FIRST_STEPS].mean() - judged.losses[-FIRST_STEPS:].mean())
        self._lost, self._n_steps = lost, n_steps[at]
        self.curve, self.efficiency = fit_efficiency(
            judged.steps[first:],
            judged.losses[first:],
            lost[first:],
            self._numbers,
            self._n_steps[first:],
            fall,
            efficiency,
        )
        self.moved = max(self.step - float(self.efficiency.behind(self._numbers, n_steps[-1:])[0]), 1.0)

    @property
    def keeps(self) -> bool:
        """Whether the global minibatch is constant when workers leave, so that fewer workers make the same steps."""
        return isinstance(self._times, KeptStepTimes)

    def _first_fitted(self, workers: Any) -> int:
        """The first fitted record: of the newest part, extended for some time to steps of all workers."""
        judged, steps = self.judged, self._history.column("step")
        newest = min(int(len(judged.steps) * (1 - NEWEST)), max(len(judged.steps) - 2 * LEAST_POINTS, 0))
        fewer = np.flatnonzero(workers < workers[0])
        if len(fewer) and steps[fewer[0]] > LEAST_BEFORE * self.step:
            newest = min(newest, int(np.searchsorted(judged.steps, (1 - NEWEST) * steps[fewer[0]])))
        return newest

    @property
    def effective(self) -> Judged:
        """The losses that all workers would have reached, over effective steps."""
        judged, efficiency = self.judged, self.efficiency
        steps = judged.steps - efficiency.behind(self._numbers, self._n_steps)
        return Judged(steps, judged.losses - efficiency.noise * self._lost, judged.is_validation)

    @cached_property
    def mixture(self) -> Mixture | None:
        """The ensemble of curves through the losses; None if these are too few."""
        return mix(*self.effective[:2]) if self.curve is not None else None

    @cached_property
    def horizon(self) -> float:
        """How many steps ahead the curves may be extrapolated; 0 without a curve."""
        return horizon(*self.effective[:2]) if self.curve is not None else 0.0

    def is_reliable(self, steps: float, n_workers: int) -> bool:
        """Whether the projected loss after ``steps`` more steps with ``n_workers`` workers is reliable.

        The step must be within the horizon, and the weighted curves of the ensemble must agree with the best fit up to
        `SURE`.
        """
        ahead = steps * self.efficiency.pace(n_workers)
        if self.curve is None or self.mixture is None or ahead > self.horizon:
            return False
        there = self.moved + ahead
        return self.mixture.spread(there, self.curve.at(there)) <= SURE

    def reliable_steps(self, steps: float, n_workers: int) -> float:
        """How many of ``steps`` more steps with ``n_workers`` workers have a reliable loss; found by bisection."""
        seen, beyond = 0.0, min(steps, self.horizon / self.efficiency.pace(n_workers))
        if self.is_reliable(beyond, n_workers):
            return beyond
        for _ in range(5):
            middle = (seen + beyond) / 2
            seen, beyond = (middle, beyond) if self.is_reliable(middle, n_workers) else (seen, middle)
        return seen

    def current(self, first: int) -> Curve | None:
        """The paper's ``l_p``, fitted to the losses since row ``first``, the newest removal; None if they are too few.

        With no removal (0) it is fitted to the newest part, like the reference.
        """
        if not first:
            return fit(*self.judged[:2], "current")
        since = self.judged.since(float(self._history.column("step")[first]))
        return fit(*since[:2], "current", 1.0) if len(since.steps) >= 2 * LEAST_POINTS else None

    @property
    def step_s(self) -> float:
        """Seconds of a step with the present number of workers."""
        return self._times.at(self.n_workers)

    @property
    def target(self) -> float | None:
        """The target loss that ends the run, None without one."""
        return self._stop.get("target")

    @property
    def gap(self) -> float | None:
        """How far the loss is above the target now, by the curve; None without a target or a curve."""
        if self.target is None or self.curve is None:
            return None
        return self.loss_in(0, self.n_workers) - self.target

    @property
    def confirmations(self) -> int:
        """Evaluations in a row that must reach the target."""
        return int(self._stop.get("confirmations") or 1)

    def loss_in(self, steps: float, n_workers: int) -> float:
        """The projected loss after ``steps`` more steps with ``n_workers`` workers; needs a curve."""
        assert self.curve is not None
        moved = self.moved + steps * self.efficiency.pace(n_workers)
        return self.curve.at(moved) + self.efficiency.worse_by(n_workers)

    def steps_to(self, loss: float, n_workers: int, z: float = 0.0) -> float:
        """Steps from now until ``loss`` with ``n_workers`` workers; infinite if the curve does not reach it.

        The effect of fewer workers is taken ``z`` standard deviations above its estimate.
        """
        if self.curve is None:
            return math.inf
        there = self.curve.steps_to(loss - self.efficiency.worse_by(n_workers, z), self.moved + 1)
        return (there - self.moved) / self.efficiency.pace(n_workers, z)

    def steps_left(self, n_workers: int) -> float:
        """Steps until a rule other than the target ends the run; infinite without such a rule."""
        left = math.inf
        if self._stop.get("steps") is not None:
            left = self._stop["steps"] - self.step
        if self._stop.get("epochs") is not None and self.step > 0:
            taken = self.step if self.keeps else float(np.sum(self._history.column("n_workers")))
            per_turn = self._history.last("epoch") / max(taken, 1.0)  # epochs per step, or per worker's minibatch
            per_step = per_turn if self.keeps else per_turn * n_workers
            left = min(left, (self._stop["epochs"] - self._history.last("epoch")) / max(per_step, 1e-12))
        if self._stop.get("time_s") is not None:
            step_s = self._times.at(n_workers)
            left = min(left, (self._stop["time_s"] - self._history.last("time_s")) / step_s)
        return max(left, 0.0)

    def steps_to_end(self, n_workers: int) -> float:
        """Steps to the target, or without a target to the rule that ends the run; infinite if that is unknown."""
        return self.steps_left(n_workers) if self.target is None else self.steps_to(self.target, n_workers)

    @property
    def is_past_knee(self) -> bool:
        """Whether the loss now falls more slowly than the mean over the whole run; True if its end is unknown.

        At that step a convex curve is farthest below the chord from its start to its end.
        """
        judged, steps = self.judged, self.steps_to_end(self.n_workers)
        if self.curve is None or not math.isfinite(steps):
            return True
        fall = float(judged.losses[0]) - self.loss_in(steps, self.n_workers)
        slope = self.loss_in(0, self.n_workers) - self.loss_in(1, self.n_workers)
        return slope * (self.step + steps - float(judged.steps[0])) <= KNEE_SLOPE * fall

    def rest(self, n_workers: int, z: float = 0.0) -> Rest:
        """The rest of the run with ``n_workers`` workers, ``z`` as in `steps_to`."""
        step_s = self._times.at(n_workers)
        steps = self.steps_left(n_workers)
        if self.target is not None:
            steps = min(steps, self.steps_to(self.target, n_workers, z))
        time_s = steps * step_s
        return Rest(steps, time_s, time_s * self.prices.usd_s(n_workers))

    def breaks_target(self, n_workers: int, z: float) -> bool:
        """Whether a removal down to ``n_workers`` workers may put the target out of reach.

        True if the probability that the loss's floor is below the target falls by more than `MOST_RISK` (the effect of
        fewer workers taken with ``z`` standard deviations), or if another rule would end the run before.
        """
        if self.target is None or self.curve is None:
            return self.target is not None
        steps = self.steps_to(self.target, n_workers)
        if not math.isfinite(steps) or steps > self.steps_left(n_workers):
            return True
        now, then = self.efficiency.worse_by(self.n_workers), self.efficiency.worse_by(n_workers, z)
        floor, sd = self.curve.floor, max(self.curve.floor_sd, 1e-12)
        reachable = _normal((self.target - now - floor) / sd)
        return _normal((self.target - then - floor) / sd) < (1 - MOST_RISK) * reachable


def _phases(workers: Float64) -> tuple[Float64, Float64]:
    """The numbers of workers so far, (k,), and the steps with each of them until each row, (n, k)."""
    begins = np.flatnonzero(np.diff(workers, prepend=workers[0] + 1))
    ends = np.append(begins[1:], len(workers))
    rows = np.arange(1.0, len(workers) + 1)[:, None]
    return workers[begins], np.clip(rows - begins, 0, ends - begins)


def _normal(z: float) -> float:
    """The standard normal distribution function."""
    return 0.5 * math.erfc(-z / math.sqrt(2))
