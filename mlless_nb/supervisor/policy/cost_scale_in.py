"""The auto-tuner where the global minibatch stays: workers go for the sake of time and dollars alone. Pure.

Fewer workers make the same steps then, so that the loss after a step does not depend on them. What does is how long a
step takes and what a second costs. Both are known with the present number of workers; with fewer, the time is
predicted (`KeptStepTimes`). What is to be made small is

- time x dollars of the whole run, where something other than the budget ends it, so that Perf/$ = 1/time x 1/price
  grows;
- the dollars of a step, where only the budget does, or it would before the target is there: it then buys more steps.

Workers go as soon as enough steps were timed. A removal after which what was to become smaller has grown is the last.
"""

from __future__ import annotations

import math
from typing import Any

from .decision import Decision, Numbers, Refusal, Refusals
from .efficiency import StatisticalEfficiency
from .loss_history import History
from .projection import Prices, Projection
from .step_times import KeptStepTimes

#: Steps at the start that are not timed (minibatches are fetched, caches fill), and those that are before a decision.
WARM_UP, LEAST_TIMED = 8, 16
#: Steps that must be left of a run for a removal to pay: who takes over a shard fetches it first.
LEAST_LEFT = 40
#: What a removal must save by its prediction, as a share.
LEAST_SAVING = 0.03
#: By how much a removal may turn out worse than no removal before it counts as one that did not pay.
NOISE = 0.05
#: How much longer than with the present workers a run is let take.
MOST_LONGER = 0.1


class CostScaleIn:
    """Decides when workers are removed, under a global minibatch that stays.

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
        Of the run's rows; its owner appends them.
    n_cores : int
        Cores that all workers share; 0: each has its own.

    Attributes
    ----------
    is_on : bool
    times : KeptStepTimes
    effort : Effort
        What fewer workers cost in loss: nothing.
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
        self.effort = StatisticalEfficiency(n_workers, slower_sd=0.0)
        self.cap_usd: float | None = None
        self._n_wanted = n_workers
        # Before the newest removal: the workers, a step's time and dollars, and whether the dollars alone were to fall.
        self._before: tuple[int, float, float, bool] | None = None
        self._is_done = False
        self._refusals = Refusals()
        self._not_before = 0

    def pause(self, *, on: bool = False) -> None:
        """Remove no worker until it is switched ``on`` again."""
        self.is_on = on and bool(self._spec["enabled"])
        self._before, self._is_done = None, False

    def decide(self) -> list[Decision]:
        """What is to be done by the rows so far: removals, each of one worker, or a word on why there are none."""
        history = self._history
        if not self.is_on or history.n < 2 or not history.is_finite:
            return []
        n_workers = int(history.last("n_workers"))
        if n_workers > self._n_wanted:
            return []  # removals were announced and are still to come
        self._n_wanted = n_workers
        first = max(history.since_change(), WARM_UP)
        if n_workers < 2 or self._is_done or history.n < max(first + LEAST_TIMED, self._not_before):
            return []
        self.times.measure(history, first)
        outlook = Projection(history, self._stop, self._prices, self.times, self.effort)
        said = self._judge(n_workers)
        return said if said else self._consider(outlook, n_workers)

    def _value(self, outlook: Projection, n_workers: int) -> tuple[float, bool]:
        """What is to become small with so many workers, and whether that is the dollars of a step alone."""
        history = self._history
        step_s = self.times.at(n_workers)
        step_usd = self._step_usd(n_workers)
        left = outlook.steps_in_sight(outlook.n_workers)
        spent, time_s = history.last("spent_usd"), history.last("time_s")
        is_capped = self.cap_usd is not None and (
            not math.isfinite(left) or spent + left * self._step_usd(outlook.n_workers) > self.cap_usd
        )
        if is_capped:
            return step_usd, True
        if not math.isfinite(left):
            return step_s * step_usd, False
        return (time_s + left * step_s) * (spent + left * step_usd), False

    def _step_usd(self, n_workers: int) -> float:
        return self.times.at(n_workers) * self._prices.usd_s(n_workers)

    def _judge(self, n_workers: int) -> list[Decision]:
        """Compare a step with what it was before the newest removal; one that did not pay is the last."""
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
        return [self._say("outcome", text, numbers)]

    def _consider(self, outlook: Projection, n_workers: int) -> list[Decision]:
        now, is_capped = self._value(outlook, n_workers)
        left = outlook.steps_in_sight(n_workers)
        step_s, time_s = self.times.at(n_workers), self._history.last("time_s")
        is_timed = not is_capped and math.isfinite(left)
        best, n_best = now, n_workers
        for n_fewer in range(n_workers - 1, 0, -1):
            value, _ = self._value(outlook, n_fewer)
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
            reason = f"fewer would save {max(saving, 0.0):.1%} of what is to be saved"
            return self._keep(Refusal("saves_too_little", reason), numbers)
        self._before = (n_workers, step_s, self._step_usd(n_workers), is_capped)
        self._n_wanted = n_best
        self._refusals.reset()
        then_ms, now_ms = 1e3 * self.times.at(n_best), 1e3 * step_s
        cheaper = 1 - self._step_usd(n_best) / self._step_usd(n_workers)
        text = (
            f"Auto-tuner removed {{worker}}: a step of {n_best} worker{'s' * (n_best > 1)} is to take {then_ms:.3g} ms "
            f"instead of {now_ms:.3g} ms with {n_workers} and cost {cheaper:.0%} less; its rows stay the same"
        )
        return [self._say("remove", text, numbers) for _ in range(n_workers - n_best)]

    def _say(self, kind: str, text: str, numbers: Numbers) -> Decision:
        return Decision.at_newest(self._history, kind, text, numbers)

    def _keep(self, refusal: Refusal, numbers: Numbers) -> list[Decision]:
        """No worker leaves; told when the reason is a new one."""
        self._not_before = self._history.n + LEAST_TIMED
        return self._refusals.tell(refusal, self._history, int(numbers["n_workers"] or 0), numbers)
