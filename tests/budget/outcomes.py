"""How trials of the proof went, and what is not as it must be."""

from __future__ import annotations

from dataclasses import dataclass, field

from budget.plans import DRIVER, PLACES, RESTART, Plan

#: How far the meter may be off, also where a Redis has lost what functions have said.
SHARE = 0.01
#: Seconds between the last word of a function, to which it is billed, and its return, on a busy machine: the system
#: lets it wait for a few time slices while it closes its connections. It is 1 % of a life of two seconds.
LAST_S = 0.02
#: Reasons of "failed" that are right: a run that gets no further is given up.
GIVEN_UP = "restarts the run is no further than step"
#: Trials from which on a proof must have seen all that is drawn.
WHOLE = 100


@dataclass(frozen=True)
class Outcome:
    """How a trial went. Amounts are US dollars.

    Parameters
    ----------
    plan : Plan
    cap, spent : float
        The highest cap that was in force, and what the run has spent by its processes' lives.
    status, reason : str
        Of the run; "killed" if its driver was.
    steps : int
    metered, metered_servers : float
        The meter's word, and its part for servers; 0 if the driver was killed.
    needed, missed : float
        By lives, without servers: functions that were needed; and all functions until they were missed, infinite if
        one had nothing to do: it is billed for a start, whichever was the longest. One that was killed may be billed
        until it exited, where the system tells that, or until it was missed.
    unspent : float or None
        What functions had reserved of the budget and not returned once all had ended, beyond what was ``spent``;
        None if that is not known. Seconds of the servers that had started are not in it, by the measure of each
        supervisor: the last one may start one after its last message, and one that takes over has its own.
    slice_usd : float
        A slice of one function.
    last_usd : float
        What all functions together may cost after their last words.
    n_lost : int
        Functions that did not return: they were killed, or ended themselves.
    struck : tuple of str
        The faults that met a live run.
    told : list of str
        Its events.
    """

    plan: Plan
    cap: float
    spent: float
    status: str
    reason: str
    steps: int = 0
    metered: float = 0.0
    metered_servers: float = 0.0
    needed: float = 0.0
    missed: float = 0.0
    unspent: float | None = None
    slice_usd: float = 1.0
    last_usd: float = 0.0
    n_lost: int = 0
    struck: tuple[str, ...] = ()
    told: list[str] = field(default_factory=list)

    @property
    def is_known(self) -> bool:
        """Whether what functions have said is known: the driver lived, and no Redis has lost it."""
        return bool(self.metered) and RESTART not in self.struck

    @property
    def returns_all(self) -> bool:
        """Whether all functions could return what they had not spent."""
        return self.is_known and not self.n_lost

    @property
    def off(self) -> float:
        """By what share the meter is off what functions and requests have cost; where it says too much, above 0."""
        metered = self.metered - self.metered_servers
        return metered / min(max(metered, self.needed), self.missed) - 1 if self.needed else 0.0

    @property
    def slices(self) -> float:
        """Slices a worker that were reserved at the end and not spent."""
        return 0.0 if self.unspent is None else self.unspent / self.slice_usd / self.plan.workers

    @property
    def wrong(self) -> list[str]:
        """What is not as it must be."""
        metered = self.metered - self.metered_servers
        is_explained = (
            self.status == "capped"
            or (self.status == "killed" and DRIVER in self.struck)
            or (self.status == "stopped" and self.plan.lifetime_s is not None and "lifetime" in self.reason)
            or (self.status == "failed" and len(self.struck) > 2 and GIVEN_UP in self.reason)
        )
        found = {
            "the cap was passed": self.spent > self.cap + 1e-12,
            "the meter is above the cap": self.metered > self.cap + 1e-12,
            "the meter is too low": bool(self.metered) and metered < (1 - SHARE) * self.needed - self.last_usd,
            "the meter is too high": bool(self.metered) and metered > (1 + SHARE) * self.missed + self.last_usd,
            "more than a slice a worker was not spent": self.returns_all and self.slices > 1 + SHARE,
            f"{self.status}: {self.reason}": not is_explained,
        }
        return [text for text, is_wrong in found.items() if is_wrong]

    def __str__(self) -> str:
        verdict = f"WRONG ({'; '.join(self.wrong)})" if self.wrong else "kept"
        meter = f", meter {100 * self.off:+.2f} %" if self.metered else ""
        share = f"({100 * self.spent / self.cap:.1f} %{meter}, {self.slices:.2f} slices left)"
        went = f"{self.steps} steps, {self.status}, {self.n_lost} functions lost"
        return f"{self.plan.number:4d} {verdict}: ${self.spent:.6f} of ${self.cap:.6f} {share}, {went}; {self.plan}"


def lacking(outcomes: list[Outcome]) -> list[str]:
    """What a whole proof must have met, and this one has not."""
    told = [text for one in outcomes for text in one.told]
    met = {f"a run over {place}": any(one.plan.place == place and one.steps for one in outcomes) for place in PLACES}
    met |= {
        "a resumed run": any(one.plan.resumes and one.steps for one in outcomes),
        "a function that was invoked twice": any(one.plan.twice and one.steps for one in outcomes),
        "a hand-over": any("handed over" in text for text in told),
        "a duplicate that took over": any("to its duplicate" in text for text in told),
        "a lost worker that was replaced": any("replaced" in text for text in told),
        "a meter that has heard of everything": any(one.returns_all for one in outcomes),
    }
    return [what for what, is_met in met.items() if not is_met] if len(outcomes) >= WHOLE else []


def summary(seed: int, outcomes: list[Outcome]) -> str:
    """A few lines on a whole proof."""
    n, kept = len(outcomes), sum(one.spent <= one.cap for one in outcomes)
    right = sum(not one.wrong for one in outcomes)
    told = [text for one in outcomes for text in one.told]
    handed_over = sum("handed over" in text for text in told)
    lines = [
        f"seed {seed}: {kept} of {n} caps kept, {right} of {n} trials as they must be, under "
        f"{sum(len(one.struck) for one in outcomes)} faults, with {handed_over} hand-overs and "
        f"{sum(one.plan.resumes for one in outcomes)} resumed runs; the most that was spent is "
        f"{100 * max((one.spent / one.cap for one in outcomes), default=0.0):.1f} % of a cap",
    ]
    groups = {
        "no function was lost": [one for one in outcomes if one.returns_all],
        "functions were lost": [one for one in outcomes if one.is_known and one.n_lost],
        "a Redis lost its data": [one for one in outcomes if one.metered and RESTART in one.struck],
    }
    for what, those in groups.items():
        if off := sorted(abs(one.off) for one in those):
            within = sum(each <= SHARE for each in off)
            lines += [
                f"{len(off)} trials in which {what}: the meter is off by {100 * off[len(off) // 2]:.2f} % in the "
                f"median, {100 * off[-1]:.2f} % at most, and within {100 * SHARE:.0f} % in {within}"
            ]
    if whole := groups["no function was lost"]:
        lines += [
            f"where none was lost, at most {max(one.slices for one in whole):.2f} slices a worker were reserved at the "
            f"end and not spent, more than one in {sum(one.slices > 1.0 for one in whole)}"
        ]
    lines += [f"never met: {what}" for what in lacking(outcomes)]
    return "\n".join(lines)
