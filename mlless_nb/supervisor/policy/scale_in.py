"""The scale-in auto-tuner of the MLLess paper, as a state machine: rows in, decisions out.

It has no clock and does no I/O: time comes with the rows. The core is the paper's. The reference ``L_P`` is fitted to
the losses with all workers, with steps of ``d_P`` seconds; after a removal ``l_p`` is fitted to the losses since, with
steps of ``d_p`` seconds. One more worker is removed when the projected loss is worse by less than ``S``::

    s = (l_p(t + horizon / d_p) - L_P(t + horizon / d_P)) / L_P(t + horizon / d_P) < S

Curves are extrapolated only as far as they are reliable (`projection.Projection.reliable_steps`): the horizon ends
there, and no worker is removed if it becomes too short. Only the number of steps to the target is extrapolated further;
it can prevent a removal but never cause one.

Further rules, beyond the paper, prevent harmful removals: no worker is removed while the 80 % interval of ``s``
contains ``S``, if the target may get out of reach, or if time x dollars to the end would not improve. The effect of the
next removal is estimated from those so far, see `mlless_nb.supervisor.policy.efficiency`.
"""

from __future__ import annotations

import math
from typing import Any

from ...plurals import count
from .curve_fit import Z, fit
from .decision import Decision, Numbers, Refusals
from .efficiency import StatisticalEfficiency
from .knee import knee_of
from .loss_history import History
from .pace import LEAST_JUDGED
from .projection import Prices, Projection, StepTimes
from .removal_estimate import Removal, RemovalEstimate, seconds_left
from .removal_guards import END_GUARDS, LOSS_GUARDS, Limits, refusal_of

#: Least records, and evaluations of held-out rows, between two removals.
LEAST_RECORDS, LEAST_EVALUATIONS = 12, 1
#: Longest interval between two removals, as a share of the remaining run.
INTERVAL_SHARE = 0.05
#: Steps over which a curve's prediction is compared with the losses that followed (hindcast).
HINDCAST_STEPS = 20
#: The next hindcast is made when the run's steps have grown by this factor.
HINDCAST_AGAIN = 1.1
#: Least saving of time x dollars by a removal; doubled after each removal whose outcome was worse than projected.
LEAST_SAVING = 0.01


class ScaleInTuner:
    """Decides when a worker is removed.

    Parameters
    ----------
    scale_in : dict
        Fields of ``ScaleIn``.
    n_workers : int
        P, the workers at the start.
    stop : dict
        Fields of ``Stop``.
    prices : Prices
    history : History
        The run's rows; its owner appends them.
    """

    def __init__(
        self, scale_in: dict[str, Any], n_workers: int, stop: dict[str, Any], prices: Prices, history: History
    ) -> None:
        self._spec, self._n_all, self._stop, self._prices = scale_in, n_workers, stop, prices
        self._history = history
        self.is_on: bool = scale_in["enabled"]
        self.knee: int | None = None
        self.times = StepTimes()
        self._n_wanted = n_workers
        self._removal: Removal | None = None
        self.efficiency = StatisticalEfficiency(n_workers)
        self._misfit = 0.0  # error of a curve's short-term prediction, without a removal in between
        self._hindcast_at = 0.0  # the step of the newest hindcast
        self._has_judged = False  # whether this decision is the first after a removal
        self._saw_target = False
        self._bar = LEAST_SAVING
        self._not_before = 0  # records until the next attempt: trying at every row would succeed by chance
        self._refusals = Refusals()

    def pause(self, *, on: bool = False) -> None:
        """Remove no worker until it is switched ``on`` again."""
        self.is_on = on and bool(self._spec["enabled"])
        self._removal = None

    def decide(self) -> list[Decision]:
        """The decisions after the rows so far, with at most one removal."""
        history = self._history
        if not self.is_on or history.n < 2 or not history.is_finite:
            return []
        n_workers = int(history.last("n_workers"))
        if n_workers > self._n_wanted:
            return []  # a removal was announced and has not taken effect yet
        self._n_wanted = n_workers
        if self.knee is None:
            self.knee = knee_of(history, self._spec["knee"])
            if self.knee is None:
                return []
            text = f"Loss is flattening (step {self.knee}): the auto-tuner may now remove workers"
            return [self._decided("knee", text, {"knee": float(self.knee)})]
        if n_workers < 2:
            return []
        first = history.since_change()
        if not self._is_due(first):
            return []
        self.times.measure(history, first)
        projection = Projection(history, self._stop, self._prices, self.times, self.efficiency)
        self.efficiency = projection.efficiency
        interval_s = min(self._spec["interval_s"], INTERVAL_SHARE * seconds_left(projection, history))
        if history.last("time_s") - float(history.column("time_s")[first]) < interval_s:
            return []
        said = self._judge_removal(projection)
        return said + self._consider(projection, first)

    # -- the parts of a decision

    def _is_due(self, first: int) -> bool:
        """Whether there are enough records since the last removal."""
        history = self._history
        if history.n - first < LEAST_RECORDS or history.n < self._not_before:
            return False
        judged = history.judged
        if len(judged.steps) < LEAST_JUDGED:
            return False
        if not judged.is_validation or self._removal is None:
            return True
        return len(judged.since(float(history.column("step")[first])).steps) >= LEAST_EVALUATIONS

    def _judge_removal(self, projection: Projection) -> list[Decision]:
        """Compare the losses since the last removal with its projection; doubles the least saving if they are worse."""
        removal, self._removal = self._removal, None
        self._has_judged = removal is not None
        if removal is None:
            return []
        since = projection.judged.since(removal.step)
        if not len(since.steps) or not math.isfinite(removal.curve.noise):
            return []
        middle = float(since.steps.mean())
        projected = removal.projected(middle)
        worse_by = float(since.losses.mean()) - projected
        sd = math.hypot(removal.curve.sd(removal.moved), removal.curve.noise / math.sqrt(len(since.steps)))
        sd = max(math.hypot(sd, 2 * self._misfit), 1e-4 * abs(projected))
        is_worse = worse_by > 2 * Z * sd
        if is_worse:
            self._bar *= 2
        numbers: Numbers = {"worse_by": worse_by, "sd": sd, "projected": projected, "bar": self._bar}
        if not is_worse:
            return [self._decided("outcome", "", numbers)]
        text = (
            f"The loss with {count(removal.n_left, 'worker')} is {projected + worse_by:.4f}, worse than the projected "
            f"{projected:.4f}: the next removal must save {100 * self._bar:.0f} %"
        )
        return [self._decided("outcome", text, numbers)]

    def _hindcast(self, projection: Projection) -> float:
        """The present error of a curve fitted `HINDCAST_STEPS` steps ago."""
        judged, now = projection.judged, projection.curve
        n_before = int((judged.steps <= projection.step - HINDCAST_STEPS).sum())
        before = fit(judged.steps[:n_before], judged.losses[:n_before], "reference")
        if before is None or now is None:
            return 0.0
        return abs(before.at(projection.step) - projection.loss_in(0, projection.n_workers))

    def _consider(self, projection: Projection, first: int) -> list[Decision]:
        """Remove a worker unless a guard refuses; a refusal is reported."""
        history, n_workers, spec = self._history, projection.n_workers, self._spec
        if projection.curve is None or math.isnan(self.times.at(n_workers)):
            return []
        if not self._has_judged and projection.step >= HINDCAST_AGAIN * self._hindcast_at:
            self._hindcast_at, self._misfit = projection.step, self._hindcast(projection)
        estimate = RemovalEstimate(history, projection, self.times, self._prices, self._n_all, spec["horizon_s"], first)
        numbers = estimate.numbers(self._misfit)
        limits = Limits(spec["threshold"], self._bar, self._saw_target)
        refusal = refusal_of(LOSS_GUARDS, estimate, limits)
        if refusal is None:
            self._saw_target |= not estimate.is_end_unknown
            refusal = refusal_of(END_GUARDS, estimate, limits)
        if refusal is not None:
            self._not_before = history.n + LEAST_RECORDS
            return self._refusals.report(refusal, history, n_workers, numbers)
        self._removal = Removal.of(projection)
        self._n_wanted = n_workers - 1
        self._refusals.reset()
        to_end, projected = estimate.steps_to_end, estimate.projected
        is_known = estimate.is_end_unknown or projection.target is None or projection.is_reliable(to_end, n_workers)
        text = (
            f"Removed {{worker}} ({n_workers} -> {n_workers - 1}): forecast loss in {projected.horizon_s:.2g} s "
            f"{projected.loss:.4f} against {projected.reference:.4f} with all {self._n_all} workers, "
            f"{'' if is_known else 'about '}{100 * max(estimate.usd_saved, 0.0):.0f} % cheaper"
        )
        return [self._decided("remove", text, numbers)]

    def _decided(self, kind: str, text: str, numbers: Numbers) -> Decision:
        return Decision.at_newest(self._history, kind, text, numbers)
