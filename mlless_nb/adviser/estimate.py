"""What a job will take as it is written, in one line, and what looks wrong with it. Pure: figures in, sentences out.

Its number of workers is compared with others in the same place, for the same number of epochs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .. import plurals
from ..job.job import TrainingJob
from .analytic import Option
from .descent import Descent

#: A figure is as good as another one that is less than this share below it.
NEAR = 0.05
#: There are too many workers if fewer are as quick and cheaper by this share.
FAR_BELOW = 0.25
#: A budget is far above the need from this many times of it on.
FAR_ABOVE = 20.0
#: Passes over the rows that are more than a run without a stop rule can use.
MANY_EPOCHS = 500.0


@dataclass(frozen=True)
class LinearEstimate:
    """A job with some number of workers: what its start takes, and each epoch after it."""

    workers: int
    start_s: float
    start_usd: float
    epoch_s: float
    epoch_usd: float

    @classmethod
    def through(cls, first: Option, second: Option, epochs: float) -> LinearEstimate:
        """Of the same job for ``epochs`` epochs and for twice as many, each enough for many steps."""
        epoch_s = max((second.time_s - first.time_s) / epochs, 1e-9)
        epoch_usd = max((second.usd - first.usd) / epochs, 1e-15)
        start_s, start_usd = first.time_s - epochs * epoch_s, first.usd - epochs * epoch_usd
        return cls(first.workers, max(start_s, 0.0), max(start_usd, 0.0), epoch_s, epoch_usd)

    def seconds(self, epochs: float) -> float:
        """Seconds from the start of the run to its end."""
        return self.start_s + epochs * self.epoch_s

    def usd(self, epochs: float) -> float:
        """US dollars."""
        return self.start_usd + epochs * self.epoch_usd

    def bought(self, usd: float) -> float:
        """Epochs that ``usd`` US dollars pay for."""
        return max(usd - self.start_usd, 0.0) / self.epoch_usd

    def within(self, seconds: float) -> float:
        """Epochs in so many seconds."""
        return max(seconds - self.start_s, 0.0) / self.epoch_s


@dataclass(frozen=True)
class Estimate:
    """What is ahead of a run.

    Attributes
    ----------
    line : str
        One line, e.g. "about $0.003 and 15 s; 2 workers are cheapest, 8 quickest ($0.011, 9 s)".
    warnings : tuple of str
        What looks wrong, a sentence each, with the field first.
    epochs : float
        Passes over the training rows that the figures are for.
    """

    line: str
    warnings: tuple[str, ...]
    epochs: float


def estimate(
    job: TrainingJob, estimates: Mapping[int, LinearEstimate], most: float | None, descent: Descent | None
) -> Estimate:
    """The estimate of ``job``.

    Parameters
    ----------
    job : TrainingJob
    estimates : mapping of int to LinearEstimate
        By the number of workers; that of the job is among them.
    most : float or None
        Epochs that the stop rules allow at most, see `descent.planned`; with a default if there are no rules.
    descent : Descent, optional
        What a sample has shown of the target.
    """
    own, stop, cap = estimates[job.workers], job.stop_rules, job.cap_usd
    if stop.time_s is not None:
        most = min(own.within(stop.time_s), math.inf if most is None else most)
    at_target = descent.epochs if descent is not None else None
    needed = most if at_target is None else min(at_target, math.inf if most is None else most)
    bought = own.bought(cap) if cap is not None else math.inf
    is_capped = bought < (math.inf if needed is None else needed)
    epochs = bought if is_capped else 1.0 if needed is None else needed
    if needed is None and is_capped:
        compared = _most_of(own, estimates, cap or 0.0)
    elif needed is None:
        compared = _compared(own, estimates, lambda one: one.epoch_usd, lambda one: one.epoch_s)
    else:
        compared = _compared(own, estimates, lambda one: one.usd(epochs), lambda one: one.seconds(epochs))
    is_named = len(estimates) > 1 and not compared.startswith(f"; {workers(own)} ")
    begin = _begin(job, own, needed, bought, at_target, f" with {workers(own)}" if is_named else "")
    warnings = [
        *_of_budget(job, own, needed, bought, is_capped=is_capped),
        *_of_workers(job, own, estimates, max(epochs, 1.0)),
        *of_target(job, descent),
    ]
    return Estimate(begin + compared, tuple(warnings), epochs)


def _begin(
    job: TrainingJob, own: LinearEstimate, needed: float | None, bought: float, at_target: float | None, of: str
) -> str:
    """The job's own figures; ``of`` names its workers where the rest of the line does not."""
    stop, cap, until = job.stop_rules, job.cap_usd, until_of(job, at_target)
    sooner = f", or until {' or '.join(until)}" if until else ""
    if cap is not None and bought < (math.inf if needed is None else needed):
        lasts = seconds(own.seconds(bought))
        if needed is None:
            all_of_it = ", all of which a run without a stop rule spends" if stop.is_empty else ""
            return f"the budget of {usd(cap)} lasts about {lasts}{of}, {count(bought)}{sooner}{all_of_it}"
        ends = f"the budget ends it in epoch {math.floor(bought) + 1:,} of {round(needed, 1):,g}{sooner}"
        return f"about {usd(cap)} and {lasts}{of}: {ends}"
    if needed is None:
        return f"about {usd(own.epoch_usd)} and {seconds(own.epoch_s)} an epoch{of}, until {' or '.join(until)}"
    figures = f"about {usd(own.usd(needed))} and {seconds(own.seconds(needed))}{of}"
    if at_target is not None and needed == at_target:
        return f"{figures} to the target {stop.target:g} ({count(needed)})"
    return f"{figures} ({count(needed)}{sooner})" if until else figures


def until_of(job: TrainingJob, at_target: float | None) -> list[str]:
    """What may end ``job`` at a time that is not known; ``at_target``: the epochs to its target, if they are."""
    stop = job.stop_rules
    until = [f"the target {stop.target:g} is reached"] if stop.target is not None and at_target is None else []
    until += ["the loss has settled"] if job.ends_settled else []
    if stop.patience is not None:
        evaluations = plurals.count(stop.patience, "evaluation")
        until.append(f"{evaluations} in a row {'is' if stop.patience == 1 else 'are'} no better")
    return until


def _most_of(own: LinearEstimate, estimates: Mapping[int, LinearEstimate], cap_usd: float) -> str:
    """Which number of workers gets most out of a budget."""
    if len(estimates) == 1:
        return ""
    best = _best(own, estimates, lambda one: 1.0 / max(one.bought(cap_usd), 1e-9))
    most = best.bought(cap_usd)
    more = "" if best is own else f" ({count(most)} in {seconds(best.seconds(most))})"
    return f"; {workers(best)} get{'s' if best.workers == 1 else ''} most out of it{more}"


def _compared(
    own: LinearEstimate,
    estimates: Mapping[int, LinearEstimate],
    dollars: Callable[[LinearEstimate], float],
    length_s: Callable[[LinearEstimate], float],
) -> str:
    """Which numbers of workers are cheapest and quickest; the job's own comes first if it is one of them."""
    if len(estimates) == 1:
        return ""
    cheapest, quickest = _best(own, estimates, dollars), _best(own, estimates, length_s)

    def figures(one: LinearEstimate) -> str:
        return "" if one is own else f" ({usd(dollars(one))}, {seconds(length_s(one))})"

    def said(one: LinearEstimate) -> str:
        return f"; {workers(one)} {'is' if one.workers == 1 else 'are'}"

    if cheapest is quickest:
        return f"{said(cheapest)} cheapest and quickest{figures(cheapest)}"
    if quickest is own:
        return f"{said(own)} quickest, {cheapest.workers} cheapest{figures(cheapest)}"
    return f"{said(cheapest)} cheapest{figures(cheapest)}, {quickest.workers} quickest{figures(quickest)}"


def _best(
    own: LinearEstimate, estimates: Mapping[int, LinearEstimate], figure: Callable[[LinearEstimate], float]
) -> LinearEstimate:
    """The one with the least ``figure``; the job's own if that is about as good."""
    best = min(estimates.values(), key=lambda one: (figure(one), one.workers))
    return own if figure(own) <= (1.0 + NEAR) * figure(best) else best


def _of_budget(
    job: TrainingJob, own: LinearEstimate, needed: float | None, bought: float, *, is_capped: bool
) -> list[str]:
    cap = job.cap_usd
    if cap is None or not job.has_own_cap:
        return []
    if bought < 1.0:
        some = plurals.count(f"{bought:.1g}", "epoch")
        buys = f"buys about {some}" if bought >= 0.05 else "buys no twentieth of an epoch"
        return [f"budget={cap:g}: {buys} with {workers(own)}; one epoch is about {usd(own.usd(1.0))}"]
    if needed is not None and is_capped:
        return [
            f"budget={cap:g}: buys about {bought:.3g} of {count(needed)}; all of them are about {usd(own.usd(needed))}"
        ]
    if needed is not None and cap > FAR_ABOVE * own.usd(needed):
        times = cap / own.usd(needed)
        return [f"budget={cap:g}: about {float(f'{times:.2g}'):,.0f} times what the run needs ({usd(own.usd(needed))})"]
    if needed is None and job.stop_rules.is_empty and bought > MANY_EPOCHS:
        return [
            f"budget={cap:g}: buys about {count(bought)}, and without a stop rule the run spends all of it; "
            "Stop(epochs=...), a target or no budget would end it sooner"
        ]
    return []


def _of_workers(
    job: TrainingJob, own: LinearEstimate, estimates: Mapping[int, LinearEstimate], epochs: float
) -> list[str]:
    """A warning if fewer workers are both quicker and cheaper."""
    fewer = [
        one
        for one in estimates.values()
        if one.workers < own.workers
        and one.usd(epochs) < (1.0 - FAR_BELOW) * own.usd(epochs)
        and one.seconds(epochs) <= own.seconds(epochs)
    ]
    if not fewer:
        return []
    best = min(fewer, key=lambda one: one.usd(epochs))
    return [
        f"workers={job.workers}: {workers(best)} would be quicker and cheaper (about {usd(best.usd(epochs))} and "
        f"{seconds(best.seconds(epochs))} for {count(epochs)}; {own.workers} take {usd(own.usd(epochs))} and "
        f"{seconds(own.seconds(epochs))})"
    ]


def of_target(job: TrainingJob, descent: Descent | None) -> list[str]:
    """A warning if training on a sample did not come to the target."""
    if descent is None or descent.epochs is not None or not math.isfinite(descent.lowest):
        return []
    seen = f"{job.model.metric} {descent.lowest:.4g} was the lowest in {count(descent.passed)} of {descent.rows} here"
    how = "out of reach" if descent.is_settled and descent.share >= 1.0 else "it may be out of reach"
    why = "and it had settled" if descent.is_settled else "and it was still falling"
    return [f"stop.target={job.stop_rules.target:g}: {how}; {seen}, {why}"]


def workers(one: LinearEstimate) -> str:
    """``1 worker``, ``8 workers``."""
    return plurals.count(one.workers, "worker")


def count(epochs: float) -> str:
    """``1 epoch``, ``2.5 epochs``, ``120 epochs``."""
    text = f"{epochs:.2g}" if epochs < 10 else f"{round(epochs, 2 - math.floor(math.log10(epochs))):,.0f}"
    return plurals.count(text, "epoch")


def usd(amount: float) -> str:
    """US dollars to two significant digits: ``$0.0031``, ``$12``."""
    if amount <= 0 or not math.isfinite(amount):
        return "$0"
    decimals = max(1 - math.floor(math.log10(amount)), 0)
    text = f"{amount:,.{decimals}f}"
    return f"${text.rstrip('0').rstrip('.') if '.' in text else text}"


def seconds(length: float) -> str:
    """A time to about two digits: ``0.12 s``, ``4.1 s``, ``15 s``, ``12 min``, ``2.5 h``."""
    if length < 0.95:
        return f"{length:.2g} s"
    if length < 9.5:
        return f"{length:.1f} s"
    if length < 120:
        return f"{length:.0f} s"
    return f"{length / 60:.0f} min" if length < 7200 else f"{length / 3600:.1f} h"
