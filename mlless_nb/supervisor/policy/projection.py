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

#: Step times that are averaged at most, the newest.
RECENT = 400
#: The least share of a step's time that one worker less is expected to leave, by what was measured.
LEAST_SHARE = 0.6
#: Records whose mean stands for the loss at the start.
FIRST_STEPS = 5
#: The curve covers some steps with all workers until the run has so many times those, as a share: what fewer cost is
#: learnt from that.
LEAST_BEFORE = 0.1
#: The likelihood of losing the target from which on a removal counts as breaking it.
MOST_RISK = 0.05
#: Half of an 80 % interval, as a share of the loss, up to which a loss ahead is relied on: the error that the paper has
#: its curves stay below.
SURE = 0.015
#: Slope of the curve, as a share of its mean over the whole run, from which on the run's knee is past. It is where the
#: share is 1; but the end of the run is not known well when it has just begun.
KNEE_SLOPE = 0.75


@dataclass(frozen=True)
class Prices:
    """Dollars a second: of one worker, and of all that does not depend on their number."""

    worker_usd_s: float
    fixed_usd_s: float

    @classmethod
    def of(cls, rates: Rates) -> Prices:
        """The prices of a job: its workers; its supervisor and servers."""
        return cls(rates.function_usd_s, rates.function_usd_s + rates.servers_usd_s)

    def usd_s(self, n_workers: int) -> float:
        """Dollars a second with ``n_workers`` workers."""
        return n_workers * self.worker_usd_s + self.fixed_usd_s


class Rest(NamedTuple):
    """What is left of the run: steps (infinite where the goal is not in sight), seconds, dollars."""

    steps: float
    time_s: float
    usd: float


class StepTimes:
    """Mean step time by number of workers, as measured; others are told from those.

    A barrier of fewer workers, each with as much to do and less to read, does not take longer. While the present number
    seems to, the machines have become slower, for however many: those that were measured before would take as long.
    """

    def __init__(self) -> None:
        self._measured: dict[int, float] = {}
        self._present = 0

    def measure(self, history: History, first: int) -> None:
        """Take the step time of the rows from ``first`` on, which had the present number of workers."""
        step_s = history.step_s(max(first, history.n - RECENT))
        if math.isfinite(step_s) and step_s > 0:
            self._present = int(history.last("n_workers"))
            self._measured[self._present] = step_s

    def at(self, n_workers: int) -> float:
        """Seconds of a step with ``n_workers`` workers; before a removal was measured, those with one more."""
        if n_workers in self._measured:
            return max(self._measured[n_workers], self._measured[self._present] if self._present <= n_workers else 0.0)
        known = sorted(n for n in self._measured if n > n_workers)
        if not known:
            return math.nan
        near = self.at(known[0])
        if len(known) < 2:
            return near
        # Steps become quicker by leaps too, where the leavers' data is shared out evenly: no more is counted on than
        # since the last removal, and than on the average of all.
        per_worker = min((self.at(n) - near) / (n - known[0]) for n in (known[1], known[-1]))
        return max(near - per_worker * (known[0] - n_workers), LEAST_SHARE * near)


class Projection:
    """The end of the run, as its stop rules and the curve through its newest losses have it.

    Parameters
    ----------
    history : History
    stop : dict
        Fields of ``Stop``.
    prices : Prices
    times : StepTimes
    effort : Effort
        What fewer workers cost, as it was known before.

    Attributes
    ----------
    curve : Curve or None
        Of the run with all its workers, over its effective steps: those of all workers that would have come as far.
    effort : Effort
        As it is known now.
    """

    def __init__(
        self,
        history: History,
        stop: dict[str, Any],
        prices: Prices,
        times: StepTimes | KeptStepTimes,
        effort: StatisticalEfficiency,
    ) -> None:
        self._history, self._stop, self.prices, self._times = history, stop, prices, times
        self.judged = judged = history.judged
        self.effort = effort
        self.curve: Curve | None = None
        self.step = self.moved = history.last("step")
        self.n_workers = int(history.last("n_workers"))
        if not history.is_finite or not len(judged.steps):
            return
        workers = history.column("n_workers")
        at = np.searchsorted(history.column("step"), judged.steps)
        lost = effort.lost_by(workers[at])
        self._numbers, n_steps = _phases(workers)
        if self.keeps:
            self._lost, self._n_steps = lost, n_steps[at]
            self.curve = fit(*judged[:2], "reference")
            return
        first = self._first_fitted(workers)
        fall = float(history.column("loss")[:FIRST_STEPS].mean() - judged.losses[-FIRST_STEPS:].mean())
        self._lost, self._n_steps = lost, n_steps[at]
        self.curve, self.effort = fit_efficiency(
            judged.steps[first:],
            judged.losses[first:],
            lost[first:],
            self._numbers,
            self._n_steps[first:],
            fall,
            effort,
        )
        self.moved = max(self.step - float(self.effort.behind(self._numbers, n_steps[-1:])[0]), 1.0)

    @property
    def keeps(self) -> bool:
        """Whether the global minibatch stays when workers leave: then fewer make the same steps."""
        return isinstance(self._times, KeptStepTimes)

    def _first_fitted(self, workers: Any) -> int:
        """The first judged record that is fitted: one of the newest, or for some time one with all workers."""
        judged, steps = self.judged, self._history.column("step")
        newest = min(int(len(judged.steps) * (1 - NEWEST)), max(len(judged.steps) - 2 * LEAST_POINTS, 0))
        fewer = np.flatnonzero(workers < workers[0])
        if len(fewer) and steps[fewer[0]] > LEAST_BEFORE * self.step:
            newest = min(newest, int(np.searchsorted(judged.steps, (1 - NEWEST) * steps[fewer[0]])))
        return newest

    @property
    def effective(self) -> Judged:
        """The losses that all workers would have made, over the steps in which they would have made them."""
        judged, effort = self.judged, self.effort
        steps = judged.steps - effort.behind(self._numbers, self._n_steps)
        return Judged(steps, judged.losses - effort.noise * self._lost, judged.is_validation)

    @cached_property
    def mixture(self) -> Mixture | None:
        """All curves that go with the losses; None where those are too few."""
        return mix(*self.effective[:2]) if self.curve is not None else None

    @cached_property
    def horizon(self) -> float:
        """How many steps ahead its curves may be read; 0 where there is none."""
        return horizon(*self.effective[:2]) if self.curve is not None else 0.0

    def is_reliable(self, steps: float, n_workers: int) -> bool:
        """Whether the loss after so many more steps with ``n_workers`` workers is relied on.

        It must be within reach, and closely known: the curves that go with the losses so far, each by its weight, agree
        with the best one, up to `SURE`.
        """
        ahead = steps * self.effort.pace(n_workers)
        if self.curve is None or self.mixture is None or ahead > self.horizon:
            return False
        there = self.moved + ahead
        return self.mixture.spread(there, self.curve.at(there)) <= SURE

    def reliable_steps(self, steps: float, n_workers: int) -> float:
        """How far ahead losses are relied on, of so many more steps with ``n_workers`` workers; to a 32nd."""
        seen, beyond = 0.0, min(steps, self.horizon / self.effort.pace(n_workers))
        if self.is_reliable(beyond, n_workers):
            return beyond
        for _ in range(5):
            middle = (seen + beyond) / 2
            seen, beyond = (middle, beyond) if self.is_reliable(middle, n_workers) else (seen, middle)
        return seen

    def current(self, first: int) -> Curve | None:
        """The paper's ``l_p``, through the losses since row ``first``, a removal; None where they are too few.

        With no removal it is through the newest part, as the reference is.
        """
        if not first:
            return fit(*self.judged[:2], "current")
        since = self.judged.since(float(self._history.column("step")[first]))
        return fit(*since[:2], "current", 1.0) if len(since.steps) >= 2 * LEAST_POINTS else None

    @property
    def step_s(self) -> float:
        """Seconds of a step now."""
        return self._times.at(self.n_workers)

    @property
    def target(self) -> float | None:
        """The loss that ends the run, None where none does."""
        return self._stop.get("target")

    @property
    def gap(self) -> float | None:
        """What the loss has yet to fall to the target by the newest losses, None without a target or a curve."""
        if self.target is None or self.curve is None:
            return None
        return self.loss_in(0, self.n_workers) - self.target

    @property
    def confirmations(self) -> int:
        """Evaluations in a row that must reach the target."""
        return int(self._stop.get("confirmations") or 1)

    def loss_in(self, steps: float, n_workers: int) -> float:
        """The loss after so many more steps with ``n_workers`` workers; there must be a curve."""
        assert self.curve is not None
        moved = self.moved + steps * self.effort.pace(n_workers)
        return self.curve.at(moved) + self.effort.worse_by(n_workers)

    def steps_to(self, loss: float, n_workers: int, z: float = 0.0) -> float:
        """Steps from now to ``loss`` with ``n_workers`` workers; infinite where the curve does not come down to it.

        With ``z`` standard deviations of what so few workers cost.
        """
        if self.curve is None:
            return math.inf
        there = self.curve.steps_to(loss - self.effort.worse_by(n_workers, z), self.moved + 1)
        return (there - self.moved) / self.effort.pace(n_workers, z)

    def steps_left(self, n_workers: int) -> float:
        """Steps until a rule other than the target ends the run; infinite where none says so."""
        left = math.inf
        if self._stop.get("steps") is not None:
            left = self._stop["steps"] - self.step
        if self._stop.get("epochs") is not None and self.step > 0:
            taken = self.step if self.keeps else float(np.sum(self._history.column("n_workers")))
            per_turn = self._history.last("epoch") / max(taken, 1.0)  # epochs that a step makes, or one worker's
            per_step = per_turn if self.keeps else per_turn * n_workers
            left = min(left, (self._stop["epochs"] - self._history.last("epoch")) / max(per_step, 1e-12))
        if self._stop.get("time_s") is not None:
            step_s = self._times.at(n_workers)
            left = min(left, (self._stop["time_s"] - self._history.last("time_s")) / step_s)
        return max(left, 0.0)

    def steps_in_sight(self, n_workers: int) -> float:
        """Steps to the target, or to the rule that ends a run without one; infinite where that is not in sight."""
        return self.steps_left(n_workers) if self.target is None else self.steps_to(self.target, n_workers)

    @property
    def is_past_knee(self) -> bool:
        """Whether the loss falls more slowly now than on the average of the whole run, as far as its end is in sight.

        That is where a convex curve is farthest below the chord from its beginning to its end.
        """
        judged, steps = self.judged, self.steps_in_sight(self.n_workers)
        if self.curve is None or not math.isfinite(steps):
            return True
        fall = float(judged.losses[0]) - self.loss_in(steps, self.n_workers)
        slope = self.loss_in(0, self.n_workers) - self.loss_in(1, self.n_workers)
        return slope * (self.step + steps - float(judged.steps[0])) <= KNEE_SLOPE * fall

    def rest(self, n_workers: int, z: float = 0.0) -> Rest:
        """What is left with ``n_workers`` workers, ``z`` as of `steps_to`."""
        step_s = self._times.at(n_workers)
        steps = self.steps_left(n_workers)
        if self.target is not None:
            steps = min(steps, self.steps_to(self.target, n_workers, z))
        time_s = steps * step_s
        return Rest(steps, time_s, time_s * self.prices.usd_s(n_workers))

    def breaks_target(self, n_workers: int, z: float) -> bool:
        """Whether a target that is in reach now may not be with ``n_workers`` workers.

        It may where so much of what is likely for the floor of the loss would then lie above the target (``z`` standard
        deviations of what fewer workers cost included), and where another rule would end the run before.
        """
        if self.target is None or self.curve is None:
            return self.target is not None
        steps = self.steps_to(self.target, n_workers)
        if not math.isfinite(steps) or steps > self.steps_left(n_workers):
            return True
        now, then = self.effort.worse_by(self.n_workers), self.effort.worse_by(n_workers, z)
        floor, sd = self.curve.floor, max(self.curve.floor_sd, 1e-12)
        in_reach = _normal((self.target - now - floor) / sd)
        return _normal((self.target - then - floor) / sd) < (1 - MOST_RISK) * in_reach


def _phases(workers: Float64) -> tuple[Float64, Float64]:
    """The numbers of workers there were, (k,), and the steps with as many until each row, (n, k)."""
    begins = np.flatnonzero(np.diff(workers, prepend=workers[0] + 1))
    ends = np.append(begins[1:], len(workers))
    rows = np.arange(1.0, len(workers) + 1)[:, None]
    return workers[begins], np.clip(rows - begins, 0, ends - begins)


def _normal(z: float) -> float:
    """The standard normal distribution function."""
    return 0.5 * math.erfc(-z / math.sqrt(2))
