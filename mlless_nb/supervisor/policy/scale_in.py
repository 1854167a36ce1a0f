"""The scale-in auto-tuner as a state machine: rows in, decisions out. No clock and no I/O: time comes with the rows.

The core is the paper's. The reference ``L_P`` is fitted to the losses as all workers make them, with steps of ``d_P``
seconds; after a removal ``l_p`` is fitted to the losses since, with steps of ``d_p`` seconds. One more worker is
let go when the projected loss is worse by less than ``S``::

    s = (l_p(t + horizon / d_p) - L_P(t + horizon / d_P)) / L_P(t + horizon / d_P) < S

Neither is read further ahead than it is relied on (`projection.Projection.reliable_steps`): the horizon ends there, and
where that leaves too little of it nobody goes. Only how many steps the target takes is read further ahead, and that can
keep a worker but never lets one go.

What else goes beyond the paper keeps a removal from doing harm: nothing while the interval of ``s`` straddles ``S``
(80 %), where the target may get out of reach by it, or when time x dollars to the end would not improve. What the
removals so far cost in loss, see `mlless_nb.supervisor.policy.efficiency`, tells what the next will.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any

from .curve_fit import LEAST_JUDGED, Curve, Z, fit
from .efficiency import StatisticalEfficiency
from .knee import falls, knee_of
from .loss_history import History
from .projection import Prices, Projection, StepTimes

#: The least records, and evaluations of held-out rows, between two removals; and what counts as "about to end".
LEAST_RECORDS, LEAST_EVALUATIONS, LAST_STEPS = 12, 1, 20
#: Shares of what is left of the run: of the interval, and of the horizon with the steps that it has at least.
INTERVAL_SHARE, HORIZON_SHARE, HORIZON_STEPS = 0.05, 0.1, 50
#: Records over which a curve's prediction is compared with what came.
HINDCAST_STEPS = 20
#: It is compared again once the run has so many times the steps.
HINDCAST_AGAIN = 1.1
#: Share of the workers that stay while the target is not in sight or far off (so many times the steps so far), and
#: where steps do not become quicker: there a model that moves less in a step costs time, which is seen too late.
CAREFUL_SHARE, FAR = 0.5, 3.0
#: What removals may cost in loss while the target is not in sight, as a share of what the loss has yet to fall to it.
BLIND_COST = 0.05
#: Share of the workers that always stays: the noise grows like 1/p, and what the last ones keep down is not known
#: before they are gone. (MovieLens-1M with a large rate: one worker of eight never reached what two did.)
LEAST_STAY = 0.25
#: A step is quicker with half of the workers when it takes no more than this share of the time with all.
QUICKER = 0.9
#: Curves are not read further ahead than this, steps.
FARTHEST = 200
#: Share of the horizon that must be within reach of the curves: nobody goes on less.
LEAST_SEEN = 0.25
#: What a removal must save of time x dollars to the end; doubled by each removal that turned out worse than projected.
LEAST_SAVING = 0.01
#: How much longer than with all its workers a run is let take.
MOST_LONGER = 0.03


@dataclass(frozen=True)
class Decision:
    """What the tuner has to say.

    Attributes
    ----------
    kind : str
        "knee", "remove", "keep" (said once for each new reason), "outcome" (of a removal) or "tuner" (paused, resumed).
    step : int
    time_s : float
    text : str
        A sentence for a person; "{worker}" stands for the worker that leaves.
    numbers : dict
        What it was decided on.
    """

    kind: str
    step: int
    time_s: float
    text: str
    numbers: dict[str, float | None] = field(default_factory=dict)

    def about(self, worker: int | None) -> Decision:
        """The decision with the worker's number in its sentence."""
        who = f"worker {worker}" if worker is not None else "a worker"
        return dataclasses.replace(self, text=self.text.replace("{worker}", who))

    def to_json(self) -> dict[str, Any]:
        """The decision as plain JSON."""
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class _Removal:
    """The last removal: what was projected for after it, and how many workers were left."""

    curve: Curve
    step: float
    moved: float
    level: float
    pace: float
    n_left: int


class ScaleInTuner:
    """Decides when a worker is let go.

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
        Of the run's rows; whoever holds it appends them.
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
        self._removal: _Removal | None = None
        self.effort = StatisticalEfficiency(n_workers)
        self._misfit = 0.0  # by how much the curve was wrong, a little ahead, while nobody left
        self._hindcast_at = 0.0  # the step at which that was looked at
        self._has_judged = False  # whether this decision is the first after a removal
        self._saw_target = False
        self._bar = LEAST_SAVING
        self._not_before = 0  # records: who looked in vain looks again after some more, not until luck helps
        self._reason = ""

    def pause(self, *, on: bool = False) -> None:
        """Let nobody go until it is switched ``on`` again."""
        self.is_on = on and bool(self._spec["enabled"])
        self._removal = None

    def decide(self) -> list[Decision]:
        """What is to be done by the rows so far; at most one removal among it."""
        history = self._history
        if not self.is_on or history.n < 2 or not history.is_finite:
            return []
        n_workers = int(history.last("n_workers"))
        if n_workers > self._n_wanted:
            return []  # a removal was announced and is still to come
        self._n_wanted = n_workers
        if self.knee is None:
            self.knee = knee_of(history, self._spec["knee"])
            if self.knee is None:
                return []
            text = f"The knee of the loss curve is past (step {self.knee}): from now on workers may go"
            return [self._say("knee", text, {"knee": float(self.knee)})]
        if n_workers < 2:
            return []
        first = history.since_change()
        if not self._is_due(first):
            return []
        self.times.measure(history, first)
        outlook = Projection(history, self._stop, self._prices, self.times, self.effort)
        self.effort = outlook.effort
        interval_s = min(self._spec["interval_s"], INTERVAL_SHARE * self._rest_s(outlook))
        if history.last("time_s") - float(history.column("time_s")[first]) < interval_s:
            return []
        said = self._judge_removal(outlook)
        return said + self._consider(outlook, first)

    # -- the parts of a decision

    def _rest_s(self, outlook: Projection) -> float:
        """Seconds left by the curve, but no more than twice what the run took so far: as far as a curve can see."""
        return min(outlook.rest(outlook.n_workers).time_s, 2 * self._history.last("time_s"))

    def _is_due(self, first: int) -> bool:
        """Whether enough was seen since the last removal."""
        history = self._history
        if history.n - first < LEAST_RECORDS or history.n < self._not_before:
            return False
        judged = history.judged
        if len(judged.steps) < LEAST_JUDGED:
            return False
        if not judged.is_validation or self._removal is None:
            return True
        return len(judged.since(float(history.column("step")[first])).steps) >= LEAST_EVALUATIONS

    def _judge_removal(self, outlook: Projection) -> list[Decision]:
        """Compare the losses since the last removal with the curve before it; sets the bar."""
        removal, self._removal = self._removal, None
        self._has_judged = removal is not None
        if removal is None:
            return []
        since = outlook.judged.since(removal.step)
        if not len(since.steps) or not math.isfinite(removal.curve.noise):
            return []
        middle = float(since.steps.mean())
        projected = removal.level + removal.curve.at(removal.moved + (middle - removal.step) * removal.pace)
        worse_by = float(since.losses.mean()) - projected
        sd = math.hypot(removal.curve.sd(removal.moved), removal.curve.noise / math.sqrt(len(since.steps)))
        sd = max(math.hypot(sd, 2 * self._misfit), 1e-4 * abs(projected))
        is_worse = worse_by > 2 * Z * sd
        if is_worse:
            self._bar *= 2
        numbers: dict[str, float | None] = {"worse_by": worse_by, "sd": sd, "projected": projected, "bar": self._bar}
        if not is_worse:
            return [self._say("outcome", "", numbers)]
        text = (
            f"The loss with {removal.n_left} workers is {projected + worse_by:.4f}, projected were {projected:.4f}: "
            f"the next removal must save {self._bar:.0%}"
        )
        return [self._say("outcome", text, numbers)]

    def _hindcast(self, outlook: Projection) -> float:
        """By how much a curve drawn `HINDCAST_STEPS` steps ago is wrong now."""
        judged, now = outlook.judged, outlook.curve
        n_before = int((judged.steps <= outlook.step - HINDCAST_STEPS).sum())
        before = fit(judged.steps[:n_before], judged.losses[:n_before], "reference")
        if before is None or now is None:
            return 0.0
        return abs(before.at(outlook.step) - outlook.loss_in(0, outlook.n_workers))

    def _consider(self, outlook: Projection, first: int) -> list[Decision]:
        history, n_workers = self._history, outlook.n_workers
        if outlook.curve is None or math.isnan(self.times.at(n_workers)):
            return []
        if not self._has_judged and outlook.step >= HINDCAST_AGAIN * self._hindcast_at:
            self._hindcast_at, self._misfit = outlook.step, self._hindcast(outlook)
        now, then = outlook.rest(n_workers), outlook.rest(n_workers - 1)
        numbers = self._projected(outlook, first)
        numbers.update(
            n_workers=float(n_workers),
            rest_steps=_finite(now.steps),
            rest_s=_finite(now.time_s),
            rest_usd=_finite(now.usd),
            then_steps=_finite(then.steps),
            then_s=_finite(then.time_s),
            then_usd=_finite(then.usd),
            noise=outlook.effort.noise,
            noise_sd=outlook.effort.noise_sd,
            slower=outlook.effort.slower,
            slower_sd=outlook.effort.slower_sd,
            misfit=self._misfit,
        )
        saving, saved = self._saving(outlook, now.steps, then.steps)
        numbers.update(saving=saving, usd_saved=saved)
        s, sd, horizon_s, wanted_s = (numbers[name] or 0.0 for name in ("s", "s_sd", "horizon_s", "wanted_s"))
        threshold = self._spec["threshold"]
        if not falls(history.column("loss")):
            return self._keep("the loss does not fall clearly", numbers)
        if n_workers - 1 < LEAST_STAY * self._n_all:
            return self._keep("a quarter of the workers stays in any case", numbers)
        if now.steps < LAST_STEPS:
            return self._keep("the run is about to end", numbers)
        if not self._are_steps_quicker(n_workers) and not outlook.is_past_knee:
            return self._keep("the loss still falls more quickly than on the average of the run", numbers)
        if horizon_s < LEAST_SEEN * wanted_s:
            return self._keep("how the loss will go on cannot be told from its curve yet", numbers)
        if s - Z * sd < threshold < s + Z * sd:
            return self._keep(f"it is not clear whether the loss would be worse by less than {threshold:.1%}", numbers)
        if s >= threshold:
            return self._keep(f"the projected loss is {s:.2%} worse than with {self._n_all} workers", numbers)
        in_sight = outlook.steps_in_sight(n_workers)
        is_blind = not math.isfinite(in_sight)
        is_half = n_workers <= CAREFUL_SHARE * self._n_all
        self._saw_target |= not is_blind
        if is_blind and self._saw_target and (is_half or not self._are_steps_quicker(n_workers)):
            return self._keep("the target is not in sight any more", numbers)
        if (
            is_blind
            and outlook.gap is not None
            and outlook.effort.worse_by(n_workers - 1, Z) > BLIND_COST * outlook.gap
        ):
            return self._keep("the target is not in sight, and may get out of reach", numbers)
        if is_half and outlook.target is not None and in_sight > FAR * outlook.step:
            return self._keep("the target is not in sight", numbers)
        if is_half and not self._are_steps_quicker(n_workers):
            return self._keep("fewer workers do not make steps quicker", numbers)
        if not is_blind and outlook.breaks_target(n_workers - 1, Z):
            return self._keep(f"with {n_workers - 1} the target may get out of reach", numbers)
        if not is_blind and self._may_take_longer(outlook, now.steps, then.steps):
            return self._keep("with one worker less the run may take longer", numbers)
        # The last half of the workers keeps down more noise than the first: that may be more than was seen.
        if is_half and self._saving(outlook, now.steps, outlook.rest(n_workers - 1, Z).steps)[0] < 0:
            return self._keep("with one worker less the run may cost more", numbers)
        if saving < self._bar:
            return self._keep(f"one worker less would save {max(saving, 0.0):.1%}", numbers)
        effort, n_left = outlook.effort, n_workers - 1
        level, pace = effort.worse_by(n_left), effort.pace(n_left)
        self._removal = _Removal(outlook.curve, outlook.step, outlook.moved, level, pace, n_left)
        self._n_wanted, self._reason = n_workers - 1, ""
        about = "" if is_blind or outlook.target is None or outlook.is_reliable(in_sight, n_workers) else "about "
        text = (
            f"Auto-tuner removed {{worker}}: projected loss at +{horizon_s:.2g} s {numbers['loss']:.4f} vs "
            f"{numbers['reference']:.4f} with {self._n_all} workers, saves {about}{max(saved, 0.0):.0%}"
        )
        return [self._say("remove", text, numbers)]

    def _are_steps_quicker(self, n_workers: int) -> bool:
        """Whether steps have become as much quicker with the workers that left as they must with half of them."""
        share = 1 - (1 - QUICKER) * min((self._n_all - n_workers) / (self._n_all / 2), 1.0)
        return n_workers < self._n_all and self.times.at(n_workers) <= share * self.times.at(self._n_all)

    def _projected(self, outlook: Projection, first: int) -> dict[str, float | None]:
        """The paper's ``s`` and the standard deviation that the curves leave it.

        A reference that is fitted once, at the knee, is soon wrong by more than what is to be seen. It is therefore
        drawn anew through all losses so far, less what the workers that are gone have cost. The current curve too is
        read no further ahead than it has seen.
        """
        history, n_workers, effort = self._history, outlook.n_workers, outlook.effort
        curve, step, moved = outlook.curve, outlook.step, outlook.moved
        assert curve is not None
        d_now, d_all = self.times.at(n_workers), self.times.at(self._n_all)
        if math.isnan(d_all):
            d_all = d_now
        shorter_s = min(d_all, d_now)
        horizon_s = min(self._spec["horizon_s"], max(HORIZON_STEPS * d_all, HORIZON_SHARE * self._rest_s(outlook)))
        wanted_s = min(horizon_s, FARTHEST * shorter_s)
        horizon_s = outlook.reliable_steps(wanted_s / shorter_s, self._n_all) * shorter_s
        n_all, n_now = (math.floor(horizon_s / duration + 1e-9) for duration in (d_all, d_now))
        # Where the run would be had everybody stayed: the steps that the quicker ones of fewer won are not counted.
        reference = curve.at(moved + n_all)
        there = moved + n_now * effort.pace(n_workers)
        loss, sd = outlook.loss_in(n_now, n_workers), curve.sd_between(there, moved + n_all)
        current = outlook.current(first) if first else None  # while nobody has left, it would be the reference again
        # A curve through the few records since the removal may know less than the one through all of them.
        if current is not None and n_now <= history.n - first and current.sd(step + n_now) < curve.sd(there):
            loss, sd = current.at(step + n_now), math.hypot(current.sd(step + n_now), curve.sd(moved + n_all))
        scale = max(abs(reference), 1e-12)
        s = (loss - reference) / scale
        return {
            "horizon_s": horizon_s,
            "wanted_s": wanted_s,
            "reach": outlook.horizon,
            "loss": loss,
            "reference": reference,
            "s": s,
            "s_sd": sd / scale,
        }

    def _saving(self, outlook: Projection, steps_now: float, steps_then: float) -> tuple[float, float]:
        """Shares of time x dollars of the whole run, and of the dollars to come, that one worker less would save."""
        history, n_workers = self._history, outlook.n_workers
        d_now, d_then = self.times.at(n_workers), self.times.at(n_workers - 1)
        if not math.isfinite(steps_then):
            # With no end in sight, what a step costs is all that can be compared.
            if math.isfinite(steps_now):
                return -1.0, -1.0
            steps_now = steps_then = max(outlook.step, 1.0)
        elapsed_s, spent = history.last("time_s"), history.last("spent_usd")
        rest_s, then_s = steps_now * d_now, steps_then * d_then
        usd, then_usd = rest_s * self._prices.usd_s(n_workers), then_s * self._prices.usd_s(n_workers - 1)
        whole = (elapsed_s + then_s) * (spent + then_usd) / max((elapsed_s + rest_s) * (spent + usd), 1e-30)
        return 1 - whole, 1 - then_usd / max(usd, 1e-30)

    def _may_take_longer(self, outlook: Projection, steps_now: float, steps_then: float) -> bool:
        """Whether one worker less may make the run take longer than it is let, as far as its end is in sight.

        A step may then move the model as little as is not unlikely.
        """
        if not math.isfinite(steps_then):
            return False
        n_workers, effort, elapsed_s = outlook.n_workers, outlook.effort, self._history.last("time_s")
        then_s = (
            steps_then * self.times.at(n_workers - 1) * effort.pace(n_workers - 1) / effort.pace(n_workers - 1, 1.0)
        )
        return elapsed_s + then_s > self._longest_s(outlook, elapsed_s + steps_now * self.times.at(n_workers))

    def _longest_s(self, outlook: Projection, whole_s: float) -> float:
        """The longest that the whole run may take: a little more than had everybody stayed, by what is known now."""
        history, d_all = self._history, self.times.at(self._n_all)
        left = outlook.rest(self._n_all).steps
        n_before = int((history.column("n_workers") >= self._n_all).sum())
        if n_before == history.n or math.isnan(d_all) or not math.isfinite(left):
            return whole_s * (1 + MOST_LONGER)
        since = outlook.moved - float(history.column("step")[n_before - 1])
        began_s = float(history.column("time_s")[n_before - 1])
        return (began_s + (since + left) * d_all) * (1 + MOST_LONGER)

    # -- words

    def _say(self, kind: str, text: str, numbers: dict[str, float | None]) -> Decision:
        history = self._history
        return Decision(kind, int(history.last("step")), history.last("time_s"), text, numbers)

    def _keep(self, reason: str, numbers: dict[str, float | None]) -> list[Decision]:
        """Nobody leaves; said when the reason is a new one."""
        self._not_before = self._history.n + LEAST_RECORDS
        kind = reason.split(" ", 3)[:3]
        if kind == self._reason.split(" ", 3)[:3]:
            return []
        self._reason = reason
        n_workers = int(numbers["n_workers"] or 0)
        return [self._say("keep", f"All {n_workers} workers stay for now: {reason}", numbers)]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
