"""The scale-in auto-tuner as the MLLess papers print it, for comparison with `scale_in` and `cost_scale_in`. Pure.

1. The losses pass an exponentially weighted mean. Before the knee no worker is removed.
2. At the knee the reference curve ``L_P`` is fitted to all losses so far and the mean step time ``d_P`` is taken. Both
   are never changed again. One worker is removed at once.
3. Every ``interval_s`` seconds ``l_p`` is fitted to the losses since the last removal, ``d_p`` is their mean step time,
   and one more worker is removed if, with ``D = horizon_s``::

       s = (l_p(t + floor(D / d_p)) - L_P(t + floor(D / d_P))) / L_P(t + floor(D / d_P)) < S

The text of the paper and the printed sign of its condition disagree; the sign here is that of the text: the relative
worsening of the projected loss stays under ``S``. Neither the weight of the mean nor ``S`` is given: the weight is
`EWMA_WEIGHT`, ``S`` is ``ScaleIn.threshold``. There is no other rule: no uncertainty, no target, no cost.

References
----------
MLLess (Middleware), section 4.2; MLLess (journal), scale-in auto-tuner.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from .curve_fit import Curve, fit
from .decision import Decision, Numbers, Refusal, Refusals
from .efficiency import StatisticalEfficiency
from .knee import EWMA_WEIGHT, find_knee
from .loss_history import History
from .projection import Prices, StepTimes
from .smoothing import ewma


class PaperScaleIn:
    """Decides when a worker is removed, by the papers' three rules.

    Parameters
    ----------
    scale_in : dict
        Fields of ``ScaleIn``.
    n_workers : int
        P, the workers at the start.
    stop : dict
        Fields of ``Stop``; not used by these rules.
    prices : Prices
        Not used either.
    history : History
        The run's rows; its owner appends them.
    """

    def __init__(
        self, scale_in: dict[str, Any], n_workers: int, stop: dict[str, Any], prices: Prices, history: History
    ) -> None:
        self._spec, self._n_all, self._history = scale_in, n_workers, history
        self.is_on: bool = scale_in["enabled"]
        # For the forecasts, which are not the papers'.
        self.times, self.efficiency = StepTimes(), StatisticalEfficiency(n_workers)
        self._reference: Curve | None = None
        self._reference_step_s = math.nan
        self._n_wanted = n_workers
        self._judged_at_s = 0.0
        self._refusals = Refusals()

    def pause(self, *, on: bool = False) -> None:
        """Remove no worker until it is switched ``on`` again."""
        self.is_on = on and bool(self._spec["enabled"])

    def decide(self) -> list[Decision]:
        """The decisions after the rows so far, with at most one removal."""
        history = self._history
        if not self.is_on or history.n < 2 or not history.is_finite:
            return []
        n_workers = int(history.last("n_workers"))
        if n_workers > self._n_wanted or n_workers < 2:
            return []  # a removal was announced and has not taken effect yet, or the last worker is left
        self._n_wanted = n_workers
        if self._reference is None:
            return self._at_knee(n_workers)
        if history.last("time_s") - self._judged_at_s < self._spec["interval_s"]:
            return []
        return self._judge(self._reference, n_workers)

    def _at_knee(self, n_workers: int) -> list[Decision]:
        """Rule 2: fit the reference and remove a worker, if the knee is past."""
        history = self._history
        steps, losses, _ = history.training
        if find_knee(steps, losses, self._spec["knee"]) is None:
            return []
        self._reference = _fitted(steps, losses, "reference")
        if self._reference is None:
            return []
        self._reference_step_s = self._mean_step_s(0)
        knee = f"Loss is flattening (step {int(history.last('step'))})"
        text = f"Removed {{worker}} ({n_workers} -> {n_workers - 1}) at the knee of the loss curve, as the paper does"
        return [self._decided("knee", f"{knee}: the reference curve is fitted", {}), *self._remove(n_workers, text, {})]

    def _judge(self, reference: Curve, n_workers: int) -> list[Decision]:
        """Rule 3: compare the projections, and remove a worker if the worsening is under the threshold."""
        history, spec = self._history, self._spec
        first = history.since_change()
        steps, losses, _ = history.training
        current = _fitted(steps[first:], losses[first:], "current")
        step_s = self._mean_step_s(first)
        if current is None or not step_s > 0:
            return []
        self._judged_at_s = history.last("time_s")
        step = history.last("step")
        after, before = (step + math.floor(spec["horizon_s"] / seconds) for seconds in (step_s, self._reference_step_s))
        projected, wanted = current.at(after), reference.at(before)
        worse = (projected - wanted) / wanted
        numbers: Numbers = {"s": worse, "loss": projected, "reference": wanted, "n_workers": float(n_workers)}
        told = f"projected loss {projected:.4f} against {wanted:.4f} with {self._n_all} workers"
        if not worse < spec["threshold"]:
            why = f"{told}, worse by {100 * worse:.1f} %"
            return self._refusals.report(Refusal("worse", why), history, n_workers, numbers)
        return self._remove(n_workers, f"Removed {{worker}} ({n_workers} -> {n_workers - 1}): {told}", numbers)

    def _remove(self, n_workers: int, text: str, numbers: Numbers) -> list[Decision]:
        self._n_wanted, self._judged_at_s = n_workers - 1, self._history.last("time_s")
        self._refusals.reset()
        return [self._decided("remove", text, numbers)]

    def _mean_step_s(self, first: int) -> float:
        """Mean seconds of the steps from row ``first`` on."""
        times = self._history.column("time_s")[first:]
        return float(times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 else math.nan

    def _decided(self, kind: str, text: str, numbers: Numbers) -> Decision:
        return Decision.at_newest(self._history, kind, text, numbers)


def _fitted(steps: Any, losses: Any, family: str) -> Curve | None:
    """The curve of ``family`` through the smoothed losses, all of them, and extrapolated as it is."""
    curve = fit(steps, ewma(losses, EWMA_WEIGHT), family, newest=1.0)
    return dataclasses.replace(curve, steepest=math.inf) if curve is not None else None
