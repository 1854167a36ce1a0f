"""The estimated effect of removing one worker: on the loss at a horizon, the time and the dollars of the run. Pure."""

from __future__ import annotations

import math
from functools import cached_property
from typing import NamedTuple

from .curve_fit import Curve, Z
from .decision import Numbers
from .loss_history import History
from .projection import Prices, Projection, StepTimes

#: The horizon is this share of the remaining run, and at least this many steps.
HORIZON_SHARE, HORIZON_STEPS = 0.1, 50
#: Curves are extrapolated by at most this many steps.
FARTHEST = 200
#: Guards are stricter with at most this share of the workers left: the last ones reduce more noise than the first.
HALF = 0.5
#: Steps with half of the workers count as quicker if they take at most this share of the time with all.
QUICKER = 0.9
#: Most by which a run may be longer than with all its workers, as a share.
MOST_LONGER = 0.03


class ProjectedLoss(NamedTuple):
    """The paper's ``s``, its uncertainty, and the horizon.

    Attributes
    ----------
    horizon_s, wanted_s : float
        Seconds ahead at which the losses are compared, and the horizon wanted if the curves were reliable that far.
    loss, reference : float
        With the present number of workers, and with all of them.
    s, s_sd : float
        ``(loss - reference) / reference`` and its standard deviation.
    """

    horizon_s: float
    wanted_s: float
    loss: float
    reference: float
    s: float
    s_sd: float


class RemovalEstimate:
    """The effect of one removal, estimated from the rows so far.

    Parameters
    ----------
    history : History
    projection : Projection
        With a curve.
    times : StepTimes
    prices : Prices
    n_all : int
        P, the workers at the start.
    horizon_s : float
        The longest horizon, seconds.
    first : int
        The first row with the present number of workers.
    """

    def __init__(
        self,
        history: History,
        projection: Projection,
        times: StepTimes,
        prices: Prices,
        n_all: int,
        horizon_s: float,
        first: int,
    ) -> None:
        self.history, self.projection, self.n_all = history, projection, n_all
        self._times, self._prices = times, prices
        self.n_workers = projection.n_workers
        self.now, self.then = projection.rest(self.n_workers), projection.rest(self.n_workers - 1)
        self.projected = self._project(horizon_s, first)
        #: Shares of time x dollars of the whole run, and of the dollars to come, that the removal would save.
        self.saving, self.usd_saved = self._saving(self.then.steps)

    @property
    def is_half(self) -> bool:
        """Whether no more than half of the workers are left."""
        return self.n_workers <= HALF * self.n_all

    @cached_property
    def steps_to_end(self) -> float:
        """Steps to the target, or without a target to the rule that ends the run; infinite if that is unknown."""
        return self.projection.steps_to_end(self.n_workers)

    @property
    def is_end_unknown(self) -> bool:
        """Whether the end of the run cannot be predicted."""
        return not math.isfinite(self.steps_to_end)

    @property
    def are_steps_quicker(self) -> bool:
        """Whether past removals made steps quicker, in proportion to `QUICKER` for half of the workers."""
        n_all, n_workers = self.n_all, self.n_workers
        share = 1 - (1 - QUICKER) * min((n_all - n_workers) / (n_all / 2), 1.0)
        return n_workers < n_all and self._times.at(n_workers) <= share * self._times.at(n_all)

    @property
    def least_saving(self) -> float:
        """`saving` under a pessimistic effect of fewer workers on the loss (80 % interval)."""
        return self._saving(self.projection.rest(self.n_workers - 1, Z).steps)[0]

    @property
    def may_take_longer(self) -> bool:
        """Whether the run may exceed its longest time after the removal; False if its end is unknown.

        The progress of a step is taken one standard deviation below its estimate.
        """
        if not math.isfinite(self.then.steps):
            return False
        projection, n_left, elapsed_s = self.projection, self.n_workers - 1, self.history.last("time_s")
        slower = projection.efficiency.pace(n_left) / projection.efficiency.pace(n_left, 1.0)
        then_s = self.then.steps * self._times.at(n_left) * slower
        return elapsed_s + then_s > self._longest_s(elapsed_s + self.now.steps * self._times.at(self.n_workers))

    def _longest_s(self, whole_s: float) -> float:
        """The longest time for the whole run: a little more than the estimated time with all workers."""
        history, d_all = self.history, self._times.at(self.n_all)
        left = self.projection.rest(self.n_all).steps
        n_before = int((history.column("n_workers") >= self.n_all).sum())
        if n_before == history.n or math.isnan(d_all) or not math.isfinite(left):
            return whole_s * (1 + MOST_LONGER)
        since = self.projection.moved - float(history.column("step")[n_before - 1])
        began_s = float(history.column("time_s")[n_before - 1])
        return (began_s + (since + left) * d_all) * (1 + MOST_LONGER)

    def _saving(self, steps_then: float) -> tuple[float, float]:
        history, n_workers, steps_now = self.history, self.n_workers, self.now.steps
        d_now, d_then = self._times.at(n_workers), self._times.at(n_workers - 1)
        if not math.isfinite(steps_then):
            # If the end is unknown, only the cost of a step can be compared.
            if math.isfinite(steps_now):
                return -1.0, -1.0
            steps_now = steps_then = max(self.projection.step, 1.0)
        elapsed_s, spent = history.last("time_s"), history.last("spent_usd")
        rest_s, then_s = steps_now * d_now, steps_then * d_then
        usd, then_usd = rest_s * self._prices.usd_s(n_workers), then_s * self._prices.usd_s(n_workers - 1)
        whole = (elapsed_s + then_s) * (spent + then_usd) / max((elapsed_s + rest_s) * (spent + usd), 1e-30)
        return 1 - whole, 1 - then_usd / max(usd, 1e-30)

    def _project(self, horizon_s: float, first: int) -> ProjectedLoss:
        """The paper's ``s`` and its standard deviation.

        A reference fitted once, at the knee, soon has a larger error than the effect to be measured. It is therefore
        fitted again to all losses so far, minus the effect of the removed workers. The current curve is extrapolated by
        at most as many steps as it was fitted to.
        """
        projection, n_workers, efficiency = self.projection, self.n_workers, self.projection.efficiency
        curve, step, moved = projection.curve, projection.step, projection.moved
        assert curve is not None
        d_now, d_all = self._times.at(n_workers), self._times.at(self.n_all)
        if math.isnan(d_all):
            d_all = d_now
        shorter_s = min(d_all, d_now)
        share_s = HORIZON_SHARE * seconds_left(projection, self.history)
        wanted_s = min(horizon_s, max(HORIZON_STEPS * d_all, share_s), FARTHEST * shorter_s)
        horizon_s = projection.reliable_steps(wanted_s / shorter_s, self.n_all) * shorter_s
        n_steps_all, n_steps_now = (math.floor(horizon_s / duration + 1e-9) for duration in (d_all, d_now))
        # The loss with all workers; steps gained because fewer workers step quicker are not counted.
        reference = curve.at(moved + n_steps_all)
        there = moved + n_steps_now * efficiency.pace(n_workers)
        loss, sd = projection.loss_in(n_steps_now, n_workers), curve.sd_between(there, moved + n_steps_all)
        current = projection.current(first) if first else None  # before any removal it would equal the reference
        # A curve through the few records since the removal may be less certain than the one through all records.
        n_since = self.history.n - first
        if current is not None and n_steps_now <= n_since and current.sd(step + n_steps_now) < curve.sd(there):
            loss = current.at(step + n_steps_now)
            sd = math.hypot(current.sd(step + n_steps_now), curve.sd(moved + n_steps_all))
        scale = max(abs(reference), 1e-12)
        return ProjectedLoss(horizon_s, wanted_s, loss, reference, (loss - reference) / scale, sd / scale)

    def numbers(self, misfit: float) -> Numbers:
        """The figures that the decision is based on, for the record; ``misfit`` is the curve's past error."""
        projected, efficiency = self.projected, self.projection.efficiency
        return {
            "horizon_s": projected.horizon_s,
            "wanted_s": projected.wanted_s,
            "horizon": self.projection.horizon,
            "loss": projected.loss,
            "reference": projected.reference,
            "s": projected.s,
            "s_sd": projected.s_sd,
            "n_workers": float(self.n_workers),
            "rest_steps": _finite(self.now.steps),
            "rest_s": _finite(self.now.time_s),
            "rest_usd": _finite(self.now.usd),
            "then_steps": _finite(self.then.steps),
            "then_s": _finite(self.then.time_s),
            "then_usd": _finite(self.then.usd),
            "noise": efficiency.noise,
            "noise_sd": efficiency.noise_sd,
            "slower": efficiency.slower,
            "slower_sd": efficiency.slower_sd,
            "misfit": misfit,
            "saving": self.saving,
            "usd_saved": self.usd_saved,
        }


class Removal(NamedTuple):
    """A removal that was decided: the curve of its projection, the step, and the workers left.

    Attributes
    ----------
    curve : Curve
    step, moved : float
        Step of the decision, and the same in effective steps.
    level, pace : float
        Projected after the removal: the loss above the curve, and effective steps per step.
    n_left : int
    """

    curve: Curve
    step: float
    moved: float
    level: float
    pace: float
    n_left: int

    @classmethod
    def of(cls, projection: Projection) -> Removal:
        """The removal of one worker from the run of ``projection``, which has a curve."""
        assert projection.curve is not None
        n_left, efficiency = projection.n_workers - 1, projection.efficiency
        level, pace = efficiency.worse_by(n_left), efficiency.pace(n_left)
        return cls(projection.curve, projection.step, projection.moved, level, pace, n_left)

    def projected(self, step: float) -> float:
        """The projected loss at ``step``."""
        return self.level + self.curve.at(self.moved + (step - self.step) * self.pace)


def seconds_left(projection: Projection, history: History) -> float:
    """Seconds left by the curve, at most twice the run's time so far, since curves do not reach further."""
    return min(projection.rest(projection.n_workers).time_s, 2 * history.last("time_s"))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
