"""The auto-tuner for ``global_minibatch="keep"``: it removes workers to reduce time and cost. Pure.

With a constant global minibatch fewer workers make the same steps, so the loss after a step does not depend on their
number. Only the time of a step and the cost of a second do. Both are known for the present number of workers; for fewer
workers the time is predicted (`KeptStepTimes`). The tuner minimises

- time x dollars of the whole run, if something other than the budget ends it, so that Perf/$ = 1/time x 1/price grows;
- the dollars of a step, if only the budget ends the run or ends it before the target: the budget then buys more steps.

Workers are removed as soon as enough steps were timed. If this objective grew after a removal, no further worker is
removed.
"""

from __future__ import annotations

import math
from typing import Any

from ...plurals import count
from .decision import Decision, Numbers, Refusal, Refusals
from .efficiency import StatisticalEfficiency
from .loss_history import History
from .projection import Prices, Projection
from .step_times import KeptStepTimes

#: First steps that are not timed (minibatches are fetched, caches fill), and timed steps required for a decision.
WARM_UP, LEAST_TIMED = 8, 16
#: Least remaining steps for a removal: a worker that takes over a shard must fetch it first.
LEAST_LEFT = 40
#: Least predicted saving of a removal, as a share.
LEAST_SAVING = 0.03
#: A removal did not pay if the objective grew by more than this share.
NOISE = 0.05
#: Most by which a removal may lengthen the run, as a share.
MOST_LONGER = 0.1


class CostScaleIn:
    """Decides when workers are removed, with a constant global minibatch.

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
    n_cores : int
        Cores that all workers share; 0: each worker has its own.

    Attributes
    ----------
    is_on : bool
    times : KeptStepTimes
    efficiency : StatisticalEfficiency
        The effect of fewer workers on the loss: none.
    """

    def __init__(
        self,
        scale_in: dict[str, Any],
        n_workers: int,
        stop: dict[str, Any],
        prices: Prices,
        history: History,
        n_cores: int = 0,
    ) -> None:
        self._spec, self._stop, self._prices, self._history = scale_in, stop, prices, history
        self.is_on: bool = scale_in["enabled"]
        self.times = KeptStepTimes(n_workers, n_cores)
        self.efficiency = StatisticalEfficiency(n_workers, slower_sd=0.0)
        self.cap_usd: float | None = None
        self._n_wanted = n_workers
        # Before the newest removal: workers, time and dollars of a step, and whether only the dollars were minimised.
        self._before: tuple[int, float, float, bool] | None = None
        self._is_done = False
        self._refusals = Refusals()
        self._not_before = 0

    def pause(self, *, on: bool = False) -> None:
        """Remove no worker until it is switched ``on`` again."""
        self.is_on = on and bool(self._spec["enabled"])
        self._before, self._is_done = None, False

    def decide(self) -> list[Decision]:
        """The decisions after the rows so far: removals, each of one worker, or a reason why there are none."""
        history = self._history
        if not self.is_on or history.n < 2 or not history.is_finite:
            return []
        n_workers = int(history.last("n_workers"))
        if n_workers > self._n_wanted:
            return []  # removals were announced and have not taken effect yet
        self._n_wanted = n_workers
        first = max(history.since_change(), WARM_UP)
        if n_workers < 2 or self._is_done or history.n < max(first + LEAST_TIMED, self._not_before):
            return []
        self.times.measure(history, first)
        projection = Projection(history, self._stop, self._prices, self.times, self.efficiency)
        said = self._judge(n_workers)
        return said if said else self._consider(projection, n_workers)

    def _value(self, projection: Projection, n_workers: int) -> tuple[float, bool]:
        """The objective with ``n_workers`` workers, and whether it is the dollars of a step alone."""
        history = self._history
        step_s = self.times.at(n_workers)
        step_usd = self._step_usd(n_workers)
        left = projection.steps_to_end(projection.n_workers)
        spent, time_s = history.last("spent_usd"), history.last("time_s")
        is_capped = self.cap_usd is not None and (
            not math.isfinite(left) or spent + left * self._step_usd(projection.n_workers) > self.cap_usd
        )
        if is_capped:
            return step_usd, True
        if not math.isfinite(left):
            return step_s * step_usd, False
        return (time_s + left * step_s) * (spent + left * step_usd), False

    def _step_usd(self, n_workers: int) -> float:
        return self.times.at(n_workers) * self._prices.usd_s(n_workers)

    def _judge(self, n_workers: int) -> list[Decision]:
        """Compare a step with one before the newest removal; if that did not pay, no more workers are removed."""
        before, self._before = self._before, None
        if before is None:
            return []
        n_before, step_s, step_usd, is_capped = before
        was = step_usd if is_capped else step_s * step_usd
        now = self._step_usd(n_workers) * (1.0 if is_capped else self.times.at(n_workers))
        if now <= was * (1 + NOISE):
            return []
        self._is_done = True
        numbers: Numbers = {"n_workers": float(n_workers), "before": was, "now": now}
        use = "dollars" if is_capped else "time and dollars"
        text = f"{n_workers} workers make no better use of {use} than {n_before} did: all of them stay"
        return [self._decided("outcome", text, numbers)]

    def _consider(self, projection: Projection, n_workers: int) -> list[Decision]:
        now, is_capped = self._value(projection, n_workers)
        left = projection.steps_to_end(n_workers)
        step_s, time_s = self.times.at(n_workers), self._history.last("time_s")
        is_timed = not is_capped and math.isfinite(left)
        best, n_best = now, n_workers
        for n_fewer in range(n_workers - 1, 0, -1):
            value, _ = self._value(projection, n_fewer)
            takes_s = time_s + left * self.times.at(n_fewer)
            if value < best and not (is_timed and takes_s > (time_s + left * step_s) * (1 + MOST_LONGER)):
                best, n_best = value, n_fewer
        saving = 1 - best / now if now > 0 else 0.0
        numbers: Numbers = {
            "n_workers": float(n_workers),
            "n_best": float(n_best),
            "step_s": step_s,
            "then_step_s": self.times.at(n_best),
            "step_usd": self._step_usd(n_workers),
            "then_step_usd": self._step_usd(n_best),
            "rest_steps": left if math.isfinite(left) else None,
            "saving": saving,
        }
        if math.isfinite(left) and left < LEAST_LEFT:
            return self._keep(Refusal("about_to_end", "the run is about to end"), numbers)
        if n_best == n_workers or saving < LEAST_SAVING:
            reason = f"fewer would save only {100 * saving:.1f} %" if saving >= 0.0005 else "fewer would save nothing"
            return self._keep(Refusal("saves_too_little", reason), numbers)
        self._before = (n_workers, step_s, self._step_usd(n_workers), is_capped)
        self._n_wanted = n_best
        self._refusals.reset()
        then_ms, now_ms = 1e3 * self.times.at(n_best), 1e3 * step_s
        cheaper = 1 - self._step_usd(n_best) / self._step_usd(n_workers)
        text = (
            f"same steps, {100 * cheaper:.0f} % cheaper with {count(n_best, 'worker')} "
            f"(a step takes {then_ms:.3g} ms instead of {now_ms:.3g} ms)"
        )
        removed = [f"Removed {{worker}} ({n} -> {n - 1})" for n in range(n_workers, n_best, -1)]
        removed[-1] += f": {text}"
        return [self._decided("remove", sentence, numbers) for sentence in removed]

    def _decided(self, kind: str, text: str, numbers: Numbers) -> Decision:
        return Decision.at_newest(self._history, kind, text, numbers)

    def _keep(self, refusal: Refusal, numbers: Numbers) -> list[Decision]:
        """Remove no worker; the decision is reported if its reason is new."""
        self._not_before = self._history.n + LEAST_TIMED
        return self._refusals.report(refusal, self._history, int(numbers["n_workers"] or 0), numbers)
